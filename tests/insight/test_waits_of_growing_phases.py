"""A job whose phase may get more tasks waits only while it has some that are not done."""

from __future__ import annotations

import slotwise
from slotwise import Cluster, Job, Phase, Tasks
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.events import JobChanged, PhaseClosed, Request, TasksAdded
from slotwise.core.job import PhaseId
from slotwise.core.log import Header, Log
from slotwise.core.loop import initial_state, turn
from slotwise.policy.scheduler import make_scheduler

CALL = PhaseId("calls", "call")
JOBS = (
    Job("calls", (Phase("call", Tasks(1, 1.0), grows=True),)),
    Job("other", (Phase("map", Tasks(10, 1.0)),)),
)


def log_of(*requests: Request) -> Log:
    """The log of the two jobs on one slot under fifo, which serves the calls first."""
    header = Header(
        backend="simulated",
        scheduler={"name": "fifo"},
        objective={"penalty": "response", "aggregate": "sum"},
        cluster=Cluster.of_slots(1),
        pools=(),
        jobs_expected=len(JOBS),
    )
    log, state = Log(header), initial_state(header)
    backend = SimulatedBackend(header.cluster, JOBS, requests=requests)
    scheduler = make_scheduler(**header.scheduler)
    while not state.is_done:
        turn(scheduler, backend, state, log, backend.wait(until=state.next_wakeup()))
    return log


def test_a_job_without_tasks_does_not_wait() -> None:
    """It has none from 1 s to 5.5 s, and none from 7 s until it is closed."""
    log = log_of(TasksAdded(5.5, CALL, 1), PhaseClosed(9.0, CALL))
    waits = slotwise.explain(log, "calls")
    assert [(wait.start, wait.end) for wait in waits] == [(5.5, 6.0)]


def test_a_job_without_tasks_does_not_wait_when_it_is_moved() -> None:
    """Its wait begins with its next task, in the new pool."""
    moved = JobChanged(3.0, "calls", "normal", 1.0, "new", None)
    log = log_of(moved, TasksAdded(5.5, CALL, 1), PhaseClosed(9.0, CALL))
    waits = slotwise.explain(log, "calls")
    assert [(wait.pool, wait.start, wait.end) for wait in waits] == [("new", 5.5, 6.0)]


def test_the_reason_of_a_job_without_tasks_is_that_more_may_come() -> None:
    """Until its phase is closed, it is not done."""
    log = log_of(TasksAdded(5.5, CALL, 1), PhaseClosed(9.0, CALL))
    (phase,) = slotwise.explain(log, "calls", 3.0).phases
    assert (phase.running, phase.pending, phase.done) == (0, 0, 1)
    assert phase.why == "all its tasks are done; more may come"
