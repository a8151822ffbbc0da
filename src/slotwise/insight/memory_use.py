"""The memory that tasks request and use, for each phase of each program.

A job that names no program counts for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slotwise.core.job import Job, PhaseId
from slotwise.core.resources import MEMORY


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What the tasks of a phase requested and used of memory, in bytes.

    owner        the program, or the job if it names none
    requested    the most that an attempt got, or that the phase states
    is_learned   whether this was learned
    peak         the largest peak of an attempt; None if none was measured
    unused_byte_seconds  what successful attempts got above their peaks, and all that stopped
                         ones got, times their seconds; None if no peak was measured
    stopped      the attempts that failed when they had used more than they got
    """

    owner: str
    phase: str
    requested: int
    is_learned: bool
    peak: int | None
    unused_byte_seconds: float | None
    stopped: int

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "owner": self.owner,
            "phase": self.phase,
            "requested_bytes": self.requested,
            "is_learned": self.is_learned,
            "peak_bytes": self.peak,
            "unused_byte_seconds": self.unused_byte_seconds,
            "attempts_stopped": self.stopped,
        }


@dataclass(slots=True)
class _MemorySums:
    requested: int = 0
    is_learned: bool = False
    peak: int | None = None
    held: float = 0.0  # byte-seconds of attempts of known peak
    unused: float = 0.0
    stopped: int = 0


class MemoryMeter:
    """Adds up the attempts of a run. O(1) for each; it keeps a few numbers for each phase."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _MemorySums] = {}

    def arrived(self, job: Job) -> None:
        """A job has arrived: note what its phases state."""
        for phase in job.phases:
            if MEMORY in phase.needs:
                sums = self._of(job, phase.name)
                sums.requested = max(sums.requested, phase.needs[MEMORY])

    def ended(
        self, job: Job, phase: PhaseId, learned: int, seconds: float, peak: int, done: bool
    ) -> None:
        """An attempt that held `learned` bytes, or 0 for what its phase states, has ended.

        `peak` is 0 if it was not measured.
        """
        sums = self._of(job, phase.phase)
        got = learned or job.by_name[phase.phase].needs.get(MEMORY, 0)
        if got > sums.requested:
            sums.requested, sums.is_learned = got, learned > 0
        if not peak:
            return
        sums.peak = max(sums.peak or 0, peak)
        is_stopped = not done and 0 < got < peak
        sums.stopped += is_stopped
        if done or is_stopped:
            sums.held += got * seconds
            sums.unused += (got if is_stopped else max(0, got - peak)) * seconds

    def rows(self) -> tuple[MemoryUse, ...]:
        """The phases of which tasks have requested memory, most unused first."""
        found = [
            MemoryUse(
                *(owner, phase, one.requested, one.is_learned, one.peak),
                None if one.peak is None else one.unused,
                one.stopped,
            )
            for (owner, phase), one in self._sums.items()
            if one.requested
        ]
        found.sort(key=lambda one: (-(one.unused_byte_seconds or 0.0), one.owner, one.phase))
        return tuple(found)

    def unused(self) -> float | None:
        """The part of all requested byte-seconds of known use that was not used."""
        held = sum(one.held for one in self._sums.values())
        return sum(one.unused for one in self._sums.values()) / held if held else None

    def _of(self, job: Job, phase: str) -> _MemorySums:
        return self._sums.setdefault((job.program or job.id, phase), _MemorySums())
