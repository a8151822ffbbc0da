"""Preemption within limits of pools on resources beside slots (`resources_max`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Preempt, WouldPreempt
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.replay import replay_log

LARGE = Cluster((Host("h", {"task": 32}, resources={"memory": 99, "gpu": 8}),))
"""A host on which a limit of a pool is reached long before anything is lacking there."""

AT_ONCE, LATER = Preemption(0.0), Preemption(least_after=5.0)


def job(name: str, pool: str, count: int, at: float = 0.0, **phase: Any) -> Job:
    """A job of long tasks; what is not a key of a phase is what each requests."""
    given = ("slots", "gang", "kind", "slots_min")
    keys = {key: phase.pop(key) for key in given if key in phase}
    phases = (Phase("p", Tasks(count, 1000.0), resources=phase, **keys),)
    return Job(name, phases, at, pool=pool)


def lab(*below: Pool, **most: Any) -> list[Pool]:
    """A pool with a limit, and these below it."""
    return [Pool("lab", resources_max=most), *[replace(one, parent="lab") for one in below]]


def stops(log: Log, kind: type = Preempt) -> list[tuple[float, str, str | None]]:
    """When tasks are stopped, those of which jobs, and for which pools."""
    return [
        (turn.now, one.phase.job, one.pool)
        for turn in log.turns
        for one in turn.decisions
        if isinstance(one, kind)
    ]


def counted(log: Log) -> Counter[tuple[float, str, str | None]]:
    """The same, how often."""
    return Counter(stops(log))


Run = Callable[..., Any]


def test_a_sibling_gives_what_a_min_share_lacks(simulated: Run) -> None:
    """After the time-out, as much as is lacking, and not what runs beside the limited pool."""
    pools = [*lab(Pool("a"), Pool("b", slots_min=3, preemption=LATER), memory=8), Pool("c")]
    jobs = [
        job("a", "a", 20, memory=1),
        job("c", "c", 20, memory=1),
        job("b", "b", 20, 1.0, memory=1),
    ]
    log = simulated(jobs, LARGE, pools).log
    assert counted(log) == {(6.0, "a", "b"): 3}
    assert replay_log(log).is_identical


def test_a_share_is_taken_back_after_its_own_time(simulated: Run) -> None:
    """Of 8 GiB each of two pools has a half: one that lacks more than a part of it takes it."""
    taking = Preemption(fair_after=7.0, fraction=0.6)
    pools = lab(Pool("a"), Pool("b", preemption=taking), memory=8)
    jobs = [job("a", "a", 20, memory=1), job("b", "b", 20, 1.0, memory=1)]
    assert counted(simulated(jobs, LARGE, pools).log) == {(8.0, "a", "b"): 4}


def test_larger_tasks_take_from_several(simulated: Run) -> None:
    """Two tasks of 3 take six of 1, none of which is stopped in vain."""
    pools = lab(Pool("a"), Pool("b", slots_min=2, preemption=AT_ONCE), memory=8)
    jobs = [job("a", "a", 20, memory=1), job("b", "b", 9, 1.0, memory=3)]
    run = simulated(jobs, LARGE, pools)
    assert counted(run.log) == {(1.0, "a", "b"): 6}


def test_smaller_tasks_take_no_more_than_needed(simulated: Run) -> None:
    """A task of 4 makes room for three of 1."""
    pools = lab(Pool("a"), Pool("b", slots_min=3, preemption=AT_ONCE), memory=8)
    jobs = [job("a", "a", 20, memory=4), job("b", "b", 9, 1.0, memory=1)]
    assert counted(simulated(jobs, LARGE, pools).log) == {(1.0, "a", "b"): 1}


def test_tasks_without_the_resource_are_not_stopped(simulated: Run) -> None:
    """They are newer, but free nothing of it. Nor are those of an inner limit that has room."""
    pools = [
        *lab(Pool("b", slots_min=2, preemption=AT_ONCE), Pool("a"), gpu=2),
        Pool("d", parent="a"),
    ]
    jobs = [
        job("gpus", "d", 4, gpu=1),
        job("other", "d", 20, 0.5, memory=1),
        job("b", "b", 2, 1.0, gpu=1),
    ]
    assert counted(simulated(jobs, LARGE, pools).log) == {(1.0, "gpus", "b"): 2}


def test_the_pool_most_above_its_share_gives(simulated: Run) -> None:
    """Its newest tasks, down to its share; a pool with `preemptible: false` gives nothing."""
    below = (
        Pool("much", slots_min=1),
        Pool("less", slots_min=3),
        Pool("kept", preemptible=False),
        Pool("b", slots_min=2, preemption=AT_ONCE),
    )
    jobs = [
        job("much", "much", 4, memory=1),
        job("less", "less", 4, memory=1),
        job("kept", "kept", 4, memory=1),
        job("b", "b", 2, 1.0, memory=1),
    ]
    log = simulated(jobs, LARGE, lab(*below, memory=12)).log
    assert {one for _, one, _ in stops(log)} <= {"much", "less"}
    assert len(stops(log)) == 2


def test_nothing_is_stopped_in_vain(simulated: Run) -> None:
    """Those who hold the limit hold their min shares, or may not be stopped."""
    for keys in ({"slots_min": 8}, {"preemptible": False}):
        below = (Pool("a", **keys), Pool("b", slots_min=8, preemption=AT_ONCE))
        jobs = [job("a", "a", 8, memory=1), job("b", "b", 8, 1.0, memory=1)]
        log = simulated(jobs, LARGE, lab(*below, memory=8)).log
        assert len(stops(log)) == (4 if "slots_min" in keys else 0)


def test_limits_of_several_pools_are_reached(simulated: Run) -> None:
    """Tasks in the inner pool free both; what the outer one still lacks comes from anywhere."""
    pools = [
        Pool("top", resources_max={"memory": 10}),
        Pool("lab", parent="top", resources_max={"gpu": 2}),
        Pool("a", parent="lab"),
        Pool("b", parent="lab", slots_min=2, preemption=AT_ONCE),
        Pool("c", parent="top"),
    ]
    jobs = [
        job("a", "a", 2, gpu=1, memory=1),
        job("c", "c", 8, memory=1),
        job("b", "b", 2, 1.0, gpu=1, memory=3),
    ]
    log = simulated(jobs, LARGE, pools).log
    assert counted(log) == {(1.0, "a", "b"): 2, (1.0, "c", "b"): 4}


def test_with_a_grace_all_that_is_lacking_is_asked_for_at_once(simulated: Run) -> None:
    """What becomes free meanwhile is kept: no other task of the pool begins."""
    taking = Preemption(least_after=0.0, grace=10.0)
    pools = lab(Pool("a"), Pool("b", slots_min=3, preemption=taking), memory=8)
    jobs = [job("a", "a", 20, memory=1), job("b", "b", 3, 1.0, memory=2)]
    simulation = Simulation()
    run = simulated(jobs, LARGE, pools, simulation=simulation)
    assert counted(run.log) == {(1.0, "a", "b"): 6}
    assert run.state.completed["b"] == pytest.approx(1011.0)


def test_a_host_that_is_full_gives_both(simulated: Run) -> None:
    """Where slots are lacking, too, the task that is stopped is one in the limited pool."""
    cluster = Cluster((Host("h", {"task": 8}, resources={"memory": 99}),))
    pools = [*lab(Pool("a"), Pool("b", slots_min=2, preemption=AT_ONCE), memory=4), Pool("c")]
    jobs = [
        job("a", "a", 4, memory=1),
        job("c", "c", 4, memory=1),
        job("b", "b", 2, 1.0, memory=1),
    ]
    assert counted(simulated(jobs, cluster, pools).log) == {(1.0, "a", "b"): 2}


def test_slots_come_from_elsewhere_if_they_are_not_there(simulated: Run) -> None:
    """The limit is held on a host where the task may not run: each gives a part."""

    def on(name: str, count: int, host: str, at: float = 0.0, memory: int = 1) -> Job:
        phase = Phase("p", Tasks(count, 1000.0), resources={"memory": memory}, hosts=(host,))
        return Job(name, (phase,), at, pool=name)

    sizes = {"h0": 3, "h1": 2}
    hosts = [Host(one, {"task": n}, resources={"memory": 99}) for one, n in sizes.items()]
    pools = lab(Pool("a"), Pool("b", slots_min=1, preemption=AT_ONCE), memory=2)
    jobs = [on("a", 2, "h0"), on("c", 2, "h1"), on("d", 9, "h0"), on("b", 1, "h1", 1.0)]
    log = simulated(jobs, Cluster(tuple(hosts)), [*pools, Pool("c"), Pool("d")]).log
    assert counted(log) == {(1.0, "a", "b"): 1, (1.0, "c", "b"): 1}


def test_a_gang_gets_room_for_all_or_nothing_is_stopped(simulated: Run) -> None:
    """Three tasks of 2 within 8."""
    below = (Pool("a"), Pool("b", slots_min=3, preemption=AT_ONCE))
    jobs = [job("a", "a", 20, memory=1), job("b", "b", 3, 1.0, memory=2, gang=True)]
    assert counted(simulated(jobs, LARGE, lab(*below, memory=8)).log) == {(1.0, "a", "b"): 6}
    kept = (replace(below[0], slots_min=4), below[1])
    assert not stops(simulated(jobs, LARGE, lab(*kept, memory=8)).log)


def test_tasks_on_other_kinds_of_slots_give(simulated: Run) -> None:
    """A limit holds over all kinds."""
    cluster = Cluster((Host("h", {"map": 9, "reduce": 9}, resources={"memory": 99}),))
    pools = lab(Pool("a"), Pool("b", slots_min={"reduce": 2}, preemption=AT_ONCE), memory=4)
    jobs = [
        job("a", "a", 9, memory=1, kind="map"),
        job("b", "b", 2, 1.0, memory=1, kind="reduce"),
    ]
    assert counted(simulated(jobs, cluster, pools).log) == {(1.0, "a", "b"): 2}


def test_jobs_take_from_each_other_within_the_limit_of_their_pool(simulated: Run) -> None:
    """With `jobs_after`, also within the limit of the pool itself."""
    pools = [Pool("a", resources_max={"memory": 8}, preemption=Preemption(jobs_after=3.0))]
    jobs = [job("first", "a", 20, memory=1), job("later", "a", 20, 1.0, memory=1)]
    assert counted(simulated(jobs, LARGE, pools).log) == {(4.0, "first", "a"): 4}


def test_a_dry_run_says_what_it_would_stop(simulated: Run) -> None:
    """And stops nothing."""
    taking = Preemption(least_after=0.0, dry_run=True)
    pools = lab(Pool("a"), Pool("b", slots_min=3, preemption=taking), memory=8)
    jobs = [job("a", "a", 8, memory=1), job("b", "b", 20, 1.0, memory=1)]
    log = simulated(jobs, LARGE, pools).log
    assert not stops(log)
    assert Counter(stops(log, WouldPreempt)) == {(1.0, "a", "b"): 3}


def test_a_max_share_of_slots_and_a_limit_are_reached_together(simulated: Run) -> None:
    """The pool above has neither slots nor memory left: both come from within it."""
    pools = [
        Pool("lab", slots_max=6, resources_max={"memory": 8}),
        Pool("a", parent="lab"),
        Pool("b", parent="lab", slots_min=2, preemption=AT_ONCE),
        Pool("c"),
    ]
    jobs = [
        job("large", "a", 2, memory=3),
        job("small", "a", 4),
        job("more", "a", 2, 0.5, memory=2),
        job("c", "c", 9, 0.6),
        job("b", "b", 2, 1.0, memory=2),
    ]
    log = simulated(jobs, LARGE, pools).log
    assert counted(log) == {(1.0, "large", "b"): 1, (1.0, "small", "b"): 1}
