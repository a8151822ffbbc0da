"""FAIR's malleable schedule of very many jobs, each of which has few pieces.

Where each of J jobs holds a part of a slot, every completion changes all shares, and a schedule
that shows each change has O(J^2) pieces. This one shows slices of time. At the end of each
slice every job has done what it has done by then in `fluid_schedule`. Within a slice it holds
whole slots, at most its max share, at times of our choice.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import floor, fsum

from slotwise.allocation.fair_course import Course
from slotwise.allocation.fluid import Progress
from slotwise.allocation.mcnaughton import ROUNDING, merged, wrap_around
from slotwise.allocation.problem import Claims
from slotwise.model.schedule import Piece, Schedule

PART = 0.25
"""Of the jobs that there are when a slice begins: so many are done when it ends."""

Part = tuple[int, float]
"""A claim, and the work that is done of it in a slice."""

Span = tuple[int, float, float]
"""A claim, and from when to when it holds one slot."""


def fair_schedule(phases: Sequence[Progress], claims: Claims) -> Schedule:
    """FAIR for jobs of one phase each, without min shares, and without max shares of pools.

    No job is done later than in `fluid_schedule`. Some are done a little earlier: where more
    jobs than there are slots are done at about the same time. O(J log J) while jobs hold less
    than a slot each; where they hold more, a slice may be as short as from one completion to
    the next, at O(J) each.
    """
    course = Course(claims)
    slices = _Slices(phases, claims, course)
    slices.fill(sorted(range(len(claims)), key=course.completion.__getitem__))
    return Schedule(merged(slices.pieces))


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
        while first < len(claims):
            end = ends[first + int(PART * (len(claims) - first))]
            self._slice(begin, end, claims[first:])
            first, begin = bisect_right(ends, end, first), end

    def _slice(self, begin: float, end: float, claims: Sequence[int]) -> None:
        """One slice. If it cannot be filled, two shorter ones, down to one between two ends."""
        ending = bisect_right(claims, end, key=self._ends.__getitem__)
        instants = sorted({self._ends[j] for j in claims[:ending]})
        if instants == [end]:
            self._share(begin, end, self._parts(claims, end))
            return
        pieces = self._fitted(begin, end, claims, ending)
        if pieces is None:
            middle = instants[len(instants) // 2 - 1]
            self._slice(begin, middle, claims)
            behind = bisect_right(claims, middle, key=self._ends.__getitem__)
            self._slice(middle, end, claims[behind:])
        else:
            self._add(pieces)

    def _share(self, begin: float, end: float, parts: Sequence[Part]) -> None:
        """All share the slice from its begin to its end, as between two events."""
        space = self._claims.capacity * (end - begin)
        # By rounding parts may be more than there is, and the slots a little more than whole.
        kept = min(1.0, space * (1 - ROUNDING) / fsum(work for _, work in parts))
        length = (end - begin) / kept
        shares = [
            (self._phases[j].id, min(self._claims.max_share[j], work / length))
            for j, work in parts
            if work > 0
        ]
        self._add(wrap_around(shares, begin, end))

    def _fitted(
        self, begin: float, end: float, claims: Sequence[int], ending: int
    ) -> list[Piece] | None:
        """Each holds the whole slots of its mean share up to the end of the slice, or its own.

        For the part of a slot that is left, those that end in the slice hold one slot up to
        their ends, and others hold one meanwhile. None if that does not fit.
        """
        rows = _Rows(self._claims.capacity, begin, end)
        whole: list[tuple[int, float, int]] = []
        parts: list[Part] = []
        for j, work in self._parts(claims, end):
            stop = min(end, self._ends[j])
            share = min(self._claims.max_share[j], work / (stop - begin))
            slots = floor(share + ROUNDING)
            if slots > 0:
                whole.append((j, stop, slots))
            part = (share - slots) * (stop - begin) if share - slots > ROUNDING else 0.0
            parts.append((j, part))
        if not rows.hold([(stop, slots) for _, stop, slots in whole]):
            return None
        for j, work in reversed(parts[:ending]):
            if work > 0 and not rows.put(j, work, self._ends[j]):
                return None
        held = {j: slots for j, _, slots in whole}
        spare = [self._claims.max_share[j] - held.get(j, 0) for j in claims[ending:]]
        if not rows.fill(_cut(parts[ending:], rows.space), spare):
            return None
        return self._pieces(begin, whole, rows.spans)

    def _pieces(
        self, begin: float, whole: Sequence[tuple[int, float, int]], spans: Sequence[Span]
    ) -> list[Piece]:
        """What claims hold throughout, and a slot more in each of their spans."""
        changes: dict[int, list[tuple[float, int]]] = {}
        for j, stop, slots in whole:
            changes[j] = [(begin, slots), (stop, -slots)]
        for j, first, last in spans:
            changes.setdefault(j, []).extend([(first, 1), (last, -1)])
        pieces: list[Piece] = []
        for j, mine in changes.items():
            mine.sort()
            held = 0
            for (at, more), (then, _) in pairwise(mine):
                held += more
                if held and at < then:
                    pieces.append(Piece(self._phases[j].id, at, then, held))
        return pieces

    def _parts(self, claims: Sequence[int], end: float) -> list[Part]:
        """What is done of each claim up to the end, beside what was done before the slice."""
        ending = bisect_right(claims, end, key=self._ends.__getitem__)
        parts = [(j, self._phases[j].left) for j in claims[:ending]]
        staying = claims[ending:]
        for j, done in zip(staying, self._course.done(staying, end), strict=True):
            one = self._phases[j]
            parts.append((j, max(0.0, done - (one.work - one.left))))
        return parts

    def _add(self, pieces: Sequence[Piece]) -> None:
        self.pieces += pieces
        for piece in pieces:  # By the clock, as the piece is measured.
            one = self._phases[self._number[piece.phase]]
            one.left -= piece.slots * (piece.end - piece.start)


def _cut(parts: Sequence[Part], space: float) -> Sequence[Part]:
    """What fits: rounding may ask for more, and what is cut is done in a later slice."""
    wanted = fsum(work for _, work in parts)
    return parts if wanted <= space else [(j, work * space / wanted) for j, work in parts]


class _Rows:
    """The slots in a slice: each is a row, free from its begin on and in some holes."""

    def __init__(self, count: int, begin: float, end: float) -> None:
        self.spans: list[Span] = []
        self._begin, self._end = begin, end
        self._free = [(end, row) for row in range(count)]
        """Up to when each row is free from the begin on; in order."""
        self._holes: list[list[tuple[float, float]]] = [[] for _ in range(count)]

    @property
    def space(self) -> float:
        """The slot seconds that are free."""
        holes = sum(last - first for row in self._holes for first, last in row)
        return holes + sum(free - self._begin for free, _ in self._free)

    def hold(self, stops: Sequence[tuple[float, int]]) -> bool:
        """Hold whole slots from the begin up to some instants; whether there are as many."""
        count = sum(slots for _, slots in stops)
        if count > len(self._free):
            return False
        rows = [row for _, row in self._free]
        self._free = [(self._begin, row) for row in rows[:count]] + self._free[count:]
        ends = [stop for stop, slots in stops for _ in range(slots)]
        for row, stop in zip(rows, ends, strict=False):
            if stop < self._end:
                self._holes[row].append((stop, self._end))
        return True

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

    def fill(self, parts: Sequence[Part], spare: Sequence[float]) -> bool:
        """Let others run in what is free, one behind the other, row by row; whether they fit.

        What is left of one at the end of a row goes on in the next one, as in `wrap_around`.
        Those that may hold more slots at once, `spare`, come last: they may meet themselves.
        """
        spaces = self._spaces()
        row, at, last = next(spaces, (0, 0.0, 0.0))
        rank = 0
        for (number, work), max_share in sorted(
            zip(parts, spare, strict=True), key=lambda one: one[1]
        ):
            home, begun, left = rank, at, work
            while left > 0:
                if at >= last:
                    space = next(spaces, None)
                    if space is None:
                        # By rounding; it is done later.
                        return left <= ROUNDING * len(self._free) * (self._end - self._begin)
                    rank += space[0] != row
                    row, at, last = space
                    if left == work:
                        home, begun = rank, at
                    continue
                then = min(at + left, last)
                crossed = rank - home + (then > begun or rank - home > 1)
                if rank > home and crossed > max_share:
                    return False  # It would meet itself.
                self.spans.append((number, at, then))
                left = 0.0 if then < last else left - (then - at)
                at = then
        return True

    def _spaces(self) -> Iterator[tuple[int, float, float]]:
        """What is free, by row and then by time."""
        for free, row in self._free:
            self._holes[row].append((self._begin, free))
        for _, row in sorted(self._free, reverse=True):
            for first, last in reversed(self._holes[row]):
                yield row, first, last
