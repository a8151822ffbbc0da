"""FAIR's malleable schedule of very many jobs, each of which has few pieces.

Where each of J jobs holds a part of a slot, every completion changes all parts, and a schedule
that shows each change has O(J^2) pieces. This one shows slices of time: when a slice ends, and
when a job is done, FAIR has done exactly what it has done then in `fluid_schedule`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from math import inf

from slotwise.allocation.fair import Fair
from slotwise.allocation.fair_course import Course
from slotwise.allocation.fluid import Progress, fluid_pieces
from slotwise.allocation.problem import Claims
from slotwise.allocation.whole import ROUNDING, merged, wrap_around
from slotwise.model.cluster import Cluster
from slotwise.model.pool_tree import PoolTree
from slotwise.model.schedule import Piece, Schedule

PART = 0.25
"""Of the jobs that there are when a slice begins: so many are done when it ends."""

Part = tuple[int, float]
"""A claim, and the work that is done of it in a slice."""

Span = tuple[int, float, float]
"""A claim, and from when to when it holds one slot."""


def fair_schedule(
    phases: Sequence[Progress], claims: Claims, cluster: Cluster, pools: PoolTree
) -> Schedule:
    """FAIR for jobs of one phase each, without least shares and limits of pools.

    A job is done when it is in `fluid_schedule`, or a little earlier if more jobs than there
    are slots are done at about the same time. O(J log J) as long as no job has more than one
    slot; from then on it is that schedule.
    """
    course = Course(claims)
    slices = _Slices(phases, claims, course)
    slices.fill(sorted(range(len(claims)), key=course.completion.__getitem__))
    rest = [one for one, at in zip(phases, course.completion, strict=True) if at == inf]
    pieces = [*slices.pieces, *fluid_pieces(rest, cluster, pools, Fair(), course.until)]
    return Schedule(merged(pieces))


class _Slices:
    """Fills slices of time, one behind the other, with what FAIR does in them."""

    def __init__(self, phases: Sequence[Progress], claims: Claims, course: Course) -> None:
        self.pieces: list[Piece] = []
        self._phases, self._claims, self._course = phases, claims, course
        self._ends = course.completion
        self._number = {one.id: number for number, one in enumerate(phases)}

    def fill(self, claims: Sequence[int]) -> None:
        """All slices. The claims come in the order in which they are done."""
        ends = [self._ends[j] for j in claims]
        first, begin = 0, 0.0
        while begin < self._course.until:
            aim = ends[first + int(PART * (len(claims) - first))]
            end = min(aim, self._course.until)
            self._slice(begin, end, claims[first:])
            first, begin = bisect_right(ends, end, first), end

    def _slice(self, begin: float, end: float, claims: Sequence[int]) -> None:
        """One slice. If it cannot be filled, two shorter ones, down to one between two ends."""
        instants = sorted({self._ends[j] for j in claims if self._ends[j] <= end})
        if instants in ([], [end]):
            self._share(begin, end, self._parts(claims, end))
            return
        spans = self._spans(begin, end, claims)
        if spans is None:
            middle = instants[max(0, len(instants) // 2 - 1)]
            self._slice(begin, middle, claims)
            self._slice(middle, end, [j for j in claims if self._ends[j] > middle])
            return
        for number, start, stop in spans:
            self._add(Piece(self._phases[number].id, start, stop, 1))

    def _share(self, begin: float, end: float, parts: Sequence[Part]) -> None:
        """All share the slice from its begin to its end, as between two events."""
        space = self._claims.capacity * (end - begin)
        kept = min(1.0, space / sum(work for _, work in parts))  # By rounding it may be less.
        length = (end - begin) / kept
        shares = [(self._phases[j].id, work / length) for j, work in parts if work > 0]
        for piece in wrap_around(shares, begin, end):
            self._add(piece)

    def _spans(self, begin: float, end: float, claims: Sequence[int]) -> list[Span] | None:
        """Those that end in the slice run without a pause up to their ends, others meanwhile."""
        parts = self._parts(claims, end)
        ending = bisect_right(claims, end, key=self._ends.__getitem__)
        rows = _Rows(self._claims.capacity, begin, end)
        for number, work in reversed(parts[:ending]):
            if not rows.put(number, work, self._ends[number]):
                return None
        return rows.spans if rows.fill(parts[ending:]) else None

    def _parts(self, claims: Sequence[int], end: float) -> list[Part]:
        """What is done of each claim up to the end, beside what was done before the slice."""
        levels = {
            group: self._course.level(group, end)
            for group in {self._claims.group[j] for j in claims}
        }
        parts = []
        for j in claims:
            one = self._phases[j]
            part = one.left
            if self._ends[j] > end:
                done = self._claims.weight[j] * levels[self._claims.group[j]]
                part = max(0.0, done - (one.work - one.left))
            parts.append((j, part))
        return parts

    def _add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        # By the clock, as the piece is measured.
        one = self._phases[self._number[piece.phase]]
        one.left -= piece.slots * (piece.end - piece.start)


class _Rows:
    """The slots in a slice: each is a row, free from its begin on and in some holes."""

    def __init__(self, count: int, begin: float, end: float) -> None:
        self.spans: list[Span] = []
        self._begin, self._end = begin, end
        self._free = [(end, row) for row in range(count)]
        """Up to when each row is free from the begin on; in order."""
        self._holes: list[list[tuple[float, float]]] = [[] for _ in range(count)]

    def put(self, number: int, work: float, end: float) -> bool:
        """Let a claim run up to its end, or earlier where no row is free; whether it fits."""
        free, row = self._free.pop()  # So that all rows are left with much to begin with.
        last = min(free, end)
        first = last - work
        insort(self._free, (first, row))
        if last < free:
            self._holes[row].append((last, free))
        self.spans.append((number, first, last))
        return first >= self._begin

    def fill(self, parts: Sequence[Part]) -> bool:
        """Let others run in what is free, one behind the other, row by row; whether they fit.

        What is left of one at the end of a row goes on in the next one, as in `wrap_around`.
        """
        spaces = self._spaces()
        row, at, last = next(spaces, (0, 0.0, 0.0))
        for number, work in parts:
            home, begun, left = row, at, work
            while left > 0:
                if at >= last:
                    space = next(spaces, None)
                    if space is None:
                        # By rounding; it is done later.
                        return left <= ROUNDING * len(self._free) * (self._end - self._begin)
                    row, at, last = space
                    if left == work:
                        home, begun = row, at
                    continue
                then = min(at + left, last)
                if row > home + 1 or (row > home and then > begun):
                    return False  # It would meet itself.
                self.spans.append((number, at, then))
                left = 0.0 if then < last else left - (then - at)
                at = then
        return True

    def _spaces(self) -> Iterator[tuple[int, float, float]]:
        """What is free, by row and then by time."""
        for free, row in self._free:
            self._holes[row].append((self._begin, free))
        for row, holes in enumerate(self._holes):
            for first, last in reversed(holes):
                yield row, first, last
