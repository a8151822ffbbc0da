"""Explanations of a job that was moved to another pool name the pool of the time."""

from __future__ import annotations

import pytest

import slotwise
from slotwise import Cluster, Job, Phase, Pool, Tasks
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.events import JobChanged
from slotwise.core.log import Header, Log
from slotwise.core.loop import initial_state, run
from slotwise.policy.scheduler import make_scheduler


@pytest.fixture
def log() -> Log:
    """On one slot, job late waits behind first, in pool a until 4 s and then in pool b."""
    jobs = [Job(name, (Phase("map", Tasks(1, 10.0)),), at, "a") for name, at in ARRIVALS]
    header = Header(
        backend="simulated",
        scheduler={"name": "fair"},
        objective={"penalty": "response", "aggregate": "sum"},
        cluster=Cluster.of_slots(1),
        pools=(Pool("a"), Pool("b")),
        jobs_expected=None,
    )
    moved = [JobChanged(4.0, "late", "normal", 1.0, "b", None)]
    moved.append(JobChanged(6.0, "first", "high", 1.0, "a", None))
    moved.append(JobChanged(12.0, "first", "high", 1.0, "b", None))
    log = Log(header)
    backend = SimulatedBackend(header.cluster, jobs, requests=moved)
    run(make_scheduler("fair"), backend, initial_state(header), log)
    return log


ARRIVALS = (("first", 0.0), ("late", 1.0))


def test_a_wait_is_told_for_each_pool(log: Log) -> None:
    """With the pools that the holders were in then; a change without a move changes nothing."""
    waits = slotwise.explain(log, "late")
    assert [(wait.pool, wait.start, wait.end) for wait in waits] == [
        ("b", 4.0, 10.0),
        ("a", 1.0, 4.0),
    ]
    holders = [[(h.job, h.pool, h.slot_seconds) for h in wait.holders] for wait in waits]
    assert holders == [[("first", "a", 6.0)], [("first", "a", 3.0)]]


@pytest.mark.parametrize(
    ("at", "pool"), [(0.5, "a"), (1.0, "a"), (3.9, "a"), (4.0, "b"), (11.0, "b")]
)
def test_an_instant_is_told_with_the_pool_of_then(log: Log, at: float, pool: str) -> None:
    """Before its arrival, the pool in which the job will be."""
    assert slotwise.explain(log, "late", at).pool == pool
