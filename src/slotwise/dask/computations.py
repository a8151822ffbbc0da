"""The computations of a Dask cluster as jobs, and the changes of their keys as events.

One graph that a client sends is a job. Its phases are the task prefixes of the graph ("sum",
"read-parquet"), whose durations Dask learns. The tasks of a phase are numbered by Dask's
priority, so that the first runnable one is the one that Dask would run first. Of all phases
together, only the runnable tasks are reported that Dask would run first: as many as could get
slots if the job had all of them (`Frontier`).

This module does not import Dask. The gate calls it for keys that begin to wait (`wanted`), for
attempts that end and for keys whose state may have changed. Events are made of these once in
each turn, when the state of each key is known.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

from slotwise.core.decisions import Launch
from slotwise.core.events import (
    Event,
    JobArrived,
    OutputLost,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksBlocked,
    TasksDropped,
    TasksRunnable,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks


class Frontier:
    """The runnable tasks of a computation by rank, which is their place in Dask's order.

    Dask's order keeps few results in memory. The first tasks are offered slots; slotwise
    divides slots among their phases. The others are deferred: otherwise the phases
    that read input would get slots as long as they have tasks, and their results would fill the
    memory of the workers.

    Tasks that only certain workers may run are offered as these have room, whatever their rank:
    otherwise they would keep the room from those of other computations.

    A change costs O(log n) with n tasks, and a search among the offered tasks.
    """

    __slots__ = ("_bound", "_deferred", "_offered", "_order")

    def __init__(self) -> None:
        self._offered: list[int] = []  # sorted
        self._bound: set[int] = set()  # also offered
        self._deferred: set[int] = set()
        self._order: list[int] = []  # a heap of `_deferred`; it may have ranks that have left

    @property
    def offered(self) -> int:
        """The number of tasks that are offered slots."""
        return len(self._offered) + len(self._bound)

    @property
    def deferred(self) -> int:
        """The number of deferred tasks."""
        return len(self._deferred)

    def has_enough(self, most: int) -> bool:
        """Whether `most` tasks are offered in addition to the bound ones, or all that exist."""
        return not self._deferred or len(self._offered) >= most

    def add(self, rank: int) -> None:
        """Add a runnable task, which is deferred until `balance`."""
        self._deferred.add(rank)
        heappush(self._order, rank)

    def bind(self, rank: int) -> None:
        """Offer slots to a task that only certain workers may run."""
        self._bound.add(rank)

    def remove(self, rank: int) -> None:
        """Remove a task that begins to run, or is not runnable any more."""
        if rank in self._bound:
            self._bound.remove(rank)
        elif rank in self._deferred:
            self._deferred.remove(rank)
            if len(self._order) > 2 * len(self._deferred):
                self._order = list(self._deferred)
                heapify(self._order)
        else:
            del self._offered[bisect_left(self._offered, rank)]

    def balance(self, most: int) -> tuple[list[int], list[int]]:
        """Offer the first `most` tasks; returns the ranks that are now offered and withdrawn.

        If more tasks are offered already, their number stays, and they become the first ones.
        """
        offered: list[int] = []
        withdrawn: list[int] = []
        while (rank := self._first()) is not None:
            if len(self._offered) >= most:
                if not self._offered or rank > self._offered[-1]:
                    break
                withdrawn.append(self._offered.pop())
                self.add(withdrawn[-1])
            heappop(self._order)
            self._deferred.remove(rank)
            insort(self._offered, rank)
            offered.append(rank)
        return offered, withdrawn

    def _first(self) -> int | None:
        """The first deferred task, or None."""
        while self._order and self._order[0] not in self._deferred:
            heappop(self._order)
        return self._order[0] if self._order else None


Key = Hashable
"""A key of Dask: a string, or a tuple that begins with one."""

Status = Literal["blocked", "deferred", "runnable", "running", "done"]
"""The status of a task in the gate. For slotwise, a deferred task is blocked."""

Standing = Literal["blocked", "runnable", "bound", "running", "done", "unneeded"]
"""The status of a key in Dask; "unneeded" if it need not be computed any more.

A bound key is runnable, but only on certain workers, which have room for it.
"""


@dataclass(frozen=True, slots=True)
class Submitter:
    """The client that sent a graph, and the properties that the rules give to its job."""

    client: str
    pool: str = "default"
    weight: float = 1.0
    deadline: float | None = None
    """Seconds after the arrival."""
    priority: str = "normal"
    user: str | None = None


class KeyInfo(NamedTuple):
    """A key when its job arrives: its prefix, its estimated seconds if known, its priority."""

    prefix: str
    seconds: float | None
    priority: tuple[float, ...]


@dataclass(slots=True)
class KeyTask:
    """The task of a key, and the number and the begin of its running or last attempt.

    `number` is its place in the phase and `rank` its place in the job, both in Dask's order.
    """

    phase: PhaseId
    number: int
    rank: int
    status: Status = "blocked"
    attempt: int = 0
    began: float = 0.0


@dataclass(slots=True)
class Computation:
    """A job that is not over.

    keys     its keys by phase; `ranked`: all of them in Dask's order
    left     the number of keys that are neither done nor dropped; `running`: that run
    """

    submitter: Submitter
    keys: dict[str, list[Key]]
    ranked: list[Key]
    left: int
    running: int = 0
    frontier: Frontier = field(default_factory=Frontier)


@dataclass(slots=True)
class End:
    """The end of an attempt: its seconds, or None without a result; the reason of a failure."""

    key: Key
    seconds: float | None
    reason: str = ""


@dataclass(slots=True)
class Computations:
    """All computations that are not over, and the changes since the last turn.

    describe    returns the properties of a key
    standing    returns the present status of a key in Dask
    due_after   seconds from the arrival to the deadline of jobs without one, or None
    running     the number of running tasks; `launches`: of all launches so far
    submitters  the first submitter of each key that Dask knows, also if its job is over

    Memory: proportional to the keys that Dask knows. A turn costs O(changes), and O(jobs) when
    there are more slots than in the last turn.
    """

    describe: Callable[[Key], KeyInfo]
    standing: Callable[[Key], Standing]
    due_after: float | None = None
    alive: dict[str, Computation] = field(default_factory=dict)
    tasks: dict[Key, KeyTask] = field(default_factory=dict)
    submitters: dict[Key, Submitter] = field(default_factory=dict)
    running: int = 0
    launches: int = 0
    _count: int = 0
    _slots: int = 0
    _touched: dict[str, None] = field(default_factory=dict)
    _graphs: list[tuple[Submitter, Sequence[Key]]] = field(default_factory=list)
    _wanted: dict[Key, None] = field(default_factory=dict)
    _changed: dict[Key, None] = field(default_factory=dict)
    _ends: list[End] = field(default_factory=list)

    # Changes, recorded until the next turn.

    def graph(self, submitter: Submitter, keys: Iterable[Key]) -> None:
        """Record a graph of a client; its keys that are wanted become a job."""
        self._graphs.append((submitter, list(keys)))

    def wanted(self, key: Key) -> None:
        """Record that a key is to be computed, for the first time or again."""
        task = self.tasks.get(key)
        if task is None:
            self._wanted[key] = None
        else:
            self._changed[key] = None

    def changed(self, key: Key) -> None:
        """Record that the state of a key may have changed."""
        if key in self.tasks:
            self._changed[key] = None

    def forgotten(self, key: Key) -> None:
        """Record that Dask has forgotten a key."""
        self.submitters.pop(key, None)
        self.changed(key)

    def is_settled(self, key: Key, start: str, finish: str) -> bool:
        """Whether a transition of a key in Dask lets no task begin, so that no turn is needed.

        Most transitions are of this kind: a task begins, and its result is released later.
        """
        if finish == "processing":
            return True
        if start == "processing" or finish not in ("released", "forgotten"):
            return False
        task = self.tasks.get(key)
        return task.status == "done" if task else key not in self._wanted

    def knows(self, key: Key) -> bool:
        """Whether a key is a task, or will be one in the next turn."""
        return key in self.tasks or key in self._wanted

    def overlooks(self, key: Key) -> bool:
        """Whether a runnable key is not a task, or is deferred though its job lacks offers."""
        task = self.tasks.get(key)
        if task is None:
            return key not in self._wanted
        return task.status == "deferred" and not self.offers_enough(task.phase.job)

    def offers_enough(self, job: str) -> bool:
        """Whether a job has as many offered tasks as it could have slots, or all it has."""
        computation = self.alive[job]
        return computation.frontier.has_enough(self._slots - computation.running)

    def deferred_of(self, job: str) -> int:
        """The number of deferred tasks of a job."""
        computation = self.alive.get(job)
        return computation.frontier.deferred if computation else 0

    @property
    def pending_keys(self) -> set[Key]:
        """The keys with changes since the last turn."""
        return {*self._wanted, *self._changed, *(end.key for end in self._ends)}

    def jobs_of(self, keys: Iterable[Key]) -> set[str]:
        """The names of the jobs of these keys."""
        return {self.tasks[key].phase.job for key in keys if key in self.tasks}

    def ended(self, end: End) -> None:
        """Record that an attempt of a key has ended, or has left its thread."""
        task = self.tasks.get(end.key)
        if task is not None and task.status == "running":
            self._ends.append(end)
            self._changed[end.key] = None
            self.running -= 1
            self.alive[task.phase.job].running -= 1
            task.status = "blocked" if end.seconds is None else "done"

    def launched(self, launch: Launch, now: float) -> Key:
        """Record that the scheduler launches a task; returns its key."""
        computation = self.alive[launch.phase.job]
        key = computation.keys[launch.phase.phase][launch.task]
        task = self.tasks[key]
        assert task.status == "runnable", "only runnable tasks are launched"
        task.status, task.attempt, task.began = "running", launch.attempt, now
        computation.frontier.remove(task.rank)
        computation.running += 1
        self.running += 1
        self.launches += 1
        return key

    # Events, made in each turn.

    def events(self, now: float, slots: int) -> list[Event]:
        """The changes since the last turn, as events of this instant.

        `slots` is the number of slots that all jobs have together now.
        """
        events: list[Event] = []
        ends, self._ends = self._ends, []
        for end in ends:
            events.append(self._end(now, end))
        changed, self._changed = self._changed, {}
        events += self._changes(now, changed)
        graphs, self._graphs = self._graphs, []
        for submitter, keys in graphs:
            events += self._arrive(now, submitter, keys)
        events += self._arrive_again(now)
        self._wanted = {}  # A new one, since iteration over a dict that was large stays slow.
        return events + self._offers(now, slots)

    def _end(self, now: float, end: End) -> Event:
        task = self.tasks[end.key]
        if end.seconds is not None:
            self._one_less(task.phase.job)
            return TaskFinished(now, task.phase, task.number, task.attempt, end.seconds)
        if end.reason:
            return TaskFailed(now, task.phase, task.number, task.attempt, end.reason)
        return TaskKilled(now, task.phase, task.number, task.attempt)

    def _changes(self, now: float, keys: Iterable[Key]) -> list[Event]:
        """The events that update slotwise's status of these keys to that of Dask.

        Keys that have become runnable are deferred until they are offered.
        """
        found: dict[type, list[KeyTask]] = {}

        for key in keys:
            task, standing = self.tasks.get(key), self.standing(key)
            if task is None:
                if standing in ("blocked", "runnable", "bound"):  # Its job ended in this turn.
                    self._wanted[key] = None
                continue
            self._touched[task.phase.job] = None
            if task.status == "done":
                if standing in ("unneeded", "done", "running"):
                    continue
                found.setdefault(OutputLost, []).append(task)
                self.alive[task.phase.job].left += 1
                task.status = "blocked"
            if task.status == "running" or standing == "running":
                continue
            frontier = self.alive[task.phase.job].frontier
            if standing == "runnable":
                if task.status == "blocked":
                    frontier.add(task.rank)
                    task.status = "deferred"
                continue
            if task.status != "blocked":
                frontier.remove(task.rank)
            if standing == "bound":
                frontier.bind(task.rank)
                if task.status != "runnable":
                    found.setdefault(TasksRunnable, []).append(task)
                task.status = "runnable"
            elif standing == "blocked":
                if task.status == "runnable":
                    found.setdefault(TasksBlocked, []).append(task)
                task.status = "blocked"
            else:
                found.setdefault(TasksDropped, []).append(task)
                task.status = "done"
                del self.tasks[key]
                self._one_less(task.phase.job)
        order = (OutputLost, TasksBlocked, TasksDropped, TasksRunnable)
        return [event for kind in order for event in _events_of(now, kind, found.get(kind, ()))]

    def _offers(self, now: float, slots: int) -> list[Event]:
        """Offer as many tasks of each job as it could have slots; returns the events."""
        touched, self._touched = self._touched, {}
        jobs = self.alive if slots > self._slots else [n for n in touched if n in self.alive]
        self._slots = slots
        events: list[Event] = []
        for job in jobs:
            computation = self.alive[job]
            if not computation.frontier.deferred:
                continue
            offered, withdrawn = computation.frontier.balance(slots - computation.running)
            for rank in withdrawn:
                self.tasks[computation.ranked[rank]].status = "deferred"
            for rank in offered:
                self.tasks[computation.ranked[rank]].status = "runnable"
            for kind, ranks in ((TasksBlocked, withdrawn), (TasksRunnable, offered)):
                tasks = [self.tasks[computation.ranked[rank]] for rank in ranks]
                events += _events_of(now, kind, tasks)
        return events

    def _arrive(self, now: float, submitter: Submitter, keys: Sequence[Key]) -> list[Event]:
        """Create a job of the wanted keys that are not tasks of another job."""
        mine = [key for key in keys if key in self._wanted]
        for key in mine:
            del self._wanted[key]
        known = {key: self.describe(key) for key in mine if self.standing(key) != "unneeded"}
        if not known:
            return []
        self._count += 1
        name = f"{submitter.client}-{self._count}"
        by_phase: dict[str, list[Key]] = {}
        ranked = sorted(known, key=lambda one: known[one].priority)
        for rank, key in enumerate(ranked):
            those = by_phase.setdefault(known[key].prefix, [])
            self.tasks[key] = KeyTask(PhaseId(name, known[key].prefix), len(those), rank)
            self.submitters[key] = submitter
            those.append(key)
        phases = tuple(
            Phase(prefix, Tasks(len(those), known[those[0]].seconds), gated=True)
            for prefix, those in by_phase.items()
        )
        due = self.due_after if submitter.deadline is None else submitter.deadline
        deadline = None if due is None else now + due
        job = Job(
            name,
            phases,
            arrival=now,
            pool=submitter.pool,
            weight=submitter.weight,
            deadline=deadline,
            priority=submitter.priority,
            user=submitter.user,
        )
        self.alive[name] = Computation(submitter, by_phase, ranked, len(known))
        return [JobArrived(now, job), *self._changes(now, ranked)]

    def _arrive_again(self, now: float) -> list[Event]:
        """Create jobs of the keys that are wanted again although their jobs are over.

        They are in the pools of the first submitters of these keys.
        """
        by_submitter: dict[Submitter, list[Key]] = {}
        for key in self._wanted:
            submitter = self.submitters.get(key) or Submitter("again")
            by_submitter.setdefault(submitter, []).append(key)
        return [
            event
            for submitter, keys in by_submitter.items()
            for event in self._arrive(now, submitter, keys)
        ]

    def _one_less(self, job: str) -> None:
        """Count a task of a job as done or not needed; forget the job if it was the last."""
        computation = self.alive[job]
        computation.left -= 1
        if not computation.left:
            del self.alive[job]
            for keys in computation.keys.values():
                for key in keys:
                    task = self.tasks.get(key)
                    if task is not None and task.phase.job == job:
                        del self.tasks[key]


def _events_of(
    now: float,
    kind: type[OutputLost | TasksBlocked | TasksDropped | TasksRunnable],
    tasks: Iterable[KeyTask],
) -> Iterator[Event]:
    """The events of this kind for these tasks, one for each phase."""
    found: dict[PhaseId, list[int]] = {}
    for task in tasks:
        found.setdefault(task.phase, []).append(task.number)
    for phase, numbers in found.items():
        yield kind(now, phase, tuple(sorted(numbers)))
