"""How FAIR goes on while jobs are many: by levels of pools, without looking at all jobs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from heapq import heapify, heapreplace
from itertools import accumulate
from math import inf

from slotwise.allocation.problem import Claims, Group

ONE = 1 + 1e-12
"""Of a slot; shares may be rounded by a little."""


class Course:
    """When claims are done, and how much of each is done at an instant, up to an instant.

    completion  of each claim, seconds; inf for those that are not done by `until`
    until       from then on a claim would have more than one slot, or all are done
    """

    def __init__(self, claims: Claims) -> None:
        self.completion = [inf] * len(claims)
        self.until = 0.0
        self._claims = claims
        self._pools: dict[int, _Pool] = {}
        members: dict[int, list[int]] = {}
        for number, group in enumerate(claims.group):
            members.setdefault(group, []).append(number)
        for group, numbers in members.items():
            self._pools[group] = _Pool(claims, numbers)
        self._run()

    def level(self, group: int, now: float) -> float:
        """The work that each claim of a pool has done by an instant, by its weight."""
        return self._pools[group].level_at(now)

    def _run(self) -> None:
        active = dict(self._pools)
        while active:
            slots = _slots_of_pools(self._claims.capacity, self._claims.groups, active)
            for group, pool in active.items():
                pool.share(slots[group], self.until)
            if any(pool.share_most > ONE for pool in active.values()):
                return
            ends = [(pool.next_end(), group) for group, pool in active.items()]
            heapify(ends)
            while True:
                self.until, group = ends[0]
                pool = active[group]
                for number in pool.end(self.until):
                    self.completion[number] = self.until
                if not pool.has_members:
                    del active[group]
                    break  # The others share what it had.
                if pool.share_most > ONE:
                    return
                heapreplace(ends, (pool.next_end(), group))


class _Pool:
    """The claims of one pool, in the order in which they are done."""

    def __init__(self, claims: Claims, members: Sequence[int]) -> None:
        levels = {j: claims.work[j] / claims.weight[j] for j in members}
        self._order = sorted(members, key=levels.__getitem__)
        self._ends = [levels[j] for j in self._order]
        weights = [claims.weight[j] for j in reversed(self._order)]
        self._weight = list(accumulate(weights))[::-1]
        self._weight_most = list(accumulate(weights, max))[::-1]
        self._done, self._slots = 0, 0.0
        # What its level was when its rate changed, and the new rate.
        self._times, self._levels, self._rates = [0.0], [0.0], [0.0]

    def share(self, slots: float, now: float) -> None:
        """From now on its claims share so many slots."""
        self._slots = slots
        self._go_on(now, self.level_at(now))

    @property
    def has_members(self) -> bool:
        """Whether some of its claims are not done."""
        return self._done < len(self._order)

    @property
    def share_most(self) -> float:
        """The largest share of a claim."""
        return self._rates[-1] * self._weight_most[self._done]

    def next_end(self) -> float:
        """When its next claim is done if nothing else changes."""
        level = self._ends[self._done]
        return self._times[-1] + max(0.0, level - self._levels[-1]) / self._rates[-1]

    def end(self, now: float) -> list[int]:
        """Its next claims are done."""
        level, first = self._ends[self._done], self._done
        self._done = bisect_right(self._ends, level, first)
        if self.has_members:
            self._go_on(now, level)
        return self._order[first : self._done]

    def level_at(self, now: float) -> float:
        """Work done over weight."""
        k = bisect_right(self._times, now) - 1
        return self._levels[k] + self._rates[k] * (now - self._times[k])

    def _go_on(self, now: float, level: float) -> None:
        self._times.append(now)
        self._levels.append(level)
        self._rates.append(self._slots / self._weight[self._done])


def _slots_of_pools(
    capacity: float, groups: Sequence[Group], active: Collection[int]
) -> list[float]:
    """What each pool gets, by weight among those with claims below them that are not done."""
    is_active = [number in active for number in range(len(groups))]
    for number in reversed(range(len(groups))):
        if is_active[number] and groups[number].parent >= 0:
            is_active[groups[number].parent] = True
    weight = [0.0] * (len(groups) + 1)  # The last is the whole.
    for group, counts in zip(groups, is_active, strict=True):
        weight[group.parent] += group.weight if counts else 0.0
    slots = [0.0] * len(groups) + [float(capacity)]
    for number, group in enumerate(groups):
        if is_active[number]:
            slots[number] = slots[group.parent] * group.weight / weight[group.parent]
    return slots[:-1]
