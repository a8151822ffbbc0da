"""The same run has the same log, and no decision depends on the future."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties.test_runs import EXAMPLES, NAMES, Case, cases
from slotwise.backends.simulated.backend import Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.events import TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log, Turn


@given(cases())
@settings(max_examples=EXAMPLES // 3)
def test_the_same_run_has_the_same_log(run_case: Callable[[Case], object], case: Case) -> None:
    """Twice the same case: the same text, byte for byte."""
    assert text(run_case(case).log) == text(run_case(case).log)


def text(log: Log) -> str:
    """All turns as they are written."""
    return "\n".join(json.dumps(turn.to_plain()) for turn in log.turns)


def test_another_seed_gives_other_durations(simulated: Callable[..., object]) -> None:
    """With noise, seeds 1 and 2 give different ends to the same job."""
    jobs = [Job("j", (Phase("map", Tasks(5, 1.0)),))]
    one, again, other = (
        text(simulated(jobs, Cluster.of_slots(2), simulation=Simulation(seed, 0.5)).log)
        for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


def turns_until(turns: Sequence[Turn], instant: float) -> list[Turn]:
    """The turns up to and with an instant."""
    return [turn for turn in turns if turn.now <= instant]


@given(st.data())
@settings(max_examples=EXAMPLES // 2)
def test_no_decision_knows_the_future(
    monkeypatch_truth: Callable[..., Log], data: st.DataObject
) -> None:
    """What a task that is not done by t really takes changes nothing that is decided by t.

    Run once; choose t; make every task that had not finished by then longer; run again.
    """
    name = data.draw(st.sampled_from(NAMES))
    assigner = data.draw(st.sampled_from(["greedy", "delay"]))
    jobs = tuple(
        Job(
            f"j{number}",
            (
                Phase("map", Tasks(count, 1.0)),
                Phase("reduce", Tasks(1, 2.0), after=frozenset({"map"})),
            ),
            arrival=float(number),
        )
        for number, count in enumerate(
            data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
        )
    )
    truth = {
        PhaseId(job.id, phase.name): [
            data.draw(st.sampled_from([0.4, 1.0, 1.7])) for _ in range(phase.tasks.count)
        ]
        for job in jobs
        for phase in job.phases
    }
    first = monkeypatch_truth(jobs, truth, name, assigner)
    instant = data.draw(st.sampled_from([turn.now for turn in first.turns]))
    finished = {
        (event.phase, event.task)
        for turn in turns_until(first.turns, instant)
        for event in turn.events
        if isinstance(event, TaskFinished)
    }
    longer = {
        phase: [
            seconds if (phase, task) in finished else seconds * 1.9
            for task, seconds in enumerate(all_seconds)
        ]
        for phase, all_seconds in truth.items()
    }
    second = monkeypatch_truth(jobs, longer, name, assigner)
    assert turns_until(second.turns, instant) == turns_until(first.turns, instant)


@pytest.fixture(scope="session")
def monkeypatch_truth(watched: Callable[..., object]) -> Callable[..., Log]:
    """Runs jobs on the simulated backend with given durations of tasks."""
    from slotwise.backends.simulated.backend import SimulatedBackend

    def run(
        jobs: Sequence[Job], truth: dict[PhaseId, list[float]], name: str, assigner: str
    ) -> Log:
        cluster = Cluster.of_slots(2)
        backend = SimulatedBackend(cluster, jobs)
        backend._attempts.durations.draw = truth.__getitem__
        return watched(backend, jobs, cluster, (), name, assigner=assigner).log

    return run


def test_a_log_file_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    """The same workload and seed, simulated twice through the API: equal files."""
    from slotwise.api import simulate

    jobs = [
        Job(
            f"j{n}",
            (
                Phase("map", Tasks(7, 1.5)),
                Phase("reduce", Tasks(2, 1.0), after=frozenset({"map"})),
            ),
        )
        for n in range(4)
    ]
    files = [tmp_path / name for name in ("one", "again", "other")]
    for file, seed in zip(files, (5, 5, 6), strict=True):
        simulate(jobs, "flex", simulation=Simulation(seed, 0.4), slots=3, log=file)
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()
