"""What a session shows of its jobs; all functions are called in the thread of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from slotwise.analysis.explain import explain_state
from slotwise.analysis.explanation import Explanation
from slotwise.report.session_table import MAX_ROWS, ShownJob, ShownSession
from slotwise.runtime.state import State
from slotwise.sessions.loop_thread import LoopThread


def names_left(state: State) -> Iterator[str]:
    """The jobs that are not over, in order of arrival."""
    yield from (phases[0].job.id for phases in state.jobs_left())
    yield from state.awaiting_admission


def explained(loop: LoopThread, job: str) -> Explanation:
    """The slots that a job holds, and why."""
    phases = loop.state.phases_of(job)
    pool = phases[0].job.pool if phases else ""
    return explain_state(loop.state, job, pool, loop.scheduler_name)


def shown_job(loop: LoopThread, job: str) -> ShownJob:
    """A job with the numbers of its tasks."""
    phases = loop.state.phases_of(job)
    tasks = sum(phase.phase.tasks.count for phase in phases)
    running = sum(len(phase.launches) for phase in phases)
    return ShownJob(explained(loop, job), tasks, running)


def shown_session(loop: LoopThread, is_open: bool, over: int, waiting: int) -> ShownSession:
    """The whole session; `over` and `waiting` are numbers of jobs and calls."""
    state, kinds = loop.state, loop.state.cluster.capacity
    slots = sum(state.capacity(kind) for kind in kinds)
    free = sum(sum(state.free(kind).values()) for kind in kinds)
    return ShownSession(
        loop.scheduler_name,
        is_open,
        slots,
        max(0, slots - free),
        [shown_job(loop, job) for job in islice(names_left(state), MAX_ROWS)],
        sum(1 for _ in names_left(state)),
        over,
        waiting,
    )
