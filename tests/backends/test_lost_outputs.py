"""Output of done tasks that is lost while others still need it, on every backend."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

import slotwise
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.events import OutputLost, TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log, LogFile, read_log
from slotwise.core.retries import LOSSES_MAX
from slotwise.insight.explain import explain
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.jobs.calls import Calls, Results
from slotwise.results import Result

Losses = Mapping[tuple[str, str, int], int]
"""How often the output of a task is lost, by job, phase and task."""


class Stage(Protocol):
    """Runs jobs on a backend that loses output; the log, and what became of the jobs."""

    def __call__(self, jobs: Sequence[Job], losses: Losses) -> Any:
        """Run them on two or three slots."""
        ...


MESSAGES = pytest.mark.local_only("results of agents travel in messages, not in files")


@pytest.fixture(params=["simulated", pytest.param("live", marks=MESSAGES)])
def stage(request: pytest.FixtureRequest, watched: Callable[..., Any]) -> Stage:
    """Each test runs on every backend."""
    return simulated(watched) if request.param == "simulated" else live(watched)


def simulated(watched: Callable[..., Any]) -> Stage:
    """The simulation loses the output when the task ends."""

    def run(jobs: Sequence[Job], losses: Losses) -> Any:
        def loss(event: TaskFinished) -> float | None:
            times = losses.get((*event.phase, event.task), 0)
            return 0.0 if event.attempt <= times else None

        cluster = LocalBackend.cluster(3)  # Tasks are repeated while both joins run.
        backend = SimulatedBackend(cluster, jobs, Simulation(loss=loss))
        return watched(backend, jobs, cluster)

    return run


def live(watched: Callable[..., Any]) -> Stage:
    """Files of large results are removed before their readers begin."""

    def run(jobs: Sequence[Job], losses: Losses) -> Any:
        executions = [losing(Calls(job, reader()), losses) for job in jobs]
        cluster = LocalBackend.cluster(2)
        with LocalBackend(executions, 2) as backend:
            return watched(backend, jobs, cluster, backend_name="live")

    return run


def reader() -> Callable[[int, Results], bytes]:
    """A function that reads all input and makes a large result.

    It is made here so that it is sent by value: workers need not import this module.
    """

    def read_all(task: int, results: Results) -> bytes:
        for of_phase in results.values():
            assert all(len(result) == 1 << 19 for result in of_phase)
        return bytes(1 << 19)

    return read_all


def losing(calls: Calls, losses: Losses) -> Calls:
    """These calls, whose files are removed as soon as their results are stored."""
    finished, ends = calls.finished, Counter[tuple[str, str, int]]()

    def lose(phase: str, task: int, attempt: int, result: Any) -> None:
        finished(phase, task, attempt, result)
        place = (calls.job.id, phase, task)
        ends[place] += 1
        if ends[place] <= losses.get(place, 0):
            os.unlink(result.path)

    calls.finished = lose  # type: ignore[method-assign]
    return calls


def chain(name: str) -> Job:
    """Three maps, then two joins, then one end; in a simulation the joins take far longer."""
    return Job(
        name,
        (
            Phase("map", Tasks(3, 0.01)),
            Phase("join", Tasks(2, 5.0), after=frozenset({"map"})),
            Phase("end", Tasks(1, 5.0), after=frozenset({"join"})),
        ),
    )


def single(name: str) -> Job:
    """One map."""
    return Job(name, (Phase("map", Tasks(1, 0.01)),))


def events_of(log: Log, kind: type) -> list[Any]:
    """All events of a kind."""
    return [event for turn in log.turns for event in turn.events if isinstance(event, kind)]


def ends_of(log: Log) -> Counter[tuple[str, str, int]]:
    """How often each task was done."""
    return Counter((*event.phase, event.task) for event in events_of(log, TaskFinished))


@pytest.mark.parametrize(
    "losses",
    [
        {("a", "map", 0): 1, ("a", "map", 1): 1, ("a", "map", 2): 1},
        {("a", "map", 2): LOSSES_MAX - 1, ("a", "join", 0): 1},
    ],
    ids=["all of a phase", "often and of two phases"],
)
def test_what_is_lost_is_done_again(stage: Stage, losses: Losses) -> None:
    """Each loss repeats its task once; both jobs are done; no task counts as failed."""
    jobs = [chain("a"), single("b")]
    run = stage(jobs, losses)
    assert run.state.completed.keys() == {"a", "b"}
    tasks = [
        (job.id, p.name, n) for job in jobs for p in job.phases for n in range(p.tasks.count)
    ]
    assert ends_of(run.log) == {place: 1 + losses.get(place, 0) for place in tasks}
    assert sum(len(event.tasks) for event in events_of(run.log, OutputLost)) == sum(
        losses.values()
    )
    assert all(event.lost and event.lacks_input for event in events_of(run.log, TaskFailed))


def test_output_that_is_always_lost_fails_its_job_and_no_other(stage: Stage) -> None:
    """The reason names the task, and how often it has lost its output."""
    run = stage([chain("bad"), single("good")], {("bad", "map", 1): 99})
    assert run.state.completed.keys() == {"good"}
    assert run.state.failed.keys() == {"bad"}
    assert run.state.failed["bad"].startswith(
        f"the output of map task 1 was lost; this task has lost its slot or its output"
        f" {LOSSES_MAX} times"
    )
    assert ends_of(run.log)["bad", "map", 1] == LOSSES_MAX


def test_a_log_with_losses_is_replayed_measured_and_explained(
    stage: Stage, tmp_path: Path
) -> None:
    """It replays identically; metrics and explanations can be computed from it."""
    run = stage([chain("a"), single("b")], {("a", "map", 0): 2, ("a", "join", 1): 1})
    path = tmp_path / "run.jsonl"
    with LogFile(path, run.log.header) as record:
        for turn in run.log.turns:
            record(turn.now, turn.events, turn.decisions)
    log = read_log(path)
    assert [turn.events for turn in log.turns] == [turn.events for turn in run.log.turns]
    found = replay_log(log)
    assert found.is_identical, found.difference
    outcome = MetricsCollector.of_log(log).outcome()
    assert outcome.is_over
    assert 0 < outcome.bound <= outcome.metrics["value"]
    for turn in log.turns:
        if any(isinstance(event, OutputLost) for event in turn.events):
            assert explain(log, "a", turn.now).job == "a"


@pytest.mark.slow
def test_a_report_shows_a_run_with_losses(stage: Stage, tmp_path: Path) -> None:
    """The page is written from the log."""
    log = stage([chain("a"), single("b")], {("a", "map", 0): 2}).log
    slotwise.write_report([Result.of_log(log)], tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 0
