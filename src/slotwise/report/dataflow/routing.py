"""Edges that pass beside boxes: points that lead a curve around what would hide it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from slotwise.report.dataflow.shapes import Point, Rect

CLEAR = 4.0
"""How far an edge stays away from boxes."""

BESIDE, APART = 9.0, 5.0
"""How far from a box the first edge passes that goes around it, and each further one."""

MAX_TURNS = 30
"""An edge goes around at most as many boxes."""


class Router:
    """Leads the edges of one drawing around its boxes, one after another."""

    def __init__(self, boxes: Sequence[Rect]) -> None:
        self._boxes = boxes
        self._passed: Counter[tuple[Rect, bool]] = Counter()

    def around(self, points: Sequence[Point]) -> list[Point]:
        """The points of an edge that goes down, with further ones beside boxes in its way.

        The boxes in which it begins and ends do not count: it touches their edges only.
        """
        found = list(points)
        for _ in range(MAX_TURNS):
            hit = self._first_hit(found)
            if hit is None:
                break
            place, box, x = hit
            beside = self._beside(box, x)
            found[place + 1 : place + 1] = [
                (beside, box.y - CLEAR),
                (beside, box.bottom + CLEAR),
            ]
        return found

    def _first_hit(self, points: Sequence[Point]) -> tuple[int, Rect, float] | None:
        """The first stretch that meets a box, that box, and where."""
        for place, (one, other) in enumerate(pairwise(points)):
            low, high = min(one[0], other[0]), max(one[0], other[0])
            near = [
                box
                for box in self._boxes
                if one[1] <= box.y
                and box.bottom <= other[1]
                and box.x - CLEAR < high + 1
                and low - 1 < box.x + box.width + CLEAR
            ]
            for box in sorted(near, key=lambda box: (box.y, box.x)):
                wide = box.grown(CLEAR - 1)
                for x, y in curve(one, other):
                    if wide.x < x < wide.x + wide.width and wide.y < y < wide.bottom:
                        return place, box, x
        return None

    def _beside(self, box: Rect, x: float) -> float:
        """Where to pass a box, on the side that is nearer and free of other boxes."""
        sides = [self._free(box, is_right=is_right) for is_right in (False, True)]
        is_right = abs(sides[1] - x) < abs(sides[0] - x)
        number = self._passed[box, is_right] % 3
        self._passed[box, is_right] += 1
        return sides[is_right] + number * (APART if is_right else -APART)

    def _free(self, box: Rect, *, is_right: bool) -> float:
        """The first x on a side of a box at which nothing stands beside it."""
        x = box.x + box.width + BESIDE if is_right else box.x - BESIDE
        level = [
            o for o in self._boxes if o.y < box.bottom + CLEAR and box.y - CLEAR < o.bottom
        ]
        for other in sorted(level, key=lambda o: o.x, reverse=not is_right):
            if other.x - CLEAR < x < other.x + other.width + CLEAR:
                x = other.x + other.width + BESIDE if is_right else other.x - BESIDE
        return x


def curve(one: Point, other: Point, steps: int = 24) -> Iterator[Point]:
    """Points of the curve that joins two points, with vertical ends."""
    for step in range(1, steps):
        yield on_curve(one, other, step / steps)


def on_curve(one: Point, other: Point, part: float) -> Point:
    """The point of that cubic curve at this part of its parameter."""
    (x, y), (to_x, to_y) = one, other
    along = part * part * (3 - 2 * part)
    high = 1.5 * part * (1 - part) + part**3
    return x + (to_x - x) * along, y + (to_y - y) * high
