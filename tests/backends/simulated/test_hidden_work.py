"""Hidden work: schedulers and logs get only what finished tasks took; the truth stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise import Shuffle, Simulation, compare, replay, simulate
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log, Turn, read_log
from slotwise.core.objective import Objective
from slotwise.policy.scheduler import QUEUEINGS, SCHEDULERS
from tiers import examples

HIDDEN = Simulation(hide_work=True)


def two_jobs() -> list[Job]:
    """A large job with a deadline, and a small one that arrives a second later."""
    reduce = Phase("reduce", Tasks(6, 10.0), after=frozenset({"map"}))
    return [
        Job("large", (Phase("map", Tasks(40, 10.0)), reduce), deadline=50.0),
        Job("small", (Phase("map", Tasks(8, 5.0)),), arrival=1.0, deadline=20.0, weight=2.0),
    ]


def arrived(log: Log) -> list[Job]:
    """The jobs as the log has them."""
    return [e.job for turn in log.turns for e in turn.events if isinstance(e, JobArrived)]


def test_a_job_arrives_without_its_work() -> None:
    """Its tasks, deadline and weight are there; the work of each task is not."""
    jobs = two_jobs()
    first, _ = SimulatedBackend(Cluster.of_slots(10), jobs[:1], HIDDEN).wait(None)
    assert isinstance(first, JobArrived)
    assert [(p.name, p.tasks.count, p.tasks.work) for p in first.job.phases] == [
        ("map", 40, None),
        ("reduce", 6, None),
    ]
    stated = [replace(p, tasks=replace(p.tasks, work=10.0)) for p in first.job.phases]
    assert replace(first.job, phases=tuple(stated)) == jobs[0]


@pytest.mark.parametrize("scheduler", ["fifo", "fair"])
def test_schedulers_that_use_no_work_lose_nothing(scheduler: str) -> None:
    """All times, metrics and the lower bound for the measured work are those without hiding."""
    jobs = two_jobs()
    told, hidden = (
        simulate(jobs, scheduler, slots=10, simulation=Simulation(noise=0.3, hide_work=hides))
        for hides in (False, True)
    )
    assert (hidden.jobs, hidden.metrics, hidden.bound) == (told.jobs, told.metrics, told.bound)


def test_flex_takes_the_job_of_fewer_tasks_for_the_smaller_one() -> None:
    """8 tasks of 40 s, and 20 of 1 s: told, FLEX serves the second job first, in 2 s. Not told,
    it leaves the second job two of ten slots until the tasks of the first one end."""
    jobs = [
        Job("few long", (Phase("map", Tasks(8, 40.0)),)),
        Job("many short", (Phase("map", Tasks(20, 1.0)),)),
    ]
    told = simulate(jobs, "flex", slots=10)
    hidden = simulate(jobs, "flex", slots=10, simulation=HIDDEN)
    assert told.jobs["many short"]["completion"] == 2.0
    assert hidden.jobs["many short"]["completion"] == 10.0
    assert hidden.metrics["work_seconds"] == told.metrics["work_seconds"]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_log_has_no_hidden_work_and_replays(scheduler: str, tmp_path: Path) -> None:
    """Under every scheduler; the header says that work was hidden."""
    path = tmp_path / "run.jsonl"
    noisy = Simulation(noise=0.3, hide_work=True)
    found = simulate(two_jobs(), scheduler, slots=10, simulation=noisy, log=path)
    assert found.metrics["jobs_done"] == 2
    log = read_log(path)
    assert log.header.parameters["hide_work"] is True
    assert [p.tasks.work for job in arrived(log) for p in job.phases] == [None, None, None]
    assert replay(path).is_identical


def test_a_log_without_hidden_work_does_not_mention_it() -> None:
    """Its header has the same keys as before there was such an option."""
    assert "hide_work" not in simulate(two_jobs(), slots=10).log.header.parameters


def test_copying_in_slots_of_its_own_is_hidden_too() -> None:
    """The phase that copies is made from the stated seconds of copying."""
    maps = Phase("map", Tasks(8, 3.0), "map")
    reduces = Phase("reduce", Tasks(2, 2.0), "reduce", frozenset({"map"}), copy=4.0)
    found = simulate(
        [Job("sort", (maps, reduces))],
        "flex",
        slots={"map": 4, "reduce": 4},
        shuffle=Shuffle(split=True),
        simulation=HIDDEN,
    )
    (job,) = arrived(found.log)
    assert len(job.phases) == 3
    assert {phase.tasks.work for phase in job.phases} == {None}


def test_all_schedulers_of_a_comparison_get_the_same_true_tasks() -> None:
    """The work that they measured is the same."""
    noisy = Simulation(seed=3, noise=0.5, hide_work=True)
    results = compare(two_jobs(), ["fifo", "fair", "flex"], slots=10, simulation=noisy)
    assert len({round(result.metrics["work_seconds"], 6) for result in results}) == 1


def until_a_task_ends(turns: Sequence[Turn]) -> list[Turn]:
    """The turns before the first end of a task."""
    found: list[Turn] = []
    for turn in turns:
        if any(isinstance(event, TaskFinished) for event in turn.events):
            break
        found.append(turn)
    return found


SECONDS = st.sampled_from([0.3, 1.0, 2.5, 40.0])


@given(st.data())
@settings(max_examples=examples(10, slow=100))
def test_before_a_task_ends_no_decision_depends_on_its_work(
    simulated: Callable[..., object], data: st.DataObject
) -> None:
    """The same jobs with any two works: equal logs up to the first end of a task."""
    name = data.draw(st.sampled_from(SCHEDULERS))
    objective = Objective.named(data.draw(st.sampled_from(["response", "stretch", "makespan"])))
    counts = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    logs = []
    for _ in range(2):
        jobs = []
        for number, count in enumerate(counts):
            works = data.draw(SECONDS | st.tuples(*[SECONDS] * count))
            maps = Phase("map", Tasks(count, works))
            last = Phase("reduce", Tasks(1, data.draw(SECONDS)), after=frozenset({"map"}))
            jobs.append(Job(f"j{number}", (maps, last), number % 3 / 10))
        options = {} if name in QUEUEINGS else {"objective": objective}
        run = simulated(jobs, Cluster.of_slots(3), name=name, simulation=HIDDEN, **options)
        logs.append(until_a_task_ends(run.log.turns))
    one, other = sorted(logs, key=len)
    assert [json.dumps(turn.to_plain()) for turn in one] == [
        json.dumps(turn.to_plain()) for turn in other[: len(one)]
    ]
