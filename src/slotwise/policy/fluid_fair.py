"""FAIR's malleable schedule of very many jobs, with few pieces per job.

If each of J jobs holds a fraction of a slot, every completion changes all shares, and a
schedule with every change has O(J^2) pieces. This schedule consists of slices of time. At the
end of each slice every job has done the same work as in `fluid_schedule`. Within a slice it
holds whole slots, at most its max share, at times that this module chooses.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise
from math import floor, fsum, inf

from slotwise.core.schedule import Piece, Schedule
from slotwise.core.tolerances import ROUNDING
from slotwise.policy.allocator import Claims
from slotwise.policy.fair import Fair
from slotwise.policy.fluid import PhaseProgress
from slotwise.policy.malleable import merged, wrap_around

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
            first_later = bisect_right(claims, middle, key=self._ends.__getitem__)
            self._slice(middle, end, claims[first_later:])
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


# Simulates FAIR from completion to completion without visiting every claim at each one.

ONE = 1 + ROUNDING
"""Instants and levels that differ by a smaller factor count as equal, because of rounding."""


class FairTimeline:
    """The completion times of claims under FAIR, and the work done on each at an instant.

    All claims are present from the beginning, and none has a min share. In each pool, the
    claims below their max shares have done work in proportion to their weights; work per weight
    is the *level* of the pool. When claims complete, the shares of the others never fall, so a
    claim that has reached its max share keeps it. O(J log J) for J claims, plus O(P) for P
    pools at each change of the pools' slots.

    completion  of each claim, seconds
    """

    def __init__(self, claims: Claims) -> None:
        self.completion = [inf] * len(claims)
        self._claims = claims
        self._full_from = [inf] * len(claims)
        members: dict[int, list[int]] = {}
        for number, group in enumerate(claims.group):
            members.setdefault(group, []).append(number)
        self._pools = {
            group: _Pool(claims, numbers, self._full_from) for group, numbers in members.items()
        }
        self._run()

    def done(self, claims: Sequence[int], now: float) -> list[float]:
        """The work done on these claims, seconds, at an instant before they complete."""
        levels = {group: pool.level_at(now) for group, pool in self._pools.items()}
        work, weight, max_share = self._claims.work, self._claims.weight, self._claims.max_share
        return [
            work[j] - max_share[j] * (self.completion[j] - now)
            if now >= self._full_from[j]
            else weight[j] * levels[self._claims.group[j]]
            for j in claims
        ]

    def _run(self) -> None:
        active, now = dict(self._pools), 0.0
        while active:
            for group, slots in self._slots_of(active).items():
                active[group].share(slots, now)
            ends = [(pool.next_end(), group) for group, pool in active.items()]
            heapify(ends)
            while True:
                end, group = ends[0]
                if end > now * ONE:  # Otherwise both instants are equal up to rounding.
                    now = end
                pool = active[group]
                for number in pool.end(now):
                    self.completion[number] = now
                if pool.demand < pool.slots * ONE:
                    break  # Other pools share the slots that this one no longer uses.
                heapreplace(ends, (pool.next_end(), group))
            active = {group: pool for group, pool in active.items() if pool.demand}

    def _slots_of(self, active: dict[int, _Pool]) -> dict[int, float]:
        """The slots of each pool, taken as one claim that can use as much as its claims."""
        pools = replace(
            self._claims,
            weight=[1.0] * len(active),
            min_share=[0.0] * len(active),
            max_share=[pool.demand for pool in active.values()],
            group=list(active),
            arrival=[0.0] * len(active),
            priority=(),
            work=(),
            owner=(),
        )
        return dict(zip(active, Fair().share(pools), strict=True))


class _Pool:
    """The claims of one pool: some share by weight, the others hold their max shares.

    Removals from `_levels` and `_rates` are lazy: `_forget` drops what no longer counts.
    """

    def __init__(self, claims: Claims, members: Sequence[int], full_from: list[float]) -> None:
        self.slots = 0.0
        self.demand = sum(claims.max_share[j] for j in members)
        self._claims, self._full_from = claims, full_from
        self._is_done: set[int] = set()
        self._levels = sorted((claims.work[j] / claims.weight[j], j) for j in members)
        """The level at which each claim that shares by weight completes; last is lowest."""
        self._levels.reverse()
        self._rates = sorted((claims.max_share[j] / claims.weight[j], j) for j in members)
        """The rate of the level at which each claim reaches its max share; last is lowest."""
        self._rates.reverse()
        # Weights as integer multiples of one unit, so that subtracting them is exact.
        ratios = {j: float(claims.weight[j]).as_integer_ratio() for j in members}
        self._unit = max(below for _, below in ratios.values())
        self._units = {j: above * (self._unit // below) for j, (above, below) in ratios.items()}
        self._weight = sum(self._units.values())
        self._held = 0.0  # Slots of the claims at their max shares.
        self._full: list[tuple[float, int]] = []  # Their completion times.
        # The course of the level: when each interval starts, the level then, and its rate.
        self._times, self._starts, self._speeds = [0.0], [0.0], [0.0]

    def share(self, slots: float, now: float) -> None:
        """Let the claims of the pool share this number of slots from now on."""
        self.slots = slots
        self._go_on(now, self.level_at(now))

    def next_end(self) -> float:
        """When the next claims complete if nothing else changes."""
        return min(self._full[0][0] if self._full else inf, self._next_by_weight())

    def end(self, now: float) -> list[int]:
        """The claims that complete now, the instant that `next_end` returned."""
        ended = []
        while self._full and self._full[0][0] <= now * ONE:
            _, j = heappop(self._full)
            self._held -= self._claims.max_share[j]
            ended.append(j)
        level = self._level_due(now)
        while self._levels and self._levels[-1][0] <= level * ONE:
            _, j = self._levels.pop()
            if j not in self._is_done and self._full_from[j] == inf:
                self._weight -= self._units[j]
                ended.append(j)
        self._is_done.update(ended)
        self.demand -= sum(self._claims.max_share[j] for j in ended)
        self._go_on(now, level)
        return ended

    def level_at(self, now: float) -> float:
        """The work per weight done at an instant by a claim below its max share."""
        k = bisect_right(self._times, now) - 1
        return self._starts[k] + self._speeds[k] * (now - self._times[k])

    def _next_by_weight(self) -> float:
        """When the next claims that share by weight complete."""
        self._forget()
        if not self._levels:
            return inf
        left = max(0.0, self._levels[-1][0] - self._starts[-1])
        return self._times[-1] + left / self._speeds[-1]

    def _level_due(self, now: float) -> float:
        """The level now; rounding does not put it below the level of claims completing now."""
        is_due = self._next_by_weight() <= now * ONE
        return max(self.level_at(now), self._levels[-1][0] if is_due else 0.0)

    def _go_on(self, now: float, level: float) -> None:
        """Set the rate from now on. Claims at their max shares stop sharing by weight."""
        speed = self._speeds[-1]
        while self._weight:
            # The rate only falls by rounding.
            speed = max(speed, (self.slots - self._held) / (self._weight / self._unit))
            self._forget()
            max_share, j = self._rates[-1]
            if speed * ONE < max_share:
                break
            self._rates.pop()
            self._weight -= self._units[j]
            self._held += self._claims.max_share[j]
            self._full_from[j] = now
            left = max(0.0, self._claims.work[j] - self._claims.weight[j] * level)
            heappush(self._full, (now + left / self._claims.max_share[j], j))
        self._times.append(now)
        self._starts.append(level)
        self._speeds.append(speed if self._weight else 0.0)

    def _forget(self) -> None:
        """Drop claims that are done or at their max shares from the ends of both lists."""
        for ends in (self._levels, self._rates):
            while ends and (ends[-1][1] in self._is_done or self._full_from[ends[-1][1]] < inf):
                ends.pop()
