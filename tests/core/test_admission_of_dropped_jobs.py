"""Jobs that end while they wait for admission, because none of their tasks is needed."""

from __future__ import annotations

from slotwise.core.cluster import Cluster
from slotwise.core.events import JobArrived, TasksDropped
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool
from slotwise.core.state import State


def test_a_dropped_job_takes_no_room() -> None:
    """Of three jobs in a pool of one, the second is dropped: the first stays alone, the third
    begins only after it.
    """
    state = State(Cluster.of_slots(2), [Pool("default", jobs_max=1)])
    state.at(0.0)
    for name in ("first", "second", "third"):
        state.apply(JobArrived(0.0, Job(name, (Phase("p", Tasks(2), gated=True),))))
    state.apply(TasksDropped(0.0, PhaseId("second", "p"), (0, 1)))
    state.check()
    assert state.awaiting_admission == ["third"]
    assert not state.phases_of("second")
    state.apply(TasksDropped(0.0, PhaseId("first", "p"), (0, 1)))
    state.check()
    assert state.awaiting_admission == []
    assert [phases[0].job.id for phases in state.jobs_left()] == ["third"]
