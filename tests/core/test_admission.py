"""Jobs that are cancelled while they wait for admission to a pool."""

from __future__ import annotations

import pytest

from conftest import CheckedState
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.events import JobCancelled
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
