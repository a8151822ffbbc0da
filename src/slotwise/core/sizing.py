"""Learned memory: what the next task of a type needs at its peak, from the finished ones.

A type is a phase of a program, a command or a function. Its finished tasks are its cases: the
bytes of input, where known, and the peak in bytes. docs/algorithms/memory-sizing.md explains
the rule. The same cases in the same order give the same estimates on every machine: sums are
exact integers, and each of the other numbers is the result of single rounded operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, isqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from slotwise.core.job import Tasks
from slotwise.core.resources import MEMORY, Resources

KEPT = 1000
"""The number of newest cases that are kept of a type; older ones are forgotten."""

CASES_MIN = 10
"""With fewer cases there is no estimate."""

REPLAYED_FROM = 5
"""The candidates are compared on the cases that had at least this many before them."""

PADDING = 32 << 20
"""Bytes added to each estimate: a factor says little about tasks that need almost nothing."""

MARGINS = (1.02, 1.1, 1.3)
"""The factors that are tried for each base."""

FAILURE_COST = 20
"""What an attempt without enough memory costs in the comparison, in mean peaks."""

NEAREST_MIN = 5
"""The nearest cases are at least this many, and 2.5 sqrt n of n."""

LINEAR = 0.9
"""A line is continued beyond the sizes seen if size and peak correlate by more than this."""

BEYOND = 2
"""It is continued up to this multiple of the largest peak."""

RETRY_MARGIN = 1.1
"""The first retry gets this multiple of the largest peak, or more."""

GROWTH = 1.5
"""Each retry gets at least this multiple of what the attempt before it had."""

CAUTION = 0.1
"""Added to the margin of a type by each task that had too little, or would have now."""

FADING = 0.99
"""This part of what was added stays after each task that had enough: about one failure in a
hundred tasks keeps it up."""

SIZES_TRIED = 64
"""The number of sizes for which one estimate for many tasks is made."""

UNKNOWN = -1
"""Stands for the size of a case without one."""

Case = tuple[int | None, int]
"""The bytes of input of a finished task, None if unknown, and its peak in bytes."""


class LearnedMemory:
    """Estimates the memory of the next task of one type.

    It keeps the newest `KEPT` cases, 16 bytes each. With all of them `note` takes about 0.1 ms,
    `estimate` and `after_failure` take less.
    """

    def __init__(self) -> None:
        self._cases: NDArray[np.int64] = np.empty((2, 16), np.int64)  # Sizes, and peaks.
        self._noted = 0  # Cases ever; case k is in column k of a ring.
        self._costs = [0.0] * (3 * len(MARGINS))  # Of each candidate so far.
        self._sums = _Sums()
        self._line: tuple[float, float] | None = None
        self._largest = 0  # The largest peak of the kept cases.
        self._caution = 0.0  # What failures have added to the margin.

    @classmethod
    def of(cls, cases: Iterable[Case]) -> Self:
        """What these cases teach, in their order: the inverse of `plain`.

        Equal to the original unless that has forgotten cases, or attempts have failed, which
        still count in its choice among the candidates and in its margin.
        """
        learned = cls()
        for size, peak in cases:
            learned.note(peak, size)
        return learned

    def plain(self) -> list[Case]:
        """The kept cases, the oldest first."""
        first = max(0, self._noted - KEPT)
        columns = [k % KEPT for k in range(first, self._noted)]
        sizes, peaks = self._cases[:, columns].tolist()
        return [
            (None if size == UNKNOWN else size, peak)
            for size, peak in zip(sizes, peaks, strict=True)
        ]

    def note(
        self, peak_bytes: int, input_bytes: int | None = None, has_failed: bool = False
    ) -> None:
        """Learn from a finished task. Call it in the order in which they end.

        `has_failed`: an attempt of it had too little, whatever it would get now.
        """
        assert peak_bytes >= 0
        assert input_bytes is None or input_bytes >= 0
        if self._noted >= REPLAYED_FROM:
            mean = self._sums.peak / self._count
            candidates = self._candidates(input_bytes)
            if self._noted >= CASES_MIN:
                lacked = has_failed or peak_bytes > self._chosen(input_bytes, candidates)
                self._caution = self._caution + CAUTION if lacked else FADING * self._caution
            for k, allocated in enumerate(candidates):
                is_enough = peak_bytes <= allocated
                vain = allocated - peak_bytes if is_enough else allocated + FAILURE_COST * mean
                self._costs[k] += vain
        self._keep(UNKNOWN if input_bytes is None else input_bytes, peak_bytes)
        self._line = self._fitted()

    def estimate(self, input_bytes: int | None = None) -> int | None:
        """Bytes that a task of this size should get. None with less than `CASES_MIN` cases."""
        if self._noted < CASES_MIN:
            return None
        return self._chosen(input_bytes, self._candidates(input_bytes))

    def estimate_all(self, sizes: Sequence[int]) -> int | None:
        """Bytes that each of these tasks should get alike: what the neediest should.

        Of many different sizes some are tried, evenly by rank, with the largest.
        """
        ranked = sorted(set(sizes), reverse=True)
        tried = ranked[:: -(-len(ranked) // SIZES_TRIED)]
        found = [one for size in tried if (one := self.estimate(size)) is not None]
        return max(found, default=None)

    def after_failure(self, allocated: int) -> int:
        """Bytes for the attempt after one that ran out of `allocated`. Limit it to a host."""
        seen = ceil(RETRY_MARGIN * self._largest) + PADDING if self._noted else 0
        return max(seen, ceil(GROWTH * allocated))

    @property
    def count(self) -> int:
        """The number of finished tasks ever."""
        return self._noted

    @property
    def _count(self) -> int:
        return min(self._noted, KEPT)

    @property
    def _sizes(self) -> NDArray[np.int64]:
        return self._cases[0, : self._count]

    @property
    def _peaks(self) -> NDArray[np.int64]:
        return self._cases[1, : self._count]

    def _chosen(self, size: int | None, candidates: Sequence[int]) -> int:
        """The candidate that has cost least, or a line beyond the sizes seen, with caution."""
        ranked, factor = list(zip(self._costs, candidates, strict=True)), 1 + self._caution
        chosen = ceil(factor * min(ranked)[1])
        if self._continues_line(size):
            by_line = ceil(factor * min(ranked[len(MARGINS) : 2 * len(MARGINS)])[1])
            return max(chosen, min(by_line, BEYOND * self._largest + PADDING))
        return chosen

    def _candidates(self, size: int | None) -> list[int]:
        """Each base by each margin, the bases with the least use of the size first."""
        margin = 1 / self._count
        factors = [factor + margin for factor in MARGINS]
        bases = [self._largest] if self._ignores(size) else self._bases(size or 0)
        found = [ceil(base * factor) + PADDING for base in bases for factor in factors]
        return found * (3 // len(bases))

    def _ignores(self, size: int | None) -> bool:
        """Whether a size says nothing: then all bases are the largest peak."""
        return size is None or self._sums.unsized > 0

    def _bases(self, size: int) -> tuple[float, float, float]:
        """The largest peak; by the line; of the nearest."""
        by_line: float = self._largest
        if self._line is not None:
            slope, above = self._line
            by_line = max(slope * size + above, int(self._peaks.min()))
        nearest = min(self._count, max(NEAREST_MIN, isqrt(25 * self._count // 4)))
        far = np.abs(self._sizes - size)
        within = np.partition(far, nearest - 1)[nearest - 1]  # All at the last distance count.
        return self._largest, by_line, int(self._peaks[far <= within].max())

    def _continues_line(self, size: int | None) -> bool:
        """Whether a size is larger than all seen, of which only the line knows something."""
        if size is None or self._ignores(size) or size <= self._sizes.max():
            return False
        return self._sums.is_linear(self._count)

    def _fitted(self) -> tuple[float, float] | None:
        """Slope and height of the least-squares line, raised above all cases."""
        slope = None if self._sums.unsized else self._sums.slope(self._count)
        if slope is None:
            return None
        return slope, float((self._peaks - slope * self._sizes).max())

    def _keep(self, size: int, peak: int) -> None:
        width = self._cases.shape[1]
        if self._noted == width < KEPT:
            wider = np.empty((2, min(KEPT, 2 * width)), np.int64)
            wider[:, :width] = self._cases
            self._cases = wider
        column = self._noted % KEPT
        if self._noted >= KEPT:
            old_size, old_peak = self._cases[:, column].tolist()
            self._sums.add(old_size, old_peak, -1)
            if old_peak == self._largest:
                self._cases[1, column] = 0
                self._largest = int(self._peaks.max())
        self._cases[0, column] = size
        self._cases[1, column] = peak
        self._largest = max(self._largest, peak)
        self._sums.add(size, peak, 1)
        self._noted += 1


class _Sums:
    """Exact sums over the kept cases, which a least-squares line needs."""

    def __init__(self) -> None:
        self.unsized = self.size = self.peak = 0
        self.size_squares = self.peak_squares = self.products = 0

    def add(self, size: int, peak: int, sign: int) -> None:
        """Add a case, or take it out if the sign is -1."""
        self.unsized += sign * (size == UNKNOWN)
        self.size += sign * size
        self.peak += sign * peak
        self.size_squares += sign * size * size
        self.peak_squares += sign * peak * peak
        self.products += sign * size * peak

    def slope(self, count: int) -> float | None:
        """The slope of the line; None if all sizes are equal."""
        spread = self._size_spread(count)
        return self._joint_spread(count) / spread if spread else None

    def is_linear(self, count: int) -> bool:
        """Whether size and peak correlate by more than `LINEAR`."""
        joint = self._joint_spread(count)
        peak_spread = count * self.peak_squares - self.peak * self.peak
        return joint > 0 and joint**2 > LINEAR**2 * (self._size_spread(count) * peak_spread)

    def _size_spread(self, count: int) -> int:
        return count * self.size_squares - self.size * self.size

    def _joint_spread(self, count: int) -> int:
        return count * self.products - self.size * self.peak


# What the tasks of a phase request of memory: what is stated, or else what is learned.

TYPES_MAX = 1000
"""The number of phases of programs that are known; the one used longest ago is forgotten."""


class LearnedPrograms:
    """What is learned of the phases of each program. O(1)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], LearnedMemory] = {}

    def knows(self, program: str, phase: str) -> bool:
        """Whether a task of it has ended."""
        return (program, phase) in self._known

    def of(self, program: str, phase: str) -> LearnedMemory:
        """That of a phase of a program; of its own for a phase of no program."""
        found = self._known.pop((program, phase), None) or LearnedMemory()
        if program:
            if len(self._known) == TYPES_MAX:
                del self._known[next(iter(self._known))]
            self._known[program, phase] = found
        return found


class MemoryRequest:
    """The memory that each task of a phase requests; it may change when tasks end.

    It is what is stated or estimated. While a task is to run again whose attempt failed with
    more than it had got, it is at least what that task gets.
    """

    __slots__ = ("_learned", "_more", "_stated", "_tasks")

    def __init__(self, stated: Resources, tasks: Tasks, learned: LearnedMemory) -> None:
        """`tasks` have what is estimated from earlier runs; the rest is of this run."""
        self._stated, self._tasks, self._learned = stated, tasks, learned
        self._more: dict[int, int] = {}

    def finished(self, task: int, peak: int) -> bool:
        """A task has ended; whether the request may be another now."""
        has_failed = self._more.pop(task, None) is not None
        self._learned.note(peak, self._tasks.size_of(task), has_failed)
        return has_failed

    @property
    def is_due(self) -> bool:
        """Whether all phases of its type should update their requests.

        Not after each task: the estimate changes less and less.
        """
        count = self._learned.count
        return count == CASES_MIN or not count & (count - 1)

    def failed(self, task: int, got: int, peak: int) -> bool:
        """An attempt has failed; whether it had used more than it got, and now gets more."""
        if peak <= got:
            return False
        self._more[task] = self._learned.after_failure(peak)
        return True

    def needs(self, hosts: Iterable[Resources]) -> Resources:
        """What each task requests beside slots, at most the memory of the largest host.

        As stated if the memory of some of these hosts, which have the rest, is not known.
        """
        stated = self._stated.get(MEMORY, 0)
        estimate = stated or max(self._tasks.memory or 0, self._estimate() or 0)
        wanted = max(estimate, *self._more.values(), 0)
        if wanted == stated:
            return self._stated
        memory = [host.get(MEMORY, 0) for host in hosts]
        if not memory or not all(memory):
            return self._stated
        return Resources({**self._stated, MEMORY: min(wanted, max(memory))})

    def _estimate(self) -> int | None:
        sizes = self._tasks.sizes
        if isinstance(sizes, tuple):
            return self._learned.estimate_all(sizes)
        return self._learned.estimate(sizes)
