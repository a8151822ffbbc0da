"""The fold of a run: the attempts, the jobs and the hosts of a log, turn by turn.

All that measures a whole log folds over it with a `RunReducer`, which knows what the entries of
a log change. A reader is a subclass that overrides `on_attempt` or `on_done`, and adds handlers
for entries that only it reads: metrics, traffic, the timeline.

    entries -> handlers -> jobs, running attempts, hosts -> on_done, on_attempt of the reader
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from slotwise.core.decisions import Decision, GiveUp, Launch, Locality, Preempt
from slotwise.core.events import (
    Event,
    HostAdded,
    HostChange,
    HostDrained,
    HostRemoved,
    HostResized,
    JobArrived,
    JobChanged,
    OutputLost,
    PhaseClosed,
    TaskAdopted,
    TaskEnded,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    TasksDropped,
)
from slotwise.core.job import Job, PhaseId, Tasks
from slotwise.core.log import Header, Log
from slotwise.insight.present_hosts import PresentHosts

Ending = Literal["done", "failed", "lost", "killed", "unfinished"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task: it held a slot of `host` from `start` to `end`, in seconds.

    `seconds` is its computing time as measured by the backend; it may hold its slot longer.
    `kept` is the work of a killed attempt, in seconds at speed 1, that the next one need not
    repeat. `stop_requested` is set if a pool reclaimed its slot. `memory` is what it held, in
    bytes, if that was learned, and otherwise 0. `peak` is what it used at most, in bytes; 0 if
    that was not measured.
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
    memory: int = 0
    peak: int = field(default=0, repr=False)


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


class RunReducer:
    """Folds the turns of a run, as a record for the loop or from a log. O(entries).

    It stores only the jobs, the running attempts and the changes of hosts, so that a run of
    millions of tasks can be measured without storing them. With `is_brief`, only the totals of
    the tasks of jobs that are over are stored (`without_tasks`), so that memory is bounded by
    the tasks of unfinished jobs.

    handlers  what applies each type of entry; other types have no effect
    """

    def __init__(self, header: Header, is_brief: bool = True) -> None:
        self.hosts = PresentHosts(header)
        self.jobs: dict[str, JobSpan] = {}
        self.now = 0.0
        self._is_brief = is_brief
        self._running: dict[tuple[PhaseId, int], tuple[Launch, float]] = {}
        self._stop_requested: set[tuple[PhaseId, int]] = set()
        self.handlers: dict[type, Callable[[Any], None]] = {
            JobArrived: self.job_arrived,
            JobChanged: self._job_changed,
            TasksAdded: self._tasks_added,
            TasksDropped: self._tasks_dropped,
            TaskAdopted: lambda event: self._launched(event.launch),
            PhaseClosed: self._phase_closed,
            TaskFinished: self._task_ended,
            TaskFailed: self._task_ended,
            TaskKilled: self._task_ended,
            OutputLost: self.output_lost,
            HostAdded: self.hosts_changed,
            HostDrained: self.hosts_changed,
            HostRemoved: self.hosts_changed,
            HostResized: self.hosts.resize,
            Launch: self._launched,
            Preempt: self._preempted,
            GiveUp: self.job_given_up,
        }

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Apply one turn."""
        self.now = now
        handlers = self.handlers
        for entries in (events, decisions):
            for entry in entries:
                handler = handlers.get(type(entry))
                if handler is not None:
                    handler(entry)

    def follow(self, log: Log) -> Self:
        """Apply all turns of a log."""
        for turn in log.turns:
            self(turn.now, turn.events, turn.decisions)
        return self

    def unfinished(self) -> Iterator[Attempt]:
        """Yield the attempts that were running when the record ended."""
        for launch, start in self._running.values():
            place = (launch.phase, launch.task, launch.attempt, launch.host, launch.locality)
            times = (start, self.now, self.now - start)
            yield Attempt(*place, *times, "unfinished", memory=launch.memory)

    # What readers measure.

    def on_attempt(self, attempt: Attempt) -> None:
        """An attempt has ended."""

    def on_done(self, launch: Launch, start: float, event: TaskFinished) -> None:
        """An attempt that was not asked to stop has succeeded.

        Most attempts are of this kind. Readers that need no Attempt override it, because
        creating one takes longer than measuring it.
        """
        self.on_attempt(_attempt(launch, start, event, event.seconds, "done"))

    # Jobs.

    def job_arrived(self, event: JobArrived) -> None:
        """Add a job."""
        job = event.job
        tasks = sum(phase.tasks.count for phase in job.phases)
        growing = sum(phase.grows for phase in job.phases)
        self.jobs[job.id] = JobSpan(job, job.arrival, tasks_left=tasks, growing=growing)
        self.hosts.arrive(job)

    def _job_changed(self, event: JobChanged) -> None:
        span = self.jobs[event.job]
        if event.pool != span.job.pool:
            span.moves += ((event.at, span.job.pool),)
        span.job = event.applied_to(span.job)

    def _tasks_added(self, event: TasksAdded) -> None:
        span = self.jobs[event.phase.job]
        span.job = span.job.grown(event.phase.phase, event.count)
        span.tasks_left += event.count

    def _tasks_dropped(self, event: TasksDropped) -> None:
        span = self.jobs[event.phase.job]
        span.tasks_left -= len(event.tasks)
        self._end_if_done(span, event.at)

    def _phase_closed(self, event: PhaseClosed) -> None:
        span = self.jobs[event.phase.job]
        span.growing -= 1
        self._end_if_done(span, event.at)

    def output_lost(self, event: OutputLost) -> None:
        """Count done tasks as unfinished again."""
        self.jobs[event.phase.job].tasks_left += len(event.tasks)

    def job_given_up(self, decision: GiveUp) -> None:
        """Set the reason for which a job has failed."""
        span = self.jobs[decision.job]
        span.failed = decision.reason
        self._shorten(span)

    def _end_if_done(self, span: JobSpan, at: float) -> None:
        """Set the completion if all tasks are done and no more can be added."""
        if not span.tasks_left and not span.growing and span.failed is None:
            span.completion = at
        self._shorten(span)

    def _shorten(self, span: JobSpan) -> None:
        """Drop the tasks of a job if it is over and holds no slots."""
        is_over = span.completion is not None or span.failed is not None
        if is_over and self._is_brief and not span.running:
            span.job = without_tasks(span.job)

    # Attempts.

    def _launched(self, launch: Launch) -> None:
        self._running[launch.phase, launch.task] = (launch, self.now)
        span = self.jobs[launch.phase.job]
        span.running += 1
        if span.start is None:
            span.start = self.now

    def _preempted(self, decision: Preempt) -> None:
        if decision.pool is not None:
            self._stop_requested.add((decision.phase, decision.task))

    def _task_ended(self, event: TaskFinished | TaskFailed | TaskKilled) -> None:
        key = (event.phase, event.task)
        launch, start = self._running.get(key, (None, 0.0))
        if launch is None or launch.attempt != event.attempt:
            return  # A late or repeated event.
        del self._running[key]
        if launch.host in self.hosts.leaving:
            self.hosts.ended(launch.host, event.at)
        span = self.jobs[event.phase.job]
        span.running -= 1
        stop_requested = key in self._stop_requested
        self._stop_requested.discard(key)
        if isinstance(event, TaskFinished):
            span.tasks_left -= 1
            if stop_requested:
                self.on_attempt(
                    _attempt(launch, start, event, event.seconds, "done", 0.0, True)
                )
            else:
                self.on_done(launch, start, event)
            if not span.tasks_left or span.failed is not None:
                self._end_if_done(span, event.at)
            return
        ending: Ending = "killed"
        kept, held = 0.0, event.at - start
        if isinstance(event, TaskKilled):
            kept = event.kept
        else:
            ending = "lost" if event.lost else "failed"
        self.on_attempt(_attempt(launch, start, event, held, ending, kept, stop_requested))
        self._shorten(span)

    # Hosts.

    def hosts_changed(self, event: HostChange) -> None:
        """Add a host, or remove one at once or when its attempts have ended."""
        name = event.host.name if isinstance(event, HostAdded) else event.host
        running = sum(launch.host == name for launch, _ in self._running.values())
        self.hosts.change(event, running)


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


def _attempt(launch: Launch, start: float, end: TaskEnded, *rest: Any) -> Attempt:
    """The attempt of a launch that has ended; `rest` are the fields after `end`."""
    place = (launch.phase, launch.task, launch.attempt, launch.host, launch.locality)
    attempt = Attempt(*place, start, end.at, *rest)
    peak = 0 if isinstance(end, TaskKilled) else end.peak or 0
    if not launch.memory and not peak:
        return attempt  # The usual case: fast.
    return replace(attempt, memory=launch.memory, peak=peak)
