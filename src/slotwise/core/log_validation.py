"""Validation of log files: rejects entries that no run can have written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf
from types import NoneType
from typing import Any, get_args

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import (
    AcceptPromise,
    BreakPromise,
    Decision,
    Enqueue,
    GiveUp,
    GuaranteePromise,
    Launch,
    RefusePromise,
    Release,
    Retry,
)
from slotwise.core.events import (
    Event,
    HostAdded,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
    HostResized,
    JobArrived,
    JobCancelled,
    JobChanged,
    JobsClosed,
    LaunchDropped,
    OutputLost,
    PhaseClosed,
    Request,
    TaskAdopted,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    TasksChanged,
    TasksDropped,
)
from slotwise.core.job import Job, PhaseId


@dataclass(slots=True)
class _Known:
    """The number of tasks of each phase of a job, and of those that are not done.

    `growing` are the phases that may get more.
    """

    counts: dict[str, int]
    tasks_left: int
    growing: set[str]


NUMBERS: dict[str, Any] = {
    "at": (int, float),
    "seconds": (int, float),
    "kept": (int, float),
    "task": int,
    "attempt": int,
    "peak": (int, NoneType),
    "memory": int,
}
"""The numeric fields of entries, and their types."""

NUMBERS_OF = {
    entry: [(name, types) for name, types in NUMBERS.items() if hasattr(entry, name)]
    for entry in (*get_args(Event), Launch)
}
"""The numeric fields of each type of entry."""

OF_TASKS = (TaskFinished, TaskFailed, TaskKilled, TaskAdopted, LaunchDropped)

OF_PROMISES = (AcceptPromise, RefusePromise, GuaranteePromise, BreakPromise)

MAX_OVER = 100_000
"""The number of jobs that are over and still known; late messages may refer to them."""


class LogValidator:
    """Checks a log entry by entry; ValueError for one that no run can have written.

    Times must not decrease, jobs and hosts must be known before entries refer to them, hosts
    that come back must have been unresponsive, and a host is added only if it is not there: a
    drained host may have left. O(1) for each entry, and for each task of a queue. Its memory is
    bounded by the jobs that are alive and the last `over_most` others; events of jobs that were
    over even earlier are not checked.
    """

    def __init__(self, cluster: Cluster, over_most: int = MAX_OVER) -> None:
        self._hosts = set(cluster.by_name)  # those that have ever been present
        self._removed: set[str] = set()
        self._drained: set[str] = set()  # They may have left.
        self._over_most = over_most
        self._jobs: dict[str, _Known] = {}
        self._over: dict[str, None] = {}  # in the order of their ends
        self._has_forgotten = False
        self._silent: set[str] = set()
        self._now = 0.0
        self._is_closed = False

    def check_turn(
        self, now: float, events: Iterable[Event], decisions: Iterable[Decision]
    ) -> None:
        """Check the next turn. ValueError if it is not plausible."""
        if not self._now <= now < inf:
            raise ValueError(f"time is {now!r} after {self._now!r}")
        self._now = now
        for event in events:
            _check_numbers(event)
            self._check_event(event)
        for decision in decisions:
            self._check_decision(decision)

    def _check_event(self, event: Event) -> None:
        if isinstance(event, OF_TASKS):
            if not self._has_forgotten or event.phase.job in self._jobs:
                self._check_task(event.phase, event.task)
            if isinstance(event, TaskAdopted | LaunchDropped):
                self._check_host(event.host)
            elif isinstance(event, TaskFinished):
                self._finish(event.phase.job, 1)
        elif isinstance(event, JobArrived):
            self._arrive(event.job)
        elif isinstance(event, HostLost | HostJoined):
            self._check_host(event.host)
            if isinstance(event, HostLost) == (event.host in self._silent):
                raise ValueError(f"{type(event).__name__} of {event.host!r} repeats its state")
            self._silent ^= {event.host}
        elif isinstance(event, HostAdded):
            self._add(event.host.name)
        elif isinstance(event, HostDrained | HostRemoved):
            self._remove(event)
        elif isinstance(event, HostResized):
            self._check_host(event.host)
        elif isinstance(event, OutputLost | TasksChanged):
            if not self._has_forgotten or event.phase.job in self._jobs:
                for task in event.tasks:
                    self._check_task(event.phase, task)
            if isinstance(event, OutputLost):
                self._finish(event.phase.job, -len(event.tasks))
            elif isinstance(event, TasksDropped):
                self._finish(event.phase.job, len(event.tasks))
        else:
            self._check_request(event)

    def _check_decision(self, decision: Decision) -> None:
        if isinstance(decision, Launch):
            _check_numbers(decision)
            self._check_host(decision.host)
            self._check_task(decision.phase, decision.task)
        elif isinstance(decision, Release):
            if not isinstance(decision.slots, int):
                raise ValueError(f"slots is {decision.slots!r}")
        elif isinstance(decision, OF_PROMISES):
            self._check_job(decision.job)
        elif isinstance(decision, GiveUp):
            self._finish(decision.job, None)
        elif isinstance(decision, Retry):
            for task in decision.tasks:
                self._check_task(decision.phase, task)
        elif isinstance(decision, Enqueue):
            for host, queue in decision.queues.items():
                self._check_host(host)
                for phase, task in queue:
                    self._check_task(phase, task)
            for job in chain(decision.jobs, (phase.job for phase in decision.starts)):
                self._check_job(job)
            for start in decision.starts.values():
                if not (isinstance(start, int | float) and 0 <= start < inf):
                    raise ValueError(f"starts has {start!r}")

    def _arrive(self, job: Job) -> None:
        if job.id in self._jobs:
            raise ValueError(f"job {job.id!r} arrives twice")
        if self._is_closed:
            raise ValueError(f"job {job.id!r} arrives after the last one")
        counts = {phase.name: phase.tasks.count for phase in job.phases}
        self._jobs[job.id] = _Known(
            counts, sum(counts.values()), {phase.name for phase in job.phases if phase.grows}
        )

    def _finish(self, job: str, tasks: int | None) -> None:
        """Count finished tasks of a job (None: all); forget the job that was over first."""
        known = self._jobs.get(job)
        if known is None:
            return
        known.tasks_left -= known.tasks_left if tasks is None else tasks
        if known.tasks_left <= 0 and (tasks is None or not known.growing):
            self._over[job] = None
            if len(self._over) > self._over_most:
                first = next(iter(self._over))
                del self._over[first], self._jobs[first]
                self._has_forgotten = True

    def _remove(self, event: HostDrained | HostRemoved) -> None:
        self._check_host(event.host)
        if event.host in self._removed:
            raise ValueError(f"{type(event).__name__} of {event.host!r}, which was removed")
        if isinstance(event, HostRemoved):
            self._removed.add(event.host)
            self._drained.discard(event.host)
        elif event.host in self._drained:
            raise ValueError(f"host {event.host!r} is drained twice")
        else:
            self._drained.add(event.host)

    def _add(self, host: str) -> None:
        may_have_left = host in self._removed or host in self._drained
        if host in self._hosts and not may_have_left:
            raise ValueError(f"host {host!r} is added, but is present")
        self._hosts.add(host)
        for names in (self._removed, self._drained, self._silent):
            names.discard(host)

    def _check_request(self, event: Request) -> None:
        if isinstance(event, JobCancelled | JobChanged):
            if not self._has_forgotten:
                self._check_job(event.job)
        elif isinstance(event, TasksAdded | PhaseClosed):
            job, phase = event.phase
            known = self._jobs.get(job)
            if known is None and self._has_forgotten:
                return
            if known is None or phase not in known.growing:
                raise ValueError(f"phase {event.phase} does not grow")
            if isinstance(event, TasksAdded):
                known.counts[phase] += event.count
                known.tasks_left += event.count
            else:
                known.growing.remove(phase)
                self._finish(job, 0)
        elif isinstance(event, JobsClosed):
            if self._is_closed:
                raise ValueError("the end of arrivals is repeated")
            self._is_closed = True

    def _check_job(self, job: str) -> None:
        if job not in self._jobs:
            raise ValueError(f"job {job!r} has not arrived")

    def _check_host(self, host: str) -> None:
        if host not in self._hosts:
            raise ValueError(f"host {host!r} has not joined")

    def _check_task(self, phase: PhaseId, task: int) -> None:
        known = self._jobs.get(phase.job)
        count = None if known is None else known.counts.get(phase.phase)
        if count is None:
            raise ValueError(f"phase {phase} has not arrived")
        if not (isinstance(task, int) and 0 <= task < count):
            raise ValueError(f"phase {phase} has no task {task!r}")


def _check_numbers(entry: Event | Launch) -> None:
    for name, types in NUMBERS_OF[type(entry)]:
        value = getattr(entry, name)
        if not (isinstance(value, types) and (value is None or -inf < value < inf)):
            raise ValueError(f"{name} is {value!r}")
