"""LAS: the jobs that have attained the least service come first; no work needs to be known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from math import inf
from typing import ClassVar

from slotwise.core.tolerances import CLOSE, SLOTS
from slotwise.policy.allocator import Claims
from slotwise.policy.fair import share_by_jobs
from slotwise.policy.grant import pool_floors


class Las:
    """Slots beyond the min shares go to the jobs of least attained service over weight.

    Jobs at the same level share by weight, so in the fluid limit their levels rise together.
    What a job gets is divided equally among its ready phases. Also called
    foreground-background or shortest elapsed time first. O(J log J), and for each level O(J)
    per job or pool of it that reaches a min or max share.
    """

    reads_work: ClassVar[bool] = True
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        return share_by_jobs(claims, _share)

    def holds_for(self, claims: Claims, shares: Sequence[float]) -> float:
        """How many seconds pass until a job reaches the level of the next one."""
        levels = levels_of(claims)
        rates: dict[str, float] = {}
        for (job, _), share in zip(claims.owner, shares, strict=True):
            rates[job.id] = rates.get(job.id, 0.0) + share
        rows = sorted(
            (level, rates[job.id] / weight)
            for level, weight, (job, _) in zip(levels, claims.weight, claims.owner, strict=True)
        )
        return min(
            (
                (above - level) / (rate - slower)
                for (level, rate), (above, slower) in pairwise(rows)
                if rate > slower and not _is_same(level, above)
            ),
            default=inf,
        )


def _share(claims: Claims) -> list[float]:
    """Slots for claims of different jobs."""
    levels = levels_of(claims)
    order = sorted(range(len(claims)), key=levels.__getitem__)
    slots = pool_floors(claims, order)
    filling = _Filling(claims, slots)
    for _, tied in groupby(order, key=_Same(levels)):
        if not filling.raise_together(list(tied)):
            break
    return slots


def levels_of(claims: Claims) -> list[float]:
    """The attained service of each claim's job over its weight."""
    attained = claims.attained or [0.0] * len(claims)
    return [service / weight for service, weight in zip(attained, claims.weight, strict=True)]


def _is_same(level: float, above: float) -> bool:
    """Whether two levels differ by rounding errors only."""
    return above - level <= CLOSE * max(level, above)


class _Same:
    """A key that maps levels, in increasing order, to the first of those that are the same."""

    def __init__(self, levels: Sequence[float]) -> None:
        self._levels, self._first = levels, -inf

    def __call__(self, claim: int) -> float:
        level = self._levels[claim]
        if level != self._first and not _is_same(self._first, level):
            self._first = level
        return self._first


class _Filling:
    """Raises the slots of claims within max shares, those of pools included."""

    def __init__(self, claims: Claims, slots: list[float]) -> None:
        self._claims, self._slots = claims, slots
        self._left = claims.capacity - sum(slots)
        self._paths: list[list[int]] = []
        self._room = [group.slots_max for group in claims.groups]
        for number, group in enumerate(claims.groups):
            above = self._paths[group.parent] if group.parent >= 0 else []
            is_limited = group.slots_max < inf
            self._paths.append([*above, number] if is_limited else above)
        for number, held in zip(claims.group, slots, strict=True):
            for pool in self._paths[number]:
                self._room[pool] -= held

    def raise_together(self, tied: list[int]) -> bool:
        """Raise the lowest of these claims until none can rise; whether slots are left."""
        weight, paths, top = self._claims.weight, self._paths, self._claims.max_share
        is_limited = any(paths)
        while self._left > SLOTS:
            slots = self._slots
            tied = [c for c in tied if top[c] - slots[c] > SLOTS]
            if is_limited:
                tied = [c for c in tied if self._has_room(c)]
            if not tied:
                return True
            held = [slots[c] / weight[c] for c in tied]
            lowest, rising = min(held), tied
            if lowest < max(held):
                rising = [c for c, one in zip(tied, held, strict=True) if _is_same(lowest, one)]
            heavy: dict[int, float] = {}
            for claim in rising if is_limited else ():
                for pool in paths[self._claims.group[claim]]:
                    heavy[pool] = heavy.get(pool, 0.0) + weight[claim]
            step = min(
                self._left / sum([weight[claim] for claim in rising]),
                *[(top[c] - slots[c]) / weight[c] for c in rising],
                *(self._room[pool] / total for pool, total in heavy.items()),
                *(one - lowest for one in held if one != lowest and not _is_same(lowest, one)),
            )
            for claim in rising:
                self._slots[claim] += step * weight[claim]
                self._left -= step * weight[claim]
                for pool in paths[self._claims.group[claim]]:
                    self._room[pool] -= step * weight[claim]
        return False

    def _has_room(self, claim: int) -> bool:
        """Whether no max share of a pool is reached."""
        return all(self._room[pool] > SLOTS for pool in self._paths[self._claims.group[claim]])
