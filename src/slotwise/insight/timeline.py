"""Data for charts of a run: lanes of attempts, and step functions of slots over time."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from typing import overload

import numpy as np

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Adjust, GiveUp, Reallocate
from slotwise.core.events import Event, TaskFinished, TasksAdded
from slotwise.core.job import PhaseId
from slotwise.core.log import Log, Turn
from slotwise.insight.attempts import Attempt, AttemptColumns, AttemptTracker, JobSpan
from slotwise.insight.present_hosts import (
    PresentHosts,
    SlotsOverTime,
    UnresponsiveSpan,
    unresponsive_spans,
)


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


class PlacedAttempts(Sequence[PlacedAttempt]):
    """Attempts in order of their start, each created on access.

    columns  the attempts
    kinds    the kind of slot of each phase, by its number
    """

    def __init__(
        self, columns: AttemptColumns, kinds: Sequence[str], lanes: Sequence[int]
    ) -> None:
        self.columns, self.kinds, self._lanes = columns, kinds, lanes

    def __len__(self) -> int:
        return len(self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacedAttempts) and list(self) == list(other)

    @overload
    def __getitem__(self, index: int) -> PlacedAttempt: ...

    @overload
    def __getitem__(self, index: slice) -> list[PlacedAttempt]: ...

    def __getitem__(self, index: int | slice) -> PlacedAttempt | list[PlacedAttempt]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        kind = self.kinds[self.columns.phase[index]]
        return PlacedAttempt(self.columns[index], kind, self._lanes[index])


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run over time, in seconds and slots. Attempts are in order of their start.

    `cluster` has all hosts that were present at any time, `slots` their slots over time, and
    `slots_by_kind` those of each kind.

    `held_by_job` and `held_by_pool` are the slots in use, `allocated_by_job` those that the
    scheduler allocated, without entries that are always 0. `gave_up` is the instant at which
    each failed job was given up. `idle` has, for jobs with growing phases, the (start, end) of
    each time in which all added tasks were done; the end is infinite if no more were added.
    """

    cluster: Cluster
    slots: SlotsOverTime
    slots_by_kind: Mapping[str, SlotsOverTime]
    jobs: Mapping[str, JobSpan]
    gave_up: Mapping[str, float]
    attempts: PlacedAttempts
    held_by_job: Mapping[str, StepFunction]
    held_by_pool: Mapping[str, StepFunction]
    allocated_by_job: Mapping[str, StepFunction]
    unresponsive: tuple[UnresponsiveSpan, ...]
    end: float
    idle: Mapping[str, Sequence[tuple[float, float]]]

    def end_of(self, job: str) -> float:
        """When a job was done or given up, or the end of the record."""
        completion = self.jobs[job].completion
        return self.gave_up.get(job, self.end) if completion is None else completion


def timeline_of(log: Log) -> Timeline:
    """The timeline of a log. O(n log n) for n entries of the log, which is read once.

    An attempt that occupies several slots is in several lanes.
    """
    columns = AttemptColumns()
    hosts = PresentHosts(log.header)

    def add(attempt: Attempt) -> None:
        job = tracker.jobs[attempt.phase.job].job
        for _ in range(job.by_name[attempt.phase.phase].slots):
            columns.add(attempt)

    tracker = AttemptTracker(add, hosts=hosts, is_brief=True)
    gave_up: dict[str, float] = {}
    allocated, idle = _Allocated(), _Idle(tracker.jobs)
    turns = _each_turn(log.turns, tracker, gave_up, allocated, idle)
    unresponsive = unresponsive_spans(turns)  # Consumes the turns: a log is read once.
    for attempt in tracker.unfinished():
        add(attempt)
    columns.sort()
    jobs = tracker.jobs
    cluster = replace(log.header.cluster, hosts=tuple(hosts.by_name.values()))
    stated = [jobs[phase.job].job for phase in columns.phases]
    kinds = [
        hosts.slot_kind(job, phase.phase)
        for job, phase in zip(stated, columns.phases, strict=True)
    ]
    return Timeline(
        cluster=cluster,
        slots=hosts.slots(),
        slots_by_kind={kind: hosts.slots(kind) for kind in cluster.capacity},
        jobs=jobs,
        gave_up=gave_up,
        attempts=PlacedAttempts(columns, kinds, _lanes(columns, kinds)),
        held_by_job=_held(columns, [job.id for job in stated]),
        held_by_pool=_held(columns, [job.pool for job in stated]),
        allocated_by_job=allocated.by_job(),
        unresponsive=unresponsive,
        end=max(tracker.now, float(columns.end.max(initial=0.0))),
        idle=idle.spans(),
    )


def _each_turn(
    turns: Iterable[Turn],
    tracker: AttemptTracker,
    gave_up: dict[str, float],
    allocated: _Allocated,
    idle: _Idle,
) -> Iterator[Turn]:
    """Pass each turn to all collectors, and yield it."""
    for turn in turns:
        tracker(turn.now, turn.events, turn.decisions)
        idle.follow(turn.events)
        for decision in turn.decisions:
            if isinstance(decision, GiveUp):
                gave_up[decision.job] = turn.now
            elif isinstance(decision, Reallocate):
                allocated.reallocate(turn.now, decision.slots)
            elif isinstance(decision, Adjust):
                allocated.adjust(turn.now, decision.slots)
        yield turn


def _lanes(columns: AttemptColumns, kinds: Sequence[str]) -> array[int]:
    """For each attempt, in order of start, the smallest lane that is free on its host.

    A lane exceeds the slots of the host only if the record has more concurrent attempts than
    slots, which the chart should show.
    """
    ends: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    free: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    opened: defaultdict[tuple[str, str], int] = defaultdict(int)
    lanes = array("i")
    spans = zip(columns.hosts(), columns.phase, columns.start, columns.end, strict=True)
    for host, phase, start, end in spans:
        place = (host, kinds[phase])
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


def _held(columns: AttemptColumns, owners: Sequence[str]) -> dict[str, StepFunction]:
    """The slots that each owner held. `owners` has the owner of each phase."""
    names = sorted(set(owners))
    number = {name: place for place, name in enumerate(names)}
    of_phase = np.array([number[owner] for owner in owners], dtype=np.intc)
    of_attempt = of_phase[columns.phase]
    order = np.argsort(of_attempt, kind="stable")
    edges = np.searchsorted(of_attempt[order], range(len(names) + 1))
    held = {}
    for name, first, last in zip(names, edges, edges[1:], strict=False):
        mine = order[first:last]
        held[name] = StepFunction.of_spans(columns.start[mine], columns.end[mine])
    return held


class _Idle:
    """Collects the times in which jobs with growing phases had no unfinished tasks."""

    def __init__(self, jobs: Mapping[str, JobSpan]) -> None:
        """`jobs` are those of the tracker, which must get each turn first."""
        self._jobs = jobs
        self._since: dict[str, float] = {}
        self._spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def follow(self, events: Iterable[Event]) -> None:
        """Record jobs whose last task has ended or whose next task was added."""
        for event in events:
            if isinstance(event, TaskFinished | TasksAdded):
                job = event.phase.job
                if self._jobs[job].growing and not self._jobs[job].tasks_left:
                    self._since[job] = event.at
                elif job in self._since:
                    self._spans[job].append((self._since.pop(job), event.at))

    def spans(self) -> dict[str, list[tuple[float, float]]]:
        """Return the times of each job, at the end of the log."""
        for job, since in self._since.items():
            self._spans[job].append((since, inf))
        return dict(self._spans)


class _Allocated:
    """Collects the slots that the scheduler allocated to each job."""

    def __init__(self) -> None:
        self._times: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._values: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._last: dict[str, dict[str, float]] = {}  # by job and phase, without zeros

    def reallocate(self, now: float, slots: Mapping[PhaseId, float]) -> None:
        """Record the slots of all phases: 0 for those not in `slots`."""
        shares: dict[str, dict[str, float]] = {job: {} for job in self._last}
        for (job, phase), share in slots.items():
            if share:
                shares.setdefault(job, {})[phase] = share
        self._record(now, shares)

    def adjust(self, now: float, slots: Mapping[PhaseId, float]) -> None:
        """Record the slots of some phases; other phases keep theirs."""
        shares: dict[str, dict[str, float]] = {}
        for (job, phase), share in slots.items():
            of_job = shares.setdefault(job, dict(self._last.get(job, {})))
            of_job.pop(phase, None)
            if share:
                of_job[phase] = share
        self._record(now, shares)

    def _record(self, now: float, shares: Mapping[str, dict[str, float]]) -> None:
        for job, of_job in shares.items():
            slots = sum(of_job.values())
            if slots != sum(self._last.get(job, {}).values()):
                times, values = self._times[job], self._values[job]
                if times and times[-1] == now:
                    times.pop()
                    values.pop()
                times.append(now)
                values.append(slots)
            if of_job:
                self._last[job] = of_job
            else:
                self._last.pop(job, None)

    def by_job(self) -> dict[str, StepFunction]:
        """The slots of each job over time."""
        return {
            job: StepFunction(self._times[job], self._values[job])
            for job in sorted(self._times)
        }
