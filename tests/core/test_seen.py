"""Totals of finished tasks are counted from the first time that a policy reads them."""

from __future__ import annotations

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.state import State


def test_tasks_count_once_the_totals_were_read() -> None:
    """Of two tasks, only the one that ends after the first reading is counted."""
    state, phase = State(Cluster.of_slots(2)), PhaseId("j", "map")
    state.apply(JobArrived(0.0, Job("j", (Phase("map", Tasks(3, 1.0)),))))
    hosts = list(state.free("task"))[:2]
    for task in range(2):
        host = hosts[task % len(hosts)]
        state.apply(Launch(phase, task, 1, host, Locality.NODE))
    state.at(1.0)
    state.apply(TaskFinished(1.0, phase, 0, 1, 1.0))
    assert state.seen.phases == []
    state.apply(TaskFinished(1.0, phase, 1, 1, 1.0))
    assert state.seen.phases == [phase]
