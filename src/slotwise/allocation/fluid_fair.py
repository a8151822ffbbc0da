"""FAIR's malleable schedule of very many jobs, with few pieces per job.

If each of J jobs holds a fraction of a slot, every completion changes all shares, and a
schedule with every change has O(J^2) pieces. This schedule consists of slices of time. At the
end of each slice every job has done the same work as in `fluid_schedule`. Within a slice it
holds whole slots, at most its max share, at times that this module chooses.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import floor, fsum

from slotwise.allocation.fair_course import FairTimeline
from slotwise.allocation.fluid import PhaseProgress
from slotwise.allocation.mcnaughton import merged, wrap_around
from slotwise.allocation.problem import Claims
from slotwise.allocation.tolerances import ROUNDING
from slotwise.model.schedule import Piece, Schedule

PART = 0.25
"""The part of the jobs present when a slice begins that is done when it ends."""

Part = tuple[int, float]
"""A claim, and the work that is done on it in a slice."""

Span = tuple[int, float, float]
"""A claim, and the start and end of an interval in which it holds one slot."""


def fair_schedule(phases: Sequence[PhaseProgress], claims: Claims) -> Schedule:
    """FAIR for single-phase jobs, without min shares and without max shares of pools.

    No job completes later than in `fluid_schedule`. Some complete slightly earlier, when more
    jobs than there are slots complete at about the same time. O(J log J) while jobs hold less
    than one slot each. When they hold more, a slice may be as short as the time between two
    completions, at O(J) per slice.
    """
    course = FairTimeline(claims)
    slices = _Slices(phases, claims, course)
    slices.fill(sorted(range(len(claims)), key=course.completion.__getitem__))
    return Schedule(merged(slices.pieces))


class _Slices:
    """Fills consecutive slices of time with the work that FAIR does in them."""

    def __init__(
        self, phases: Sequence[PhaseProgress], claims: Claims, course: FairTimeline
    ) -> None:
        self.pieces: list[Piece] = []
        self._phases, self._claims, self._course = phases, claims, course
        self._ends = course.completion
        self._number = {one.id: number for number, one in enumerate(phases)}

    def fill(self, claims: Sequence[int]) -> None:
        """Fill all slices. The claims are in order of completion."""
        ends = [self._ends[j] for j in claims]
        first, begin = 0, 0.0
        while first < len(claims):
            end = ends[first + int(PART * (len(claims) - first))]
            self._slice(begin, end, claims[first:])
            first, begin = bisect_right(ends, end, first), end

    def _slice(self, begin: float, end: float, claims: Sequence[int]) -> None:
        """Fill one slice. If that fails, fill two shorter ones, down to one completion each."""
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
        """Let all share the slice from its beginning to its end, as between two events."""
        space = self._claims.capacity * (end - begin)
        # Rounding may make the parts exceed the space, and slots slightly exceed whole numbers.
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
        """The pieces of a slice in which claims hold whole slots; None if they do not fit.

        Each claim holds the whole slots of its mean share until it completes or the slice ends.
        For the remaining fraction, claims that complete in the slice hold one more slot just
        before they complete. The other claims hold one in the space that is left.
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
        """The pieces: the slots held throughout, and one more in each of a claim's spans."""
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
        """The work to do on each claim in a slice that ends at `end`."""
        ending = bisect_right(claims, end, key=self._ends.__getitem__)
        parts = [(j, self._phases[j].left) for j in claims[:ending]]
        staying = claims[ending:]
        for j, done in zip(staying, self._course.done(staying, end), strict=True):
            one = self._phases[j]
            parts.append((j, max(0.0, done - (one.work - one.left))))
        return parts

    def _add(self, pieces: Sequence[Piece]) -> None:
        self.pieces += pieces
        for piece in pieces:  # From rounded instants, as the piece is measured.
            one = self._phases[self._number[piece.phase]]
            one.left -= piece.slots * (piece.end - piece.start)


def _cut(parts: Sequence[Part], space: float) -> Sequence[Part]:
    """The parts, scaled down if rounding makes them exceed the space; a later slice does the
    rest."""
    wanted = fsum(work for _, work in parts)
    return parts if wanted <= space else [(j, work * space / wanted) for j, work in parts]


class _Rows:
    """The slots in a slice. Each is a row that is free at its beginning and in some holes."""

    def __init__(self, count: int, begin: float, end: float) -> None:
        self.spans: list[Span] = []
        self._begin, self._end = begin, end
        self._free = [(end, row) for row in range(count)]
        """The end of the free time at the beginning of each row, with the row; sorted."""
        self._holes: list[list[tuple[float, float]]] = [[] for _ in range(count)]

    @property
    def space(self) -> float:
        """The free slot seconds."""
        holes = sum(last - first for row in self._holes for first, last in row)
        return holes + sum(free - self._begin for free, _ in self._free)

    def hold(self, stops: Sequence[tuple[float, int]]) -> bool:
        """Hold whole slots from the beginning to these instants; whether there are enough."""
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
        """Let a claim run until its end, or earlier if no row is free then; whether it fits."""
        free, row = self._free.pop()  # The row with the most free time, to even out the rows.
        last = min(free, end)
        first = last - work
        insort(self._free, (first, row))
        if last < free:
            self._holes[row].append((last, free))
        self.spans.append((number, first, last))
        return first >= self._begin

    def fill(self, parts: Sequence[Part], spare: Sequence[float]) -> bool:
        """Lay the other claims one after the other in the free space; whether they fit.

        A claim that does not fit in a row continues in the next one, as in `wrap_around`. So it
        may overlap itself and hold several slots at once. `spare` gives how many more slots
        each claim may hold; claims with the largest values come last.
        """
        spaces = self._spaces()
        row, at, last = next(spaces, (0, 0.0, 0.0))
        rank = 0
        for (number, work), more in sorted(
            zip(parts, spare, strict=True), key=lambda one: one[1]
        ):
            home, begun, left = rank, at, work
            while left > 0:
                if at >= last:
                    space = next(spaces, None)
                    if space is None:
                        # A remainder due to rounding; a later slice does it.
                        return left <= ROUNDING * len(self._free) * (self._end - self._begin)
                    rank += space[0] != row
                    row, at, last = space
                    if left == work:
                        home, begun = rank, at
                    continue
                then = min(at + left, last)
                crossed = rank - home + (then > begun or rank - home > 1)
                if rank > home and crossed > more:
                    return False  # It would overlap itself more often than it may.
                self.spans.append((number, at, then))
                left = 0.0 if then < last else left - (then - at)
                at = then
        return True

    def _spaces(self) -> Iterator[tuple[int, float, float]]:
        """The free intervals, by row and then by time."""
        for free, row in self._free:
            self._holes[row].append((self._begin, free))
        for _, row in sorted(self._free, reverse=True):
            for first, last in reversed(self._holes[row]):
                yield row, first, last
