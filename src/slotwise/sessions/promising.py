"""Promises of dates in a session: a job is promised its date before it is accepted, or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import Protocol, TypeVar

from slotwise.core.decisions import RefusePromise
from slotwise.core.errors import PromiseRefused
from slotwise.core.job import Job
from slotwise.jobs.execution import Execution
from slotwise.policy.promises import PromisedJob
from slotwise.sessions.loop_thread import LoopThread

T = TypeVar("T")


class PromisingHost(Protocol):
    """The core of a session, as promises need it."""

    loop: LoopThread

    @property
    def now(self) -> float:
        """Seconds since the session began."""
        ...

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function in the thread of the loop."""
        ...


def promise_jobs(core: PromisingHost, executions: Sequence[Execution]) -> None:
    """Promise the dates that these jobs ask for, all or none. PromiseRefused.

    Until they have arrived the caller keeps others from asking. What else arrives meanwhile may
    begin tasks in room that was counted for them; that lasts milliseconds, and the confidence
    covers it.
    """
    asking = [one for one in executions if one.job.promise is not None and not one.job.promised]
    check_promises(core, [one.job for one in asking])
    for one in asking:
        one.job = replace(one.job, promised=True)


def check_promises(core: PromisingHost, jobs: Sequence[Job]) -> None:
    """PromiseRefused unless all these jobs could be promised the dates that they ask for."""
    asking = [job for job in jobs if job.promise is not None]
    refused = core.ask(lambda: _refused(core, asking)) if asking else None
    if refused is not None:
        raise _error(core, refused)


def _refused(core: PromisingHost, jobs: Sequence[Job]) -> RefusePromise | None:
    """The first refusal; each job is promised its date beside those before it."""
    placed: list[PromisedJob] = []
    for job in jobs:
        found = core.loop.promise(job, placed, core.now)
        if isinstance(found, RefusePromise):
            return found
        placed.append(PromisedJob(job, found))
    return None


def _error(core: PromisingHost, refused: RefusePromise) -> PromiseRefused:
    what = f"job {refused.job!r}: {_shown(core, refused.at)} cannot be promised:"
    if refused.earliest is None:
        return PromiseRefused(f"{what} {refused.reason}", None)
    earliest = _shown(core, refused.earliest)
    return PromiseRefused(
        f"{what} {refused.reason}; the earliest date that could be promised now is {earliest};"
        " ask for that or a later one, or for none",
        _unix(core, refused.earliest),
    )


def _unix(core: PromisingHost, at: float) -> float:
    return time.time() + at - core.now


def _shown(core: PromisingHost, at: float) -> str:
    """The date and time of an instant of the session, not earlier than it."""
    date = datetime.fromtimestamp(ceil(_unix(core, at)))
    return (
        f"{date:%H:%M:%S}"
        if date.date() == datetime.now().date()
        else f"{date:%Y-%m-%d %H:%M:%S}"
    )
