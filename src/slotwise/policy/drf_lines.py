"""What nodes of a tree of pools hold of each resource, as polylines over their positions.

A position up to 1 is the part of their guarantees that all siblings have; a position of 1 + r
is the level r, at which each has its weight times r as dominant share, or its guarantee if that
is more.

Positions are complex numbers, which numpy sorts by real part, then by imaginary part. If the
dominant resource of a pool is blocked in it while others still rise, its dominant share stands
still: it catches up while its siblings wait. There the imaginary part grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core.tolerances import ROUNDING

Floats = NDArray[np.float64]
Positions = NDArray[np.complex128]

SAMPLE = 256
"""At how many positions a sum is computed to find where it exceeds a limit."""

SLOTS_COLUMN = 0
"""The column of parts that counts slots of all kinds together. Each claim uses it."""


class Polyline(NamedTuple):
    """What a node holds, as a polyline; constant after its last vertex.

    at      positions among the siblings, in order
    inside  positions among its children, or of its own claims
    used    parts of the totals, one row for each vertex
    """

    at: Positions
    inside: Positions
    used: Floats

    def find(self, at: Positions) -> tuple[NDArray[np.intp], Floats]:
        """For each position, the vertex before it, and the part of the way to the next."""
        last = len(self.at) - 1
        before = np.maximum(np.searchsorted(self.at, at, side="right") - 1, 0)
        first, second = self.at[before], self.at[np.minimum(before + 1, last)]
        step, passed = second - first, at - first
        is_level = step.real > 0
        length = np.where(is_level, step.real, step.imag)
        way = np.where(is_level, passed.real, passed.imag)
        part = np.divide(way, length, out=np.zeros(len(at)), where=length > 0)
        return before, np.clip(part, 0.0, 1.0)

    def used_at(self, at: Positions) -> Floats:
        """What it holds at these positions."""
        before, part = self.find(at)
        low, high = self.used[before], self.used[np.minimum(before + 1, len(self.at) - 1)]
        found: Floats = low + (high - low) * part[:, None]
        return found

    def inside_at(self, at: complex) -> complex:
        """The position among its children at a position among its siblings."""
        # As `find`, which takes ten times as long for one position.
        before = max(0, int(self.at.searchsorted(at, side="right")) - 1)
        ends = slice(before, before + 2)
        (first, *second), (low, *high) = self.at[ends].tolist(), self.inside[ends].tolist()
        if not second:
            return complex(low)
        step, passed = second[0] - first, at - first
        length, way = (step.real, passed.real) if step.real > 0 else (step.imag, passed.imag)
        part = min(1.0, max(0.0, way / length)) if length > 0 else 0.0
        return complex(low + (high[0] - low) * part)

    def until(self, vertex: int, part: float) -> Polyline:
        """The line up to a part of the way from this vertex to the next, which is added."""
        end = slice(vertex + 1, vertex + 2)
        first = slice(vertex, vertex + 1)

        def cut(column: NDArray[Any]) -> NDArray[Any]:
            last = column[first] + (column[end] - column[first]) * part
            return np.concatenate((column[: vertex + 1], last))

        return Polyline(cut(self.at), cut(self.inside), cut(self.used))


class LineSum:
    """What several nodes hold together."""

    def __init__(self, lines: Sequence[Polyline]) -> None:
        self._lines = lines
        # The usual case is real positions, which numpy does several times as fast.
        self._real = [
            None if line.at.imag.any() else (line.at.real.copy(), line.used.T.copy())
            for line in lines
        ]

    def used_at(self, at: Positions) -> Floats:
        """What they hold at these positions: the sum, line by line."""
        wanted = at.real.copy()
        total = np.zeros((self._lines[0].used.shape[1], len(at)))
        for line, real in zip(self._lines, self._real, strict=True):
            if real is None:
                total += line.used_at(at).T
            else:
                for row, column in zip(total, real[1], strict=True):
                    row += np.interp(wanted, real[0], column)
        return total.T


def near(at: Positions, lines: LineSum, limits: Floats) -> Positions:
    """Those of these positions between which the sum of these lines exceeds a limit first.

    Each position between costs a step for each line, and all but a few are of no use.
    """
    while len(at) > SAMPLE * 4:
        some = np.sort(np.append(at[:: len(at) // SAMPLE], [at.min(), at.max()]))
        used = lines.used_at(some)
        above = np.flatnonzero((used > limits * (1 + ROUNDING)).any(axis=1))
        if not len(above):
            return some[-1:]
        last = max(1, int(above[0]))
        near = at[(at >= some[last - 1]) & (at <= some[last])]
        if len(near) == len(at):
            break
        at = near
    return at


def first_above(line: Polyline, limits: Floats) -> tuple[int, int, float] | None:
    """Where a limit is exceeded first: its resource, the vertex before, and the part."""
    found: list[tuple[int, float, int]] = []
    for resource in np.flatnonzero(limits < inf).tolist():
        limit, used = limits[resource], line.used[:, resource]
        if used[-1] > limit * (1 + ROUNDING):
            vertex = max(0, int(np.searchsorted(used, limit, side="right")) - 1)
            low, high = used[vertex], used[min(vertex + 1, len(used) - 1)]
            part = (limit - low) / (high - low) if high > low else 0.0
            found.append((vertex, min(1.0, max(0.0, float(part))), resource))
    if not found:
        return None
    vertex, part, resource = min(found)
    return resource, vertex, part


def outside(line: Polyline, floor: float, weight: float) -> Polyline:
    """The line of a node over its position among its siblings, from that over those inside."""
    line = _bent(line)
    slots = line.used[:, SLOTS_COLUMN]
    if slots[-1] <= floor * (1 + ROUNDING):
        scaled = slots / floor if floor else slots
        return line._replace(at=np.minimum(scaled, 1.0).astype(complex))
    first = int(np.searchsorted(slots, floor, side="right"))
    low = slots[first - 1]
    ahead = line.until(first - 1, float((floor - low) / (slots[first] - low)))
    if not weight:  # It gets its guarantee only.
        part = ahead.used[:, SLOTS_COLUMN] / (floor or 1.0)
        return ahead._replace(at=np.minimum(part, 1.0).astype(complex))
    share = np.maximum(line.used[first:].max(axis=1), ahead.used[-1].max())
    share = np.concatenate(([ahead.used[-1].max()], np.maximum.accumulate(share)))
    # Where the dominant share stands still, the position grows by slots.
    moves = np.concatenate(([True], np.diff(share) > ROUNDING * share[1:]))
    start = np.maximum.accumulate(np.where(moves, np.arange(len(share)), 0))
    risen = np.concatenate(([floor], slots[first:]))
    level = 1 + share[start] / weight + 1j * (risen - risen[start])
    scaled = ahead.used[:, SLOTS_COLUMN] / floor if floor else np.ones(len(ahead.at))
    at = np.concatenate((np.minimum(scaled, 1.0), level))
    inside = np.concatenate((ahead.inside, ahead.inside[-1:], line.inside[first:]))
    return Polyline(
        at, inside, np.concatenate((ahead.used, ahead.used[-1:], line.used[first:]))
    )


def _bent(line: Polyline) -> Polyline:
    """The line with a vertex wherever the dominant resource changes."""
    used = line.used
    dominant = used.argmax(axis=1)
    changes = np.flatnonzero(dominant[1:] != dominant[:-1])
    extra: list[tuple[int, float]] = []
    for one in range(used.shape[1] if len(changes) else 0):
        for other in range(one):
            more = used[:, one] - used[:, other]
            sign = np.where(np.abs(more) > ROUNDING, np.sign(more), 0)
            for k in changes[sign[changes] * sign[changes + 1] < 0].tolist():
                extra.append((k, float(more[k] / (more[k] - more[k + 1]))))
    if not extra:
        return line
    extra.sort()
    before = np.array([k for k, _ in extra])
    part = np.array([p for _, p in extra])

    def filled(column: NDArray[Any]) -> NDArray[Any]:
        way = part[:, None] if column.ndim > 1 else part
        new = column[before] + (column[before + 1] - column[before]) * way
        return np.insert(column, before + 1, new, axis=0)

    return Polyline(filled(line.at), filled(line.inside), filled(line.used))
