"""A small job of unstated work beside large ones does not wait for them, simulated and live."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import slotwise
from experiments.endings import Endings
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import read_log
from slotwise.core.loop import run
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

LONGEST = 0.8
"""Seconds of the response of a small job: half a second until a slot is free, and its work."""


def large(name: str = "large", arrival: float = 0.0, pool: str = "default") -> Job:
    """24 calls of 0.5 s: 6 s on two slots."""
    return Job(name, (Phase("call", Tasks(24, 0.5)),), arrival, pool)


def small(name: str = "small", arrival: float = 0.0, pool: str = "default") -> Job:
    """Two calls of 0.05 s."""
    return Job(name, (Phase("call", Tasks(2, 0.05)),), arrival, pool)


def call(number: int) -> Job:
    """One call of 0.5 s of a function that is called often."""
    return Job(f"call {number}", (Phase("call", Tasks(1, 0.5)),), program="often")


def in_phases(name: str, count: int, seconds: float) -> Job:
    """Two phases, one after the other."""
    first = Phase("map", Tasks(count, seconds))
    then = Phase("reduce", Tasks(max(1, count // 2), seconds), after=frozenset({"map"}))
    return Job(name, (first, then))


PLAIN: Mapping[str, Sequence[Job]] = {
    "both at once": [large(), small()],
    "the small one later": [large(), small(arrival=3.2)],
    "behind three large ones": [large("a"), large("b", 0.1), large("c", 0.2), small("s", 0.3)],
    "two small ones": [large(), small("small 1"), small("small 2", 0.1)],
    "a small one every 1.5 s": [large(), *(small(f"small {n}", 1.5 * n) for n in range(1, 5))],
    "a small one with two phases": [large(), in_phases("small", 2, 0.05)],
    "a large one with two phases": [in_phases("large", 24, 0.5), small()],
    "beside jobs of all sizes": [
        large(),
        Job("medium", (Phase("call", Tasks(10, 0.2)),)),
        small(),
        large("second", 1.0),
    ],
    "in another pool": [large(pool="batch"), small(pool="interactive")],
    "in the pool of a large one, beside another pool": [
        large("other", pool="batch"),
        large(pool="interactive"),
        small(pool="interactive"),
    ],
    "after many small ones": [
        *(small(f"small {n}", 0.3 * n) for n in range(8)),
        large("large", 2.4),
        small("small 9", 2.5),
    ],
    "behind many calls of another function": [
        *(call(number) for number in range(60)),
        replace(small(arrival=4.3), program="new"),
    ],
    "where long tasks follow short ones": [
        *(small(f"small {n}", 0.3 * n) for n in range(8)),
        *(large(f"large {n}", 2.4) for n in range(3)),
        small("small 9", 2.5),
    ],
}


def responses(jobs: Sequence[Job], name: str, pools: Sequence[Pool] = ()) -> dict[str, float]:
    """The response of each job on two slots; the scheduler is told no work."""
    cluster = Cluster.of_slots(2)
    backend = SimulatedBackend(cluster, jobs, Simulation(hide_work=True))
    state = State(cluster, pools)
    run(make_scheduler(name), backend, state, endings := Endings(state))
    return {job.id: endings.completed[job.id] - job.arrival for job in jobs}


@pytest.mark.parametrize("name", ["flex", "flowflex-fast"])
@pytest.mark.parametrize("case", PLAIN)
def test_a_small_job_does_not_wait_for_large_ones(case: str, name: str) -> None:
    """Nothing is stated; it is measured as soon as a slot is free, and then goes first."""
    found = responses(PLAIN[case], name)
    late = {job: took for job, took in found.items() if job.startswith("s") and took > LONGEST}
    late.pop("second", None)
    assert not late


def test_a_small_job_does_not_wait_for_a_pool_with_a_guarantee() -> None:
    """One of two slots is guaranteed to the large job; the other one measures."""
    pools = [Pool("batch", slots_min={"task": 1}), Pool("interactive")]
    jobs = [large(pool="batch"), small(pool="interactive")]
    assert responses(jobs, "flex", pools)["small"] <= LONGEST


def sleep_long() -> None:
    """A call of the large job."""
    time.sleep(0.5)


def sleep_shortly() -> None:
    """A call of the small job."""
    time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("pools", [("default", "default"), ("batch", "interactive")])
@pytest.mark.parametrize("pause", [0.0, 0.7])
def test_a_live_session_serves_the_small_job_first(
    tmp_path: Path, pools: tuple[str, str], pause: float
) -> None:
    """Two slots; when it is done, at most four calls of the large job have ended since then."""
    log = tmp_path / "log.jsonl"
    with (
        slotwise.Session(slots=2, scheduler="flex", log=log) as session,
        session.executor(name="large", pool=pools[0]) as large,
        session.executor(name="small", pool=pools[1]) as small,
    ):
        for _ in range(24):
            large.submit(sleep_long)
        time.sleep(pause)
        for one in [small.submit(sleep_shortly) for _ in range(2)]:
            one.result()
    arrived, ended = False, list[str]()
    for turn in read_log(log).turns:
        for event in turn.events:
            arrived = arrived or (isinstance(event, JobArrived) and event.job.id == "small")
            if arrived and isinstance(event, TaskFinished):
                ended.append(event.phase.job)
    last = max(place for place, job in enumerate(ended) if job == "small")
    assert ended[:last].count("large") <= 4
