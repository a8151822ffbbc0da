"""The numeric problem behind a plan: malleable jobs of one kind of slot, all present at 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import floor

import numpy as np

from slotwise.core.costs import Costs, Floats
from slotwise.core.errors import InputError
from slotwise.core.job import PhaseId
from slotwise.core.objective import Aggregate, Cost
from slotwise.core.schedule import Piece
from slotwise.core.tolerances import EXCESS, ROUNDING, SUM
from slotwise.policy.packing import Packing


@dataclass(frozen=True)
class Malleable:
    """J jobs that share `capacity` slots from time 0 on; created by `Malleable.of`.

    At every instant an unfinished job holds at least `min_share` and at most `max_share` slots,
    a real number. Its remaining work decreases at the rate of its slots (FLEX 2.3, 2.5).

    work       seconds at speed 1, > 0; shape (J,), as for the shares
    min_share  slots, >= 0, at most `max_share`; together at most the capacity
    max_share  slots, > 0, at most the capacity
    costs      of each job by its completion time
    aggregate  of the costs: "sum" or "max"
    """

    capacity: float
    work: Floats
    min_share: Floats
    max_share: Floats
    costs: Costs
    aggregate: Aggregate

    def __len__(self) -> int:
        return len(self.work)

    @classmethod
    def of(
        cls,
        capacity: float,
        work: Sequence[float] | Floats,
        min_share: Sequence[float] | Floats,
        max_share: Sequence[float] | Floats,
        costs: Sequence[Cost],
        aggregate: Aggregate = "sum",
    ) -> Malleable:
        """The problem with shares that fit, or InputError with place, value and remedy.

        Max shares are cut to the capacity, and min shares to these. Min shares that together
        exceed the capacity are scaled down in proportion ("the minima are simply normalised if
        necessary", FLEX 1), also if there are more jobs than slots. A min share above the
        stated max share is an error.
        """
        works, lows, tops = (np.array(v, dtype=float) for v in (work, min_share, max_share))
        if not 0 < capacity < np.inf:
            raise InputError(f"capacity is {capacity}; give a number of slots > 0")
        if not len(works) == len(lows) == len(tops) == len(costs):
            raise InputError(
                f"{len(works)} works, {len(lows)} min shares, {len(tops)} max shares and"
                f" {len(costs)} costs; give one of each for each job"
            )
        _refuse("work", works, works > 0, "seconds > 0")
        _refuse("min_share", lows, lows >= 0, "slots >= 0")
        _refuse("max_share", tops, tops > 0, "slots > 0", finite=False)
        _refuse("min_share", lows, lows <= tops, "at most max_share")
        tops = np.minimum(tops, capacity)
        lows = np.minimum(lows, tops)
        if (total := lows.sum()) > capacity:
            lows *= capacity / total
        found = costs if isinstance(costs, Costs) else Costs(costs)
        return cls(float(capacity), works, lows, tops, found, aggregate)

    @cached_property
    def heights(self) -> Floats:
        """The minimum time that each job needs alone, seconds."""
        return self.work / self.max_share

    @cached_property
    def ends(self) -> Floats:
        """The latest completion of each job, which its min share implies; inf without one."""
        with np.errstate(divide="ignore"):
            return self.work / self.min_share

    def value(self, completion: Floats) -> float:
        """The sum or the maximum of the costs of these completion times; 0 without jobs."""
        if not len(self):
            return 0.0
        costs = self.costs.at(completion)
        return float(costs.max() if self.aggregate == "max" else costs.sum())


def _refuse(name: str, values: Floats, good: object, remedy: str, finite: bool = True) -> None:
    fine = np.asarray(good) & (np.isfinite(values) if finite else ~np.isnan(values))
    if not fine.all():
        at = int(np.argmin(fine))
        raise InputError(f"{name}[{at}] is {values[at]}; give {remedy}")


# Whole slots: converts a schedule with fractional slots to integer pieces, without loss.


def whole_slots(phases: Sequence[PhaseId], packing: Packing) -> list[Piece]:
    """The same schedule in whole slots: the same work is done in the same intervals.

    Pieces with whole slots stay unchanged. The others are cut at every instant at which one of
    them starts or ends, and `wrap_around` is applied to each interval. O(P I) for P such pieces
    and I intervals.
    """
    pieces: list[Piece] = []
    parts: list[tuple[float, float, PhaseId, float]] = []
    for phase, own in zip(phases, packing, strict=True):
        for start, end, slots in own:
            if -ROUNDING * slots <= slots - round(slots) <= EXCESS * slots:
                pieces.append(Piece(phase, start, end, round(slots)))
            else:
                parts.append((start, end, phase, slots))
    parts.sort(key=lambda part: part[0])
    instants = sorted({instant for part in parts for instant in part[:2]})
    held: list[tuple[float, float, PhaseId, float]] = []
    come = 0
    for start, end in pairwise(instants):
        held = [part for part in held if part[1] > start]
        while come < len(parts) and parts[come][0] <= start:
            held.append(parts[come])
            come += 1
        shares = [(phase, slots) for _, _, phase, slots in held]
        pieces += wrap_around(shares, start, end)
    return pieces


def wrap_around(
    shares: Sequence[tuple[PhaseId, float]], start: float, end: float
) -> list[Piece]:
    """Whole slots that give each phase its share of an interval exactly (McNaughton's rule).

    A phase holds the whole part of its share throughout. The fractional parts are laid one
    after the other on slots as long as the interval. A part that crosses the end of one slot
    continues at the beginning of the next. It is shorter than the interval, so it does not
    overlap itself, and no phase ever holds more than its share rounded up.
    """

    def instant(part: float) -> float:
        return end if part == 1.0 else start + part * (end - start)

    pieces: list[Piece] = []
    filled = 0.0  # The filled part of the current slot, relative to the interval.
    for phase, share in shares:
        whole = floor(share + ROUNDING)
        part = share - whole
        if part <= max(ROUNDING, EXCESS * whole):
            spans = [(0.0, 1.0, whole)]
        elif filled + part <= 1.0 + SUM:
            full = min(1.0, filled + part)
            spans = [(0.0, filled, whole), (filled, full, whole + 1), (full, 1.0, whole)]
            filled = 0.0 if full == 1.0 else full
        else:
            rest = filled + part - 1.0
            spans = [(0.0, rest, whole + 1), (rest, filled, whole), (filled, 1.0, whole + 1)]
            filled = rest
        for first, last, slots in spans:
            if slots > 0 and last - first > ROUNDING and instant(first) < instant(last):
                pieces.append(Piece(phase, instant(first), instant(last), slots))
    return pieces


def merged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Join adjacent pieces of a phase with equal slots; sort by time, then phase."""
    joined: dict[PhaseId, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda p: p.start):
        mine = joined.setdefault(piece.phase, [])
        if mine and mine[-1].end == piece.start and mine[-1].slots == piece.slots:
            piece = Piece(piece.phase, mine.pop().start, piece.end, piece.slots)
        mine.append(piece)
    return tuple(
        sorted((p for mine in joined.values() for p in mine), key=lambda p: (p.start, p.phase))
    )
