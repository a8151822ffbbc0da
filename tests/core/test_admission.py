"""Limits of running jobs: of a pool, of users in it, and jobs cancelled while they wait."""

from __future__ import annotations

import pytest

from conftest import CheckedState
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.events import JobCancelled, PoolsChanged
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.pools import Pool
from slotwise.policy.scheduler import make_scheduler


@pytest.mark.parametrize("cancelled", ["b", "c"])
def test_a_cancelled_job_that_waits_lets_no_other_one_in(cancelled: str) -> None:
    """One job runs at a time, before and after the end of a job that never ran."""
    jobs = [Job(name, (Phase("p", Tasks(1, 2.0)),), pool="x") for name in "abcd"]
    cluster, pools = Cluster.of_slots(4), (Pool("x", jobs_max=1),)
    state = CheckedState(cluster, pools)
    backend = SimulatedBackend(cluster, jobs, requests=[JobCancelled(1.0, cancelled)])
    run(make_scheduler("fair"), backend, state, lambda *turn: None)
    first, second = sorted({"b", "c"} - {cancelled} | {"d"})
    assert state.completed == {"a": 2.0, first: 4.0, second: 6.0}
    assert state.failed.keys() == {cancelled}


def finished(jobs: list[Job], pools: list[Pool], user: str | None = None) -> dict[str, float]:
    """When each job is done, of those that are simulated in these pools on four slots."""
    cluster = Cluster.of_slots(4)
    state = CheckedState(cluster, pools, user=user)
    run(make_scheduler("fair"), SimulatedBackend(cluster, jobs), state, lambda *turn: None)
    return state.completed


def job(name: str, user: str | None, pool: str = "x", **rest: object) -> Job:
    """A job of one task of 2 s."""
    return Job(name, (Phase("p", Tasks(1, 2.0)),), pool=pool, user=user, **rest)


def test_a_pool_limits_the_jobs_of_each_user() -> None:
    """Of two jobs of ann one waits; a job of bob that arrives later does not."""
    jobs = [job("a1", "ann"), job("a2", "ann"), job("b", "bob")]
    done = finished(jobs, [Pool("x", jobs_max_per_user=1)])
    assert done == {"a1": 2.0, "b": 2.0, "a2": 4.0}


def test_named_users_have_limits_of_their_own() -> None:
    """Ann may run two jobs, others none: the job of bob waits until the pools are opened."""
    cluster, limits = Cluster.of_slots(4), {"ann": 2, "*": 0}
    jobs = [job("a1", "ann"), job("a2", "ann"), job("b", "bob")]
    state = CheckedState(cluster, [Pool("x", jobs_max_per_user=limits)])
    opened = PoolsChanged(5.0, (Pool("x"),))
    backend = SimulatedBackend(cluster, jobs, requests=[opened])
    run(make_scheduler("fair"), backend, state, lambda *turn: None)
    assert state.completed == {"a1": 2.0, "a2": 2.0, "b": 7.0}


def test_an_outer_pool_counts_the_jobs_of_a_user_in_all_pools_below() -> None:
    """Ann runs one job in both pools together, by priority."""
    pools = [Pool("top", jobs_max_per_user=1), Pool("x", parent="top"), Pool("y", parent="top")]
    jobs = [job("a", "ann"), job("b", "ann"), job("c", "ann", "y", priority="high")]
    assert finished(jobs, pools) == {"a": 2.0, "c": 4.0, "b": 6.0}


def test_jobs_without_a_user_have_no_limit_of_users() -> None:
    """In a simulation, jobs that state no user are those of nobody."""
    jobs = [job("a", None), job("b", None)]
    assert finished(jobs, [Pool("x", jobs_max_per_user=1)]) == {"a": 2.0, "b": 2.0}


def test_jobs_that_state_no_user_are_those_of_the_account() -> None:
    """In live work, a job that names the account counts with those that name nobody."""
    jobs = [job("a", None), job("b", "ann")]
    done = finished(jobs, [Pool("x", jobs_max_per_user=1)], user="ann")
    assert done == {"a": 2.0, "b": 4.0}
