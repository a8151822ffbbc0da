"""Simulates FAIR from completion to completion without visiting every claim at each one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from slotwise.allocation.fair import Fair
from slotwise.allocation.problem import Claims
from slotwise.allocation.tolerances import ROUNDING

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
