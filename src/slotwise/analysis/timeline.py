"""Data for charts of a run: the lane of each attempt, and step functions of slots over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from slotwise.analysis.attempts import Attempt, Follower, JobSpan
from slotwise.analysis.present_hosts import PresentHosts, SlotsOverTime
from slotwise.analysis.unresponsive import UnresponsiveSpan, unresponsive_spans
from slotwise.model.cluster import Cluster
from slotwise.model.decision import GiveUp, Reallocate
from slotwise.model.job import PhaseId
from slotwise.record.log import Log, Turn


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A step function of time: `values[i]` from `times[i]` (seconds) on; 0 before the first."""

    times: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

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
        return cls(tuple(times), tuple(values))

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


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run over time, in seconds and slots. Attempts are in order of their start.

    `cluster` has all hosts that were ever there, `slots` their slots over time, and
    `slots_by_kind` those of each kind.

    `held_by_job` and `held_by_pool` are the slots in use, `allocated_by_job` those that the
    scheduler allocated; entries that are always 0 are left out. `gave_up` is when each failed
    job was given up.
    """

    cluster: Cluster
    slots: SlotsOverTime
    slots_by_kind: Mapping[str, SlotsOverTime]
    jobs: Mapping[str, JobSpan]
    gave_up: Mapping[str, float]
    attempts: tuple[PlacedAttempt, ...]
    held_by_job: Mapping[str, StepFunction]
    held_by_pool: Mapping[str, StepFunction]
    allocated_by_job: Mapping[str, StepFunction]
    unresponsive: tuple[UnresponsiveSpan, ...]
    end: float

    def end_of(self, job: str) -> float:
        """When a job was over: done, given up, or at the end of the record."""
        completion = self.jobs[job].completion
        return self.gave_up.get(job, self.end) if completion is None else completion


def timeline_of(log: Log) -> Timeline:
    """The timeline of a log. O(n log n) for n entries of the log."""
    attempts: list[Attempt] = []
    hosts = PresentHosts(log.header)
    follower = Follower(attempts.append, hosts=hosts)
    for turn in log.turns:
        follower(turn.now, turn.events, turn.decisions)
    attempts += follower.unfinished()
    jobs = follower.jobs
    widths = {
        PhaseId(name, phase.name): phase.slots
        for name, span in jobs.items()
        for phase in span.job.phases
        if phase.slots > 1
    }
    if widths:
        attempts = [a for a in attempts for _ in range(widths.get(a.phase, 1))]
    attempts.sort(key=_order)
    cluster = replace(log.header.cluster, hosts=tuple(hosts.ever.values()))
    kinds = {
        PhaseId(name, phase.name): hosts.slot_kind(span.job, phase.name)
        for name, span in jobs.items()
        for phase in span.job.phases
    }
    lanes = _lanes(attempts, kinds)
    return Timeline(
        cluster=cluster,
        slots=hosts.slots(),
        slots_by_kind={kind: hosts.slots(kind) for kind in cluster.capacity},
        jobs=jobs,
        gave_up=_gave_up(log.turns),
        attempts=tuple(
            PlacedAttempt(attempt, kinds[attempt.phase], lane)
            for attempt, lane in zip(attempts, lanes, strict=True)
        ),
        held_by_job=_held(attempts, {name: name for name in jobs}),
        held_by_pool=_held(attempts, {name: span.job.pool for name, span in jobs.items()}),
        allocated_by_job=_allocated(log.turns),
        unresponsive=unresponsive_spans(log.turns),
        end=max([follower.now, *(attempt.end for attempt in attempts)]),
    )


def _order(attempt: Attempt) -> tuple[float, PhaseId, int, int]:
    return attempt.start, attempt.phase, attempt.task, attempt.attempt


def _lanes(attempts: Sequence[Attempt], kinds: Mapping[PhaseId, str]) -> list[int]:
    """For each attempt, in order of start, the smallest lane that is free on its host.

    A lane exceeds the slots of the host only if the record shows more concurrent attempts than
    slots; the chart should show this.
    """
    ends: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    free: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    opened: defaultdict[tuple[str, str], int] = defaultdict(int)
    lanes = []
    for attempt in attempts:
        place = (attempt.host, kinds[attempt.phase])
        while ends[place] and ends[place][0][0] <= attempt.start:
            heappush(free[place], heappop(ends[place])[1])
        if free[place]:
            lane = heappop(free[place])
        else:
            lane = opened[place]
            opened[place] += 1
        heappush(ends[place], (attempt.end, lane))
        lanes.append(lane)
    return lanes


def _held(attempts: Sequence[Attempt], owners: Mapping[str, str]) -> dict[str, StepFunction]:
    changes: dict[str, list[tuple[float, float]]] = {}
    for attempt in attempts:
        of_owner = changes.setdefault(owners[attempt.phase.job], [])
        of_owner.append((attempt.start, 1.0))
        of_owner.append((attempt.end, -1.0))
    return {owner: StepFunction.of_changes(changes[owner]) for owner in sorted(changes)}


def _allocated(turns: Sequence[Turn]) -> dict[str, StepFunction]:
    values: defaultdict[str, dict[float, float]] = defaultdict(dict)
    last: dict[str, float] = {}
    for turn in turns:
        for decision in turn.decisions:
            if isinstance(decision, Reallocate):
                shares: defaultdict[str, float] = defaultdict(float)
                for phase, slots in decision.slots.items():
                    shares[phase.job] += slots
                for job in last.keys() | shares.keys():
                    if shares.get(job, 0.0) != last.get(job, 0.0):
                        values[job][turn.now] = shares.get(job, 0.0)
                last = {job: slots for job, slots in shares.items() if slots}
    return {
        job: StepFunction(tuple(values[job]), tuple(values[job].values()))
        for job in sorted(values)
    }


def _gave_up(turns: Sequence[Turn]) -> dict[str, float]:
    return {
        decision.job: turn.now
        for turn in turns
        for decision in turn.decisions
        if isinstance(decision, GiveUp)
    }
