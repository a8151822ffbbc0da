"""The malleable packing scheme (FLEX 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slotwise.core.costs import Floats, Ints
from slotwise.policy.compiled import FLOATS, INTS, Numbers, compiled, has_numba

__all__ = ["Packer", "Packing", "Pieces", "completions", "pack"]

Values = Sequence[float] | Floats
Order = Sequence[int] | Ints
Number = TypeVar("Number", bound=float)

COMPILED_FROM = 5_000
"""Number of jobs from which one packing is worth machine code: Python takes milliseconds below.
"""

COMPILED_FROM_ALL = 1_000_000
"""Jobs times packings from which many packings are: Python takes a second for these."""


class Packer:
    """Packs the jobs of one problem in any order; create it once for many orders.

    Requires work > 0, 0 <= min_share <= max_share, 0 < max_share <= capacity and
    sum(min_share) <= capacity, which `Malleable` ensures. An order contains every job once, the
    most urgent first.

    packings  the approximate number of orders
    is_fast   whether to use machine code; None uses it for large problems if numba (extra
              `fast`) is installed. The results are identical to the bit. ImportError without
              numba
    """

    def __init__(
        self,
        capacity: float,
        work: Values,
        min_share: Values,
        max_share: Values,
        packings: float = 1,
        is_fast: bool | None = None,
    ) -> None:
        if is_fast is None:
            count = len(work)
            is_large = count >= COMPILED_FROM or count * packings >= COMPILED_FROM_ALL
            is_fast = is_large and has_numba()
        self.is_fast = is_fast
        shares = [np.ascontiguousarray(v, dtype=float) for v in (work, min_share, max_share)]
        self._min_share = shares[1]
        jobs = *shares, *_ends_at_least(shares[0], shares[1])
        self._sweep: Callable[..., int] = compiled(sweep, SWEEP) if is_fast else sweep
        self._capacity = float(capacity)
        self._jobs: list[Numbers] = [v if is_fast else v.tolist() for v in jobs]

    def completions(self, order: Order) -> Floats:
        """The completion of each job, seconds; indexed by job, not by place in the order."""
        return np.asarray(self._run(order, 0)[0])

    def pieces(self, order: Order) -> Pieces:
        """The whole schedule."""
        completion, changed, since, slots = self._run(order, 2 * len(order) + 1)
        return Pieces.of_changes(
            self._min_share,
            np.asarray(completion),
            np.asarray(changed, dtype=np.int64),
            np.asarray(since),
            np.asarray(slots),
        )

    def _run(self, order: Order, room: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """The completion times, and the changes of shares unless `room` is 0."""
        count = len(order)
        if self.is_fast:
            changes: tuple[Numbers, ...] = (
                np.empty(room, dtype=np.int64), np.empty(room), np.empty(room),
            )  # fmt: skip
            completion: Numbers = np.full(count, -1.0)
            places: Numbers = np.ascontiguousarray(order, dtype=np.int64)
        else:
            changes = [0] * room, [0.0] * room, [0.0] * room
            completion, places = [-1.0] * count, as_list(order)
        number = self._sweep(self._capacity, *self._jobs, places, completion, *changes)
        changed, since, slots = changes
        return completion, changed[:number], since[:number], slots[:number]


SWEEP = (
    f"int64(float64, {FLOATS}, {FLOATS}, {FLOATS}, {INTS}, {FLOATS}, {INTS}, {FLOATS},"
    f" {INTS}, {FLOATS}, {FLOATS})"
)
"""The types of the arguments of `sweep`, in order."""


def _ends_at_least(work: Floats, min_share: Floats) -> tuple[Ints, Floats]:
    """The jobs with a min share by their ends on it alone, and these ends, then inf."""
    held = np.flatnonzero(min_share > 0)
    with np.errstate(over="ignore"):  # A tiny share gives an end of inf.
        ends = work[held] / min_share[held]
    by_end = np.argsort(ends, kind="stable")
    return held[by_end], np.append(ends[by_end], inf)


def as_floats(values: Values) -> list[float]:
    """A new list of Python floats from any sequence."""
    if isinstance(values, np.ndarray):
        floats: list[float] = values.astype(float, copy=False).tolist()
        return floats
    return list(map(float, values))


def as_list(values: Sequence[Number] | NDArray[Any]) -> Sequence[Number]:
    """An array as a list, which Python reads faster; other sequences unchanged."""
    if isinstance(values, np.ndarray):
        numbers: list[Number] = values.tolist()
        return numbers
    return values


# A packed schedule as arrays: the claim, interval and slots of each piece.

Packing = list[list[tuple[float, float, float]]]
"""For each claim its pieces (start, end, slots), in order of time and not overlapping."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Claim `claim[i]` holds `slots[i]` > 0 slots from `start[i]` to `end[i]`, in seconds.

    Pieces are in order of claim, then of time. The pieces of a claim do not overlap, and
    adjacent ones differ in slots. At most 3 J pieces for J claims.
    """

    claim: Ints
    start: Floats
    end: Floats
    slots: Floats

    @classmethod
    def of_changes(
        cls, min_share: Floats, completion: Floats, changed: Ints, since: Floats, slots: Floats
    ) -> Pieces:
        """The pieces of jobs that start with their min shares, from the later changes.

        changed, since, slots   the job, instant and new share of each change, in order of time
        """
        count, rows = len(completion), len(completion) + len(changed)
        # Sorting claim and row as one number is several times faster than a stable argsort.
        numbers = np.concatenate((np.arange(count), changed)) * rows + np.arange(rows)
        claim, row = np.divmod(np.sort(numbers), rows)
        start = np.concatenate((np.zeros(count), since))[row]
        held = np.concatenate((min_share, slots))[row]
        end = completion[claim]
        is_followed = claim[1:] == claim[:-1]
        end[:-1][is_followed] = start[1:][is_followed]
        is_real = (end > start) & (held > 0)
        return cls(claim[is_real], start[is_real], end[is_real], held[is_real])._joined()

    def _joined(self) -> Pieces:
        """Join consecutive pieces of a claim that have the same slots."""
        goes_on = (self.claim[1:] == self.claim[:-1]) & (self.slots[1:] == self.slots[:-1])
        if not goes_on.any():
            return self
        first, last = np.append(True, ~goes_on), np.append(~goes_on, True)
        return Pieces(self.claim[first], self.start[first], self.end[last], self.slots[first])

    def by_claim(self, count: int) -> Packing:
        """The pieces as lists, one for each of `count` claims."""
        packing: Packing = [[] for _ in range(count)]
        columns = (self.claim, self.start, self.end, self.slots)
        for j, start, end, slots in zip(*(c.tolist() for c in columns), strict=True):
            packing[j].append((start, end, slots))
        return packing


# The malleable packing scheme: the schedule of a priority order of jobs (FLEX 3.1). The tests
# compare it with Fig. 3 of the paper line by line.


def completions(
    capacity: float, work: Values, min_share: Values, max_share: Values, order: Order
) -> Floats:
    """The completion of each job in this order, seconds. O(J log J) for J jobs."""
    return Packer(capacity, work, min_share, max_share).completions(order)


def pack(
    capacity: float, work: Values, min_share: Values, max_share: Values, order: Order
) -> Packing:
    """The schedule of this order as lists. O(J log J) for J jobs."""
    return Packer(capacity, work, min_share, max_share).pieces(order).by_claim(len(work))


# The packing scheme as a sweep over the instants at which jobs end.
#
# One source, two implementations: Python runs `sweep` directly, on lists; numba compiles the
# same function for large problems (`compiled.py`). Hence its plain loops and many arguments.
# Neither changes the order of additions, so the results are identical to the bit.


def sweep(
    capacity: float,
    work: Numbers,
    min_share: Numbers,
    max_share: Numbers,
    early: Numbers,
    early_end: Numbers,
    order: Numbers,
    completion: Numbers,
    changed: Numbers,
    since: Numbers,
    slots: Numbers,
) -> int:
    """Fig. 3 by events: fills in `completion` and the changes of shares; returns their number.

    In Fig. 3 a job goes from its min share, through at most one interval of partial shares, to
    its max share and never back, because slack only grows as jobs end. So the ends of jobs at
    their min shares are sorted in advance, the ends of jobs at their max shares are in a heap,
    and only one job, the partial one, changes at each event. O(J log J).

    early, early_end      the jobs with a min share and their ends on it alone, in order of
                          these ends; a last end of inf follows
    completion            of each job, seconds; initially -1
    changed, since, slots buffers for the job, instant and new share of each change after the
                          min shares: of length 2 J + 1, or empty if not needed
    """
    is_traced = len(changed) > 0
    count, changes = len(order), 0
    slack = capacity
    for floor in min_share:  # lines 4 to 6
        slack -= floor
    full = [(inf, 0.0)]  # (end, slots) of the jobs at their max share, and a sentinel
    now, first, at_least = 0.0, 0, 0
    partial, share, left, began, partial_end = -1, 0.0, 0.0, 0.0, inf
    while True:
        while slack > 0.0 and first < count:  # lines 7 to 11
            j = order[first]
            if completion[j] >= 0.0:  # It has ended at its min share.
                first += 1
                continue
            if j != partial:
                share, left = min_share[j], work[j] - min_share[j] * now
            else:
                left -= share * (now - began)
            left, top = max(0.0, left), max_share[j]
            if slack < top - share:
                share += slack
                slack, partial, began, partial_end = 0.0, j, now, now + left / share
            else:
                slack -= top - share
                share, partial, partial_end = top, -1, inf
                completion[j] = now + left / top
                heappush(full, (completion[j], top))
                first += 1
            if is_traced:
                changed[changes], since[changes], slots[changes] = j, now, share
                changes += 1
        if first == count:  # All running jobs are at their max share until they end.
            return changes
        while early_end[at_least] < inf and (
            completion[early[at_least]] >= 0.0 or early[at_least] == partial
        ):
            at_least += 1
        # Lines 12 to 15: the first end, and its slots become slack.
        if full[0][0] <= min(partial_end, early_end[at_least]):
            assert full[0][0] < inf, "slots are free, yet nothing runs"
            now, freed = heappop(full)
            slack += freed
        elif partial_end <= early_end[at_least]:
            now, completion[partial] = partial_end, partial_end
            slack, partial, partial_end = slack + share, -1, inf
            first += 1
        else:
            j, now = early[at_least], early_end[at_least]
            completion[j] = now
            slack += min_share[j]
