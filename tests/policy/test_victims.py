"""Who gives slots that are taken back: the pool, then the job, most above its share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Preempt
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption

Simulate = Callable[..., object]
TAKES = Preemption(fair_after=5.0, fraction=1.0)


def job(name: str, pool: str, count: int, arrival: float = 0.0, **how: object) -> Job:
    """A job of one phase of long tasks."""
    return Job(name, (Phase("p", Tasks(count, 1000.0), **how),), arrival, pool)


def stopped(log: Log, until: float = 999.0) -> list[str]:
    """The jobs whose tasks were asked to stop, in order."""
    return [
        decision.phase.job
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Preempt) and turn.now < until
    ]


def test_pools_most_above_their_shares_give_and_all_evenly(simulated: Simulate) -> None:
    """Of 12 slots a, b and c hold 6, 4 and 2, of shares of 3 each. The newest task is c's.

    Pool t takes 3: two of a before b is as much above its share, then one of the newer ones.
    """
    pools = [*(Pool(name) for name in "abc"), Pool("t", preemption=TAKES)]
    jobs = [
        job("x", "a", 6),
        job("y", "b", 4, 1.0),
        job("z", "c", 2, 2.0),
        job("more", "c", 1, 3.0),
        job("u", "t", 3, 3.0),
    ]
    log = simulated(jobs, Cluster.of_slots(12), pools).log
    assert stopped(log) == ["x", "x", "y"]


def test_the_job_most_above_its_share_gives(simulated: Simulate) -> None:
    """Job first holds 6 of pool a, second 2; each should have 2 when t takes 4."""
    pools = [Pool("a"), Pool("t", preemption=TAKES)]
    jobs = [job("first", "a", 6), job("second", "a", 9, 1.0), job("u", "t", 9, 3.0)]
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    assert stopped(log) == ["first"] * 4


def test_phases_of_a_job_count_together(simulated: Simulate) -> None:
    """Job two holds 3 and 3 slots, job one 2; three are taken, all of them from two."""
    phases = (Phase("p", Tasks(3, 1000.0)), Phase("q", Tasks(3, 1000.0)))
    pools = [Pool("a"), Pool("t", preemption=TAKES)]
    jobs = [
        Job("two", phases, 0.0, "a"),
        job("one", "a", 2, 1.0),
        job("u", "t", 3, 3.0),
    ]
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    assert stopped(log) == ["two"] * 3


def test_a_pool_that_holds_its_share_takes_nothing_for_a_pool_in_it(
    simulated: Simulate,
) -> None:
    """Of 12 slots pool a holds its 4, all in a2. Pool b is above its share, since c lacks.

    Pool a1 takes its two slots from a2, although b holds more above its share.
    """
    pools = [
        *[Pool("a"), Pool("b"), Pool("c")],
        Pool("a1", parent="a", preemption=TAKES),
        Pool("a2", 3.0, parent="a"),
    ]
    jobs = [
        job("x", "a2", 4),
        job("y", "b", 8),
        job("z", "c", 4, 3.0),
        job("u", "a1", 1, 3.0),
    ]
    log = simulated(jobs, Cluster.of_slots(12), pools).log
    assert stopped(log) == ["x"]


@pytest.mark.parametrize(
    ("takes", "slots_min", "given"),
    [(Preemption(least_after=5.0), 2, ["narrow", "narrow"]), (TAKES, 0, [])],
)
def test_a_job_at_its_share_gives_for_a_min_share_only(
    simulated: Simulate, takes: Preemption, slots_min: int, given: list[str]
) -> None:
    """Job gang is above its share, but too large to be stopped: pool a would lack slots."""
    pools = [Pool("a"), Pool("t", slots_min=slots_min, preemption=takes)]
    jobs = [
        job("gang", "a", 4, gang=True),
        job("narrow", "a", 2),
        job("u", "t", 2, 3.0),
    ]
    log = simulated(jobs, Cluster.of_slots(6), pools).log
    assert stopped(log) == given
