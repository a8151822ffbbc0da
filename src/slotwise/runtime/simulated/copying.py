"""Copying between phases: tasks that began early wait, in their slots, for what is not there.

What a task of phase P copies comes in equal parts from the M tasks that P waits for. If those
end at t_1 <= ... <= t_M and the whole takes c seconds to copy, a task that began at b has all
of it at max(b + c, max over k of (t_k + c (M - k + 1) / M)): part k cannot be copied before
t_k, nor what comes behind it sooner than that takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from slotwise.model.decision import Launch
from slotwise.model.job import Job, Phase, PhaseId


class CopySource:
    """What the tasks of one phase copy, as the tasks that it comes from end. O(1) an end.

    `waiting` are the attempts that copy while not all is there, and when each began.
    """

    __slots__ = ("_copy", "_done", "_latest", "_parts", "waiting")

    def __init__(self, parts: int, copy: float) -> None:
        self._parts, self._copy = parts, copy
        self._done, self._latest = 0, -inf
        self.waiting: list[tuple[float, Launch]] = []

    def part_is_there(self, at: float) -> bool:
        """A task that it comes from has ended; whether all have now."""
        left = self._parts - self._done
        self._latest = max(self._latest, at + self._copy * left / self._parts)
        self._done += 1
        return self._done == self._parts

    def copied_at(self, begun: float) -> float | None:
        """When a task that began then has all of it; None while some of it is not there."""
        if self._done < self._parts:
            return None
        return max(begun + self._copy, self._latest)


class Copying:
    """The sources of all phases that copy, by the phases that copy and by those that write."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._of: dict[PhaseId, CopySource] = {}
        self._fed_by: dict[PhaseId, list[CopySource]] = {}
        for job in jobs:
            for phase in job.phases:
                if phase.copy > 0 or phase.slow_start < 1:
                    self._add(job, phase)

    def source(self, phase: PhaseId) -> CopySource | None:
        """What this phase copies, None if nothing."""
        return self._of.get(phase)

    def ended(self, at: float, phase: PhaseId) -> list[CopySource]:
        """A task of this phase has ended: the sources that are complete now."""
        return [source for source in self._fed_by.get(phase, ()) if source.part_is_there(at)]

    def __bool__(self) -> bool:
        return bool(self._of)

    def _add(self, job: Job, phase: Phase) -> None:
        parts = sum(job.by_name[name].tasks.count for name in phase.after)
        self._of[PhaseId(job.id, phase.name)] = source = CopySource(parts, phase.copy)
        for name in phase.after:
            self._fed_by.setdefault(PhaseId(job.id, name), []).append(source)
