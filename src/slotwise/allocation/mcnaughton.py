"""Whole slots: converts a schedule with fractional slots to integer pieces, without loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import floor

from slotwise.allocation.packing.pieces import Packing
from slotwise.allocation.tolerances import ROUNDING, SUM
from slotwise.model.job import PhaseId
from slotwise.model.schedule import Piece


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
            if abs(slots - round(slots)) <= ROUNDING * slots:
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
        if part <= ROUNDING:
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
