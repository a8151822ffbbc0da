"""Data for charts of a run: lanes of attempts, and step functions of slots over time."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import Any, get_args, overload

import numpy as np

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, GiveUp, Locality
from slotwise.core.events import (
    Event,
    HostChange,
    HostJoined,
    HostLost,
    HostRemoved,
    TaskFinished,
    TasksAdded,
)
from slotwise.core.job import PhaseId
from slotwise.core.log import Header, Log
from slotwise.core.resources import MEMORY
from slotwise.insight.present_hosts import SlotsOverTime
from slotwise.insight.reducer import Attempt, Ending, JobSpan, RunReducer

_Change = tuple[float, float]
"""An instant, and the change of a step function then."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A step function of time: `values[i]` from `times[i]` (seconds) on; 0 before the first."""

    times: Sequence[float] = ()
    values: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Store the numbers compactly."""
        for name in ("times", "values"):
            object.__setattr__(self, name, array("d", getattr(self, name)))

    @classmethod
    def of_changes(cls, changes: Iterable[tuple[float, float]]) -> StepFunction:
        """The running sum of (time, change) pairs in any order. O(n log n)."""
        total: defaultdict[float, float] = defaultdict(float)
        for time, change in changes:
            total[time] += change
        times, values, value = [], [], 0.0
        for time in sorted(total):
            if total[time]:
                value += total[time]
                times.append(time)
                values.append(value)
        return cls(times, values)

    @classmethod
    def of_spans(cls, start: np.ndarray, end: np.ndarray) -> StepFunction:
        """The number of spans that have started and not ended. O(n log n)."""
        times = np.unique(np.concatenate([start, end]))
        started = np.searchsorted(np.sort(start), times, side="right")
        value = started - np.searchsorted(np.sort(end), times, side="right")
        is_change = np.diff(value, prepend=0) != 0
        return cls(
            array("d", times[is_change].tobytes()),
            array("d", value[is_change].astype(float).tobytes()),
        )

    def means(self, edges: Sequence[float]) -> list[float]:
        """The mean value between consecutive `edges`, which must increase strictly."""
        areas = np.diff(self._integral(np.asarray(edges, dtype=float)))
        means: list[float] = (areas / np.diff(edges)).tolist()
        return means

    def area(self, start: float, end: float) -> float:
        """The integral from `start` to `end`: slot-seconds, where the values are slots."""
        below, above = self._integral(np.asarray([start, end], dtype=float))
        return float(above - below)

    def _integral(self, at: np.ndarray) -> np.ndarray:
        if not self.times:
            return np.zeros(len(at))
        times, values = np.asarray(self.times), np.asarray(self.values)
        until = np.concatenate([[0.0], np.cumsum(np.diff(times) * values[:-1])])
        place = np.searchsorted(times, at, side="right") - 1
        known = np.maximum(place, 0)
        integral: np.ndarray = until[known] + (at - times[known]) * values[known]
        return np.where(place < 0, 0.0, integral)


@dataclass(frozen=True, slots=True)
class PlacedAttempt:
    """An attempt and a slot that it holds: `lane` (from 0) of its host and kind of slot.

    An attempt of a task that occupies several slots is placed once for each of them.
    """

    attempt: Attempt
    slot_kind: str
    lane: int


ENDINGS: tuple[Ending, ...] = get_args(Ending)

COLUMNS = dict(zip((field.name for field in fields(Attempt)), "iiiibdddbdbqq", strict=True))
"""The type of the numbers of each field; phases, hosts and endings are numbered."""


class PlacedAttempts(Sequence[PlacedAttempt]):
    """Attempts in about 73 bytes each: a day of a large cluster has millions.

    Objects are created on access, which needs `place` first. Then they are in order of start.

    phases  the distinct phases, to which the numbers of the column `phase` refer
    kinds   the kind of slot of each of these phases
    """

    def __init__(self) -> None:
        self._phases: dict[PhaseId, int] = {}
        self._hosts: dict[str, int] = {}
        self._columns: dict[str, array[Any]] = {
            name: array(code) for name, code in COLUMNS.items()
        }
        self._appends = [column.append for column in self._columns.values()]
        self._lanes = array("i")

    def add(self, attempt: Attempt) -> None:
        """Add an attempt."""
        row = (
            self._phases.setdefault(attempt.phase, len(self._phases)),
            attempt.task,
            attempt.attempt,
            self._hosts.setdefault(attempt.host, len(self._hosts)),
            attempt.locality,
            attempt.start,
            attempt.end,
            attempt.seconds,
            ENDINGS.index(attempt.ending),
            attempt.kept,
            attempt.stop_requested,
            attempt.memory,
            attempt.peak,
        )
        for append, value in zip(self._appends, row, strict=True):
            append(value)

    def place(self, kind_of: Callable[[PhaseId], str]) -> None:
        """Sort by start, phase, task and number, and find the lanes. Call it once, last."""
        self.phases, self._names = list(self._phases), list(self._hosts)
        self.kinds = [kind_of(phase) for phase in self.phases]
        rank = np.empty(len(self.phases), dtype=np.intc)
        rank[sorted(range(len(rank)), key=self.phases.__getitem__)] = range(len(rank))
        keys = (self.column("attempt"), self.column("task"), rank[self.column("phase")])
        order = np.lexsort((*keys, self.column("start")))
        for name, column in self._columns.items():
            self._columns[name] = array(column.typecode, self.column(name)[order].tobytes())
        self._lanes = self._free_lanes()

    def column(self, name: str) -> np.ndarray:
        """The numbers of a field of all attempts."""
        return np.frombuffer(self._columns[name], dtype=COLUMNS[name])

    def __len__(self) -> int:
        return len(self._lanes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacedAttempts) and list(self) == list(other)

    @overload
    def __getitem__(self, index: int) -> PlacedAttempt: ...

    @overload
    def __getitem__(self, index: slice) -> list[PlacedAttempt]: ...

    def __getitem__(self, index: int | slice) -> PlacedAttempt | list[PlacedAttempt]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        row: dict[str, Any] = {name: column[index] for name, column in self._columns.items()}
        kind = self.kinds[row["phase"]]
        row["phase"], row["host"] = self.phases[row["phase"]], self._names[row["host"]]
        row["locality"], row["ending"] = Locality(row["locality"]), ENDINGS[row["ending"]]
        row["stop_requested"] = bool(row["stop_requested"])
        return PlacedAttempt(Attempt(**row), kind, self._lanes[index])

    def held(self, owners: Sequence[str]) -> dict[str, StepFunction]:
        """The slots that each owner held. `owners` has the owner of each phase."""
        names = sorted(set(owners))
        number = {name: place for place, name in enumerate(names)}
        of_phase = np.array([number[owner] for owner in owners], dtype=np.intc)
        of_attempt = of_phase[self.column("phase")]
        start, end = self.column("start"), self.column("end")
        order = np.argsort(of_attempt, kind="stable")
        edges = np.searchsorted(of_attempt[order], range(len(names) + 1))
        spans = (order[first:last] for first, last in pairwise(edges))
        return {
            name: StepFunction.of_spans(start[mine], end[mine])
            for name, mine in zip(names, spans, strict=True)
        }

    def requested(self, name: str, amounts: Sequence[int]) -> dict[str, StepFunction]:
        """What the tasks of each job held of a resource; `amounts` by phase, for each task."""
        amount = np.array(amounts, dtype=float)[self.column("phase")]
        if name == MEMORY:
            learned = self.column("memory")
            amount = np.where(learned > 0, learned, amount)
        changes: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for phase, *change in self._changes(amount):
            changes[self.phases[phase].job] += change
        return {job: StepFunction.of_changes(mine) for job, mine in sorted(changes.items())}

    def used_memory(self) -> StepFunction:
        """The sum of the peaks of the tasks that ran, where they were measured, in bytes."""
        changes = self._changes(self.column("peak"))
        return StepFunction.of_changes(one for _, *change in changes for one in change)

    def _changes(self, amount: np.ndarray) -> Iterator[tuple[int, _Change, _Change]]:
        """The phase, and the changes at start and end, of each attempt with an amount."""
        names = ("phase", "task", "attempt")
        rows = np.stack([self.column(name) for name in names], axis=1)
        # The rows of an attempt with several slots are adjacent.
        is_new = np.any(np.diff(rows, axis=0, prepend=-1) != 0, axis=1)
        start, end = self._columns["start"], self._columns["end"]
        for row in np.flatnonzero(is_new & (amount > 0)).tolist():
            held = float(amount[row])
            yield self._columns["phase"][row], (start[row], held), (end[row], -held)

    def _free_lanes(self) -> array[int]:
        """For each attempt, the smallest lane that is free on its host.

        A lane exceeds the slots of the host only if the record has more concurrent attempts
        than slots, which the chart should show.
        """
        ends: defaultdict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
        free: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        opened: defaultdict[tuple[int, str], int] = defaultdict(int)
        lanes = array("i")
        names = ("host", "phase", "start", "end")
        spans = zip(*(self._columns[name] for name in names), strict=True)
        for host, phase, start, end in spans:
            place = (host, self.kinds[phase])
            while ends[place] and ends[place][0][0] <= start:
                heappush(free[place], heappop(ends[place])[1])
            if free[place]:
                lane = heappop(free[place])
            else:
                lane = opened[place]
                opened[place] += 1
            heappush(ends[place], (end, lane))
            lanes.append(lane)
        return lanes


@dataclass(frozen=True, slots=True)
class UnresponsiveSpan:
    """A host was unresponsive from `start` to `end` (seconds; None: the end of the run)."""

    host: str
    start: float
    end: float | None


@dataclass(frozen=True, slots=True)
class ResourceOverTime:
    """The amount of a resource that the hosts have, and what running tasks requested of it.

    Of memory, `used` is the sum of the peaks of the running tasks that were measured.
    """

    total: SlotsOverTime
    held_by_job: Mapping[str, StepFunction]
    used: StepFunction = StepFunction()


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run over time, in seconds and slots. Attempts are in order of their start.

    `cluster` has all hosts that were present at any time, `slots` their slots over time, and
    `slots_by_kind` those of each kind.

    `held_by_job` and `held_by_pool` are the slots in use, without entries that are always 0.
    `gave_up` is the instant at which each failed job was given up. `idle` has, for jobs with
    growing phases, the (start, end) of each time in which all added tasks were done; the end is
    infinite if no more were added. `resources` are those beside slots that tasks requested.
    """

    cluster: Cluster
    slots: SlotsOverTime
    slots_by_kind: Mapping[str, SlotsOverTime]
    jobs: Mapping[str, JobSpan]
    gave_up: Mapping[str, float]
    attempts: PlacedAttempts
    held_by_job: Mapping[str, StepFunction]
    held_by_pool: Mapping[str, StepFunction]
    unresponsive: tuple[UnresponsiveSpan, ...]
    end: float
    idle: Mapping[str, Sequence[tuple[float, float]]]
    resources: Mapping[str, ResourceOverTime]

    def end_of(self, job: str) -> float:
        """When a job was done or given up, or the end of the record."""
        completion = self.jobs[job].completion
        return self.gave_up.get(job, self.end) if completion is None else completion


def timeline_of(log: Log) -> Timeline:
    """The timeline of a log. O(n log n) for n entries of the log, which is read once.

    An attempt that occupies several slots is in several lanes.
    """
    return TimelineReducer(log.header).follow(log).timeline(log.header.cluster)


_TASKS_CHANGED = (TaskFinished, TasksAdded)


class TimelineReducer(RunReducer):
    """Collects the attempts, and the changes of jobs and hosts, that charts show.

    `timeline`, at the end, has all of it; until then, a job can be asked for.
    """

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._attempts = PlacedAttempts()
        self._gave_up: dict[str, float] = {}
        self._idle_since: dict[str, float] = {}
        self._idle: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._unresponsive: list[UnresponsiveSpan] = []
        self._lost: dict[str, int] = {}  # unresponsive hosts: the places of their spans
        self.handlers |= {
            HostLost: self._host_lost,
            HostJoined: self._host_is_back,
        }

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Apply one turn. A job is idle only if it still is when all events are applied."""
        super().__call__(now, events, decisions)
        for event in events:
            if isinstance(event, _TASKS_CHANGED):
                job = event.phase.job
                span = self.jobs[job]
                if span.growing and not span.tasks_left:
                    self._idle_since[job] = event.at
                elif job in self._idle_since:
                    self._idle[job].append((self._idle_since.pop(job), event.at))

    def is_idle(self, job: str) -> bool:
        """Whether all tasks that were added to a job are done, and more may come."""
        return job in self._idle_since

    def end_of(self, job: str) -> float | None:
        """When a job was done or given up; None if it is not over."""
        return self._gave_up.get(job, self.jobs[job].completion)

    def on_attempt(self, attempt: Attempt) -> None:
        """Add an attempt for each slot that it held."""
        job = self.jobs[attempt.phase.job].job
        for _ in range(job.by_name[attempt.phase.phase].slots):
            self._attempts.add(attempt)

    def job_given_up(self, decision: GiveUp) -> None:
        """Note the instant, too."""
        super().job_given_up(decision)
        self._gave_up[decision.job] = self.now

    def hosts_changed(self, event: HostChange) -> None:
        """Change the hosts; one that is removed is not unresponsive any more."""
        super().hosts_changed(event)
        if isinstance(event, HostRemoved):
            self._host_is_back(event)

    def _host_lost(self, event: HostLost) -> None:
        self._lost[event.host] = len(self._unresponsive)
        self._unresponsive.append(UnresponsiveSpan(event.host, event.at, None))

    def _host_is_back(self, event: HostJoined | HostRemoved) -> None:
        place = self._lost.pop(event.host, None)
        if place is not None:
            span = self._unresponsive[place]
            self._unresponsive[place] = replace(span, end=event.at)

    def timeline(self, cluster: Cluster) -> Timeline:
        """The timeline, at the end of the log. Call it once, with the cluster of the header."""
        attempts, hosts, jobs = self._attempts, self.hosts, self.jobs
        for attempt in self.unfinished():
            self.on_attempt(attempt)
        attempts.place(lambda phase: hosts.slot_kind(jobs[phase.job].job, phase.phase))
        for job, since in self._idle_since.items():
            self._idle[job].append((since, inf))
        cluster = replace(cluster, hosts=tuple(hosts.by_name.values()))
        phases = [jobs[phase.job].job.by_name[phase.phase] for phase in attempts.phases]
        requested = {name for phase in phases for name in phase.needs}
        requested |= {MEMORY} if attempts.column("memory").any() else set()
        return Timeline(
            cluster=cluster,
            slots=hosts.slots(),
            slots_by_kind={kind: hosts.slots(kind) for kind in cluster.capacity},
            jobs=jobs,
            gave_up=self._gave_up,
            attempts=attempts,
            held_by_job=attempts.held([phase.job for phase in attempts.phases]),
            held_by_pool=attempts.held([jobs[p.job].job.pool for p in attempts.phases]),
            unresponsive=tuple(self._unresponsive),
            end=max(self.now, float(attempts.column("end").max(initial=0.0))),
            idle=dict(self._idle),
            resources={name: self._resource(name) for name in sorted(requested)},
        )

    def _resource(self, name: str) -> ResourceOverTime:
        attempts, jobs = self._attempts, self.jobs
        needs = [jobs[p.job].job.by_name[p.phase].needs.get(name, 0) for p in attempts.phases]
        used = attempts.used_memory() if name == MEMORY else StepFunction()
        return ResourceOverTime(
            self.hosts.resource(name), attempts.requested(name, needs), used
        )
