"""Attempts and jobs from a log: where each attempt ran, from when to when, and how it ended."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from slotwise.core.decisions import Decision, GiveUp, Launch, Locality, Preempt
from slotwise.core.events import (
    Event,
    HostAdded,
    HostChange,
    HostResized,
    JobArrived,
    JobChanged,
    OutputLost,
    PhaseClosed,
    TaskEnded,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    TasksDropped,
)
from slotwise.core.job import Job, PhaseId, Tasks
from slotwise.insight.present_hosts import PresentHosts

Ending = Literal["done", "failed", "lost", "killed", "unfinished"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task: it held a slot of `host` from `start` to `end`, in seconds.

    `seconds` is its computing time as measured by the backend; it may hold its slot longer.
    `kept` is the work of a killed attempt, in seconds at speed 1, that the next one need not
    repeat. `stop_requested` is set if a pool reclaimed its slot.
    """

    phase: PhaseId
    task: int
    attempt: int
    host: str
    locality: Locality
    start: float
    end: float
    seconds: float
    ending: Ending
    kept: float = 0.0
    stop_requested: bool = False


@dataclass(slots=True)
class JobSpan:
    """The times of one job. `completion` is None until it is done; `failed` is the reason.

    `tasks_left` counts its unfinished tasks, `growing` its phases that may get more tasks.
    `moves` are the changes of its pool: the instant, and the pool before it.
    """

    job: Job
    arrival: float
    start: float | None = None
    completion: float | None = None
    failed: str | None = None
    tasks_left: int = 0
    growing: int = 0
    running: int = 0
    moves: tuple[tuple[float, str], ...] = ()

    def pool_at(self, instant: float) -> str:
        """Return its pool at an instant."""
        return next((pool for until, pool in self.moves if instant < until), self.job.pool)

    def end_if_done(self, at: float) -> None:
        """Set the completion if all tasks are done and no more can be added."""
        if not self.tasks_left and not self.growing and self.failed is None:
            self.completion = at


@dataclass(slots=True)
class AttemptTracker:
    """Tracks attempts and jobs turn by turn, as a record for the loop or from a log.

    It stores only the jobs and the running attempts, and passes each ended attempt to
    `on_attempt`, so that a run of millions of tasks can be measured without storing them.
    `on_done`, if given, gets successful attempts that were not asked to stop instead, as
    launch, start and end. Most attempts are of this kind, and creating an Attempt takes longer
    than measuring it. `hosts`, if given, gets the changes of hosts. With `is_brief`, only the
    totals of the tasks of jobs that are over are stored (`without_tasks`), so that memory is
    bounded by the tasks of unfinished jobs.
    """

    on_attempt: Callable[[Attempt], None]
    on_done: Callable[[Launch, float, TaskFinished], None] | None = None
    hosts: PresentHosts | None = None
    is_brief: bool = False
    jobs: dict[str, JobSpan] = field(default_factory=dict)
    now: float = 0.0
    _running: dict[tuple[PhaseId, int], tuple[Launch, float]] = field(default_factory=dict)
    _stop_requested: set[tuple[PhaseId, int]] = field(default_factory=set)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Apply one turn. O(entries)."""
        self.now = now
        for event in events:
            if isinstance(event, JobArrived):
                tasks = sum(phase.tasks.count for phase in event.job.phases)
                growing = sum(phase.grows for phase in event.job.phases)
                span = JobSpan(event.job, event.job.arrival, None, None, None, tasks, growing)
                self.jobs[event.job.id] = span
                if self.hosts is not None:
                    self.hosts.arrive(event.job)
            elif isinstance(event, TaskEnded):
                self._end(event)
            elif isinstance(event, OutputLost):
                self.jobs[event.phase.job].tasks_left += len(event.tasks)
            elif isinstance(event, HostChange):
                self._change_hosts(event)
            elif isinstance(event, HostResized):
                if self.hosts is not None:
                    self.hosts.resize(event)
            elif isinstance(event, TasksDropped):
                span = self.jobs[event.phase.job]
                span.tasks_left -= len(event.tasks)
                span.end_if_done(event.at)
                self._shorten(span)
            elif isinstance(event, TasksAdded):
                span = self.jobs[event.phase.job]
                span.job = span.job.grown(event.phase.phase, event.count)
                span.tasks_left += event.count
            elif isinstance(event, PhaseClosed):
                span = self.jobs[event.phase.job]
                span.growing -= 1
                span.end_if_done(event.at)
                self._shorten(span)
            elif isinstance(event, JobChanged):
                span = self.jobs[event.job]
                if event.pool != span.job.pool:
                    span.moves += ((event.at, span.job.pool),)
                span.job = event.applied_to(span.job)
        for decision in decisions:
            if isinstance(decision, Launch):
                self._running[decision.phase, decision.task] = (decision, now)
                span = self.jobs[decision.phase.job]
                span.running += 1
                if span.start is None:
                    span.start = now
            elif isinstance(decision, GiveUp):
                span = self.jobs[decision.job]
                span.failed = decision.reason
                self._shorten(span)
            elif isinstance(decision, Preempt) and decision.pool is not None:
                self._stop_requested.add((decision.phase, decision.task))

    def unfinished(self) -> Iterator[Attempt]:
        """Yield the attempts that were running when the record ended."""
        for launch, start in self._running.values():
            yield _attempt(launch, start, self.now, self.now - start, "unfinished")

    def _change_hosts(self, event: HostChange) -> None:
        if self.hosts is not None:
            name = event.host.name if isinstance(event, HostAdded) else event.host
            running = sum(launch.host == name for launch, _ in self._running.values())
            self.hosts.change(event, running)

    def _end(self, event: TaskEnded) -> None:
        key = (event.phase, event.task)
        launch, start = self._running.get(key, (None, 0.0))
        if launch is None or launch.attempt != event.attempt:
            return  # A late or repeated event.
        del self._running[key]
        if self.hosts is not None and launch.host in self.hosts.leaving:
            self.hosts.ended(launch.host, event.at)
        span = self.jobs[event.phase.job]
        span.running -= 1
        kept, stop_requested = 0.0, key in self._stop_requested
        if stop_requested:
            self._stop_requested.remove(key)
        ending: Ending
        if isinstance(event, TaskFinished):
            seconds, ending = event.seconds, "done"
            span.tasks_left -= 1
            span.end_if_done(event.at)
            if self.on_done is not None and not stop_requested:
                self.on_done(launch, start, event)
                self._shorten(span)
                return
        elif isinstance(event, TaskKilled):
            seconds, ending, kept = event.at - start, "killed", event.kept
        else:
            seconds, ending = event.at - start, "lost" if event.lost else "failed"
        self.on_attempt(
            _attempt(launch, start, event.at, seconds, ending, kept, stop_requested)
        )
        self._shorten(span)

    def _shorten(self, span: JobSpan) -> None:
        """Drop the tasks of a job if it is over and holds no slots."""
        is_over = span.completion is not None or span.failed is not None
        if is_over and self.is_brief and not span.running:
            span.job = without_tasks(span.job)


def without_tasks(job: Job) -> Job:
    """Return the job with only the number and the total work of its tasks."""
    if all(not p.tasks.blocks and not isinstance(p.tasks.work, tuple) for p in job.phases):
        return job
    phases = []
    for phase in job.phases:
        count, total = phase.tasks.count, phase.tasks.work_total()
        tasks = Tasks(count, None if total is None else total / count)
        phases.append(replace(phase, tasks=tasks))
    return replace(job, phases=tuple(phases))


def _attempt(
    launch: Launch,
    start: float,
    end: float,
    seconds: float,
    ending: Ending,
    kept: float = 0.0,
    stop_requested: bool = False,
) -> Attempt:
    return Attempt(
        launch.phase,
        launch.task,
        launch.attempt,
        launch.host,
        launch.locality,
        start,
        end,
        seconds,
        ending,
        kept,
        stop_requested,
    )


# Attempts as columns of numbers, which need less memory than objects.

ENDINGS: tuple[Ending, ...] = get_args(Ending)


class AttemptColumns:
    """Attempts in about 50 bytes each: a day of a large cluster has millions.

    phases  the distinct phases, to which the numbers in `phase` refer
    """

    def __init__(self) -> None:
        self._phases: dict[PhaseId, int] = {}
        self._hosts: dict[str, int] = {}
        self._start, self._end = array("d"), array("d")
        self._seconds, self._kept = array("d"), array("d")
        self._phase, self._host = array("i"), array("i")
        self._task, self._attempt = array("i"), array("i")
        self._locality, self._ending, self._stop = array("b"), array("b"), array("b")

    def add(self, attempt: Attempt) -> None:
        """Add an attempt."""
        self._phase.append(self._phases.setdefault(attempt.phase, len(self._phases)))
        self._host.append(self._hosts.setdefault(attempt.host, len(self._hosts)))
        self._task.append(attempt.task)
        self._attempt.append(attempt.attempt)
        self._start.append(attempt.start)
        self._end.append(attempt.end)
        self._seconds.append(attempt.seconds)
        self._kept.append(attempt.kept)
        self._locality.append(attempt.locality)
        self._ending.append(ENDINGS.index(attempt.ending))
        self._stop.append(attempt.stop_requested)

    def __len__(self) -> int:
        return len(self._start)

    def __getitem__(self, place: int) -> Attempt:
        return Attempt(
            self.phases[self._phase[place]],
            self._task[place],
            self._attempt[place],
            self._names[self._host[place]],
            Locality(self._locality[place]),
            self._start[place],
            self._end[place],
            self._seconds[place],
            ENDINGS[self._ending[place]],
            self._kept[place],
            bool(self._stop[place]),
        )

    def sort(self) -> None:
        """Sort by start, then by phase, task and number. Call it after the last `add`."""
        self.phases, self._names = list(self._phases), list(self._hosts)
        rank = np.empty(len(self.phases), dtype=np.intc)
        rank[sorted(range(len(rank)), key=self.phases.__getitem__)] = range(len(rank))
        order = np.lexsort(
            (_numbers(self._attempt), _numbers(self._task), rank[self.phase], self.start)
        )
        for name, column in vars(self).items():
            if isinstance(column, array):
                setattr(self, name, array(column.typecode, _numbers(column)[order].tobytes()))

    @property
    def start(self) -> np.ndarray:
        """The start of each attempt."""
        return _numbers(self._start)

    @property
    def end(self) -> np.ndarray:
        """The end of each attempt."""
        return _numbers(self._end)

    @property
    def phase(self) -> np.ndarray:
        """The number of the phase of each attempt."""
        return _numbers(self._phase)

    def hosts(self) -> Iterator[str]:
        """The host of each attempt."""
        return map(self._names.__getitem__, self._host)


def _numbers(column: array[Any]) -> np.ndarray:
    return np.frombuffer(column, dtype=column.typecode)
