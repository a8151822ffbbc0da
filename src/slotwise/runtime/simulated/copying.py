"""Copying between phases: tasks that began early wait in their slots for missing input.

A task of phase P copies equal parts from the M tasks that P waits for. If these end at
t_1 <= ... <= t_M and copying all parts takes c seconds, a task that began at b has all of them
at max(b + c, max over k of (t_k + c (M - k + 1) / M)): part k cannot be copied before t_k, and
the parts from k on take c (M - k + 1) / M seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from slotwise.model.decision import Launch
from slotwise.model.job import Job, Phase, PhaseId


class CopySource:
    """The input that the tasks of one phase copy. O(1) for each end of a source task.

    `waiting` holds the attempts that copy incomplete input, and when each began.
    """

    __slots__ = ("_copy", "_done", "_latest", "_parts", "waiting")

    def __init__(self, parts: int, copy: float) -> None:
        self._parts, self._copy = parts, copy
        self._done, self._latest = 0, -inf
        self.waiting: list[tuple[float, Launch]] = []

    def part_is_there(self, at: float) -> bool:
        """Count the end of a source task; whether all have ended now."""
        left = self._parts - self._done
        self._latest = max(self._latest, at + self._copy * left / self._parts)
        self._done += 1
        return self._done == self._parts

    def part_is_lost(self) -> None:
        """Count a source task as not done any more."""
        self._done -= 1

    def copied_at(self, begun: float) -> float | None:
        """When a task that began at `begun` has copied all; None while input is missing."""
        if self._done < self._parts:
            return None
        return max(begun + self._copy, self._latest)


class Copying:
    """The sources of all phases that copy, indexed by copying phase and by source phase."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._of: dict[PhaseId, CopySource] = {}
        self._fed_by: dict[PhaseId, list[CopySource]] = {}
        for job in jobs:
            for phase in job.phases:
                if phase.copy > 0 or phase.slow_start < 1:
                    self._add(job, phase)

    def source(self, phase: PhaseId) -> CopySource | None:
        """The source of this phase; None if it copies nothing."""
        return self._of.get(phase)

    def ended(self, at: float, phase: PhaseId) -> list[CopySource]:
        """Count the end of a task of this phase. The sources that are complete now."""
        return [source for source in self._fed_by.get(phase, ()) if source.part_is_there(at)]

    def lost(self, phase: PhaseId) -> None:
        """The output of a task of this phase is lost: what has not copied it waits."""
        for source in self._fed_by.get(phase, ()):
            source.part_is_lost()

    def __bool__(self) -> bool:
        return bool(self._of)

    def _add(self, job: Job, phase: Phase) -> None:
        parts = sum(job.by_name[name].tasks.count for name in phase.after)
        self._of[PhaseId(job.id, phase.name)] = source = CopySource(parts, phase.copy)
        for name in phase.after:
            self._fed_by.setdefault(PhaseId(job.id, name), []).append(source)
