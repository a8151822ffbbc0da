"""Claims in trees of pools, and what they must get: by filling in exact fractions, and by LPs.

Neither way knows the bends of the water-line. The first lets all shares rise together until one
of them can rise no more or another joins in. The second asks HiGHS, at the top and then in pool
after pool, for the shares whose smallest is largest, then the next, among all that keep every
limit of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from slotwise.policy.allocator import Claims, Group

INF = float("inf")
PRIORITY = st.sampled_from([1.0, 2.0])
Parts = list[tuple[Fraction, Fraction, Fraction]]


def pooled(
    capacity: int,
    members: Sequence[tuple[int, float, float]],
    groups: Sequence[Group],
    weight: Sequence[float] | None = None,
    priority: Sequence[float] = (),
    jobs: Sequence[int] | None = None,
) -> Claims:
    """Claims of members (group, least, most), in order of arrival; by default of a job each."""
    group, min_share, max_share = (list(values) for values in zip(*members, strict=True))
    count = len(members)
    problem = Claims.of(
        capacity,
        [1.0] * count,
        weight=list(weight or [1.0] * count),
        min_share=min_share,
        max_share=max_share,
        arrival=[float(number) for number in range(count)],
    )
    of_job = jobs or range(count)
    phases = [replace(phase, name=f"phase-{n}") for n, (_, phase) in enumerate(problem.owner)]
    owner = [
        (
            replace(
                problem.owner[job][0],
                phases=tuple(p for p, j in zip(phases, of_job, strict=True) if j == job),
            ),
            phase,
        )
        for job, phase in zip(of_job, phases, strict=True)
    ]
    return replace(
        problem, group=group, groups=list(groups), priority=list(priority), owner=owner
    )


@st.composite
def trees(draw: st.DrawFn, depth_most: int = 3, claims_most: int = 8) -> Claims:
    """Pools within pools with guarantees, limits and policies; jobs in some of the leaves.

    Jobs have one phase or several, some of them in several pools, as where kinds are separate.
    """
    weights = st.sampled_from([0.1, 0.3, 1.0, 2.0])
    groups: list[Group] = []
    leaves: list[int] = []

    def add(parent: int, depth: int) -> None:
        min_share = draw(st.sampled_from([0, 0, 2, 7]))
        max_share = draw(st.sampled_from([INF, INF, 7, 11]))
        below = draw(st.integers(0, 2)) if depth < depth_most else 0
        policy = draw(st.sampled_from(["fair", "fifo"])) if not below else "fair"
        number = len(groups)
        groups.append(Group(draw(weights), min_share, max_share, policy, parent))
        if not below:
            leaves.append(number)
        for _ in range(below):
            add(number, depth + 1)

    for _ in range(draw(st.integers(1, 3))):
        add(-1, 1)
    members, jobs = [], []
    for number in range(draw(st.integers(1, claims_most))):
        max_share = draw(st.integers(1, 12) | st.floats(0.1, 12))
        min_share = min(max_share, draw(st.sampled_from([0, 0, 1, 2.5])))
        members.append((draw(st.sampled_from(leaves)), min_share, max_share))
        jobs.append(draw(st.sampled_from([number, *jobs])))
    weight, priority = ([draw(values) for _ in jobs] for values in (weights, PRIORITY))
    chosen = draw(st.sampled_from([[priority[job] for job in jobs], []]))
    return pooled(
        draw(st.integers(1, 40)), members, groups, [weight[job] for job in jobs], chosen, jobs
    )


def inside(claims: Claims, pool: int) -> list[int]:
    """The claims in a pool, at any depth; -1 is all slots."""

    def is_below(group: int) -> bool:
        return group == pool or (group >= 0 and is_below(claims.groups[group].parent))

    return [j for j, group in enumerate(claims.group) if is_below(group)]


def held_by(claims: Claims, shares: Sequence[float]) -> list[float]:
    """What each pool holds."""
    return [sum(shares[j] for j in inside(claims, n)) for n in range(len(claims.groups))]


def children(claims: Claims, pool: int) -> list[int]:
    """The pools that lie directly in a pool; -1 is all slots."""
    return [n for n, group in enumerate(claims.groups) if group.parent == pool]


def jobs_in(claims: Claims, pool: int) -> list[list[int]]:
    """The claims directly in a pool by job; each is alone in a pool of policy `fifo`."""
    found: dict[object, list[int]] = {}
    for j, group in enumerate(claims.group):
        if group == pool:
            is_fifo = claims.groups[pool].policy == "fifo"
            found.setdefault(j if is_fifo else claims.owner[j][0].id, []).append(j)
    return list(found.values())


def demand(claims: Claims, pool: int) -> float:
    """The most that those in a pool can use within all their limits; -1 is all slots."""
    own = [claims.max_share[j] for j, group in enumerate(claims.group) if group == pool]
    total = sum(own) + sum(demand(claims, n) for n in children(claims, pool))
    return total if pool < 0 else min(total, claims.groups[pool].slots_max)


def owed(claims: Claims, pool: int) -> float:
    """What a pool is owed: its min share or those in it, cut to what it can use."""
    own = [claims.min_share[j] for j, group in enumerate(claims.group) if group == pool]
    total = sum(own) + sum(owed(claims, n) for n in children(claims, pool))
    if pool < 0:
        return total
    return min(max(total, claims.groups[pool].slots_min), demand(claims, pool))


def all_fit(claims: Claims) -> bool:
    """Whether all min shares fit: those in each pool within its limit, and all together."""
    for pool, group in enumerate(claims.groups):
        own = [
            min_share for j, min_share in enumerate(claims.min_share) if claims.group[j] == pool
        ]
        if sum(own) + sum(owed(claims, n) for n in children(claims, pool)) > group.slots_max:
            return False
    return owed(claims, -1) <= claims.capacity


def by_filling(claims: Claims) -> list[float]:
    """The shares of FAIR, in exact fractions."""
    shares = [Fraction(0)] * len(claims)

    def give(pool: int, slots: Fraction) -> None:
        if below := children(claims, pool):
            given = _filled(
                slots,
                [
                    _exact(claims.groups[n].weight, owed(claims, n), demand(claims, n))
                    for n in below
                ],
            )
            for n, part in zip(below, given, strict=True):
                give(n, part)
            return
        own = jobs_in(claims, pool)
        is_fifo = pool >= 0 and claims.groups[pool].policy == "fifo"
        if is_fifo:
            own.sort(key=lambda job: (-claims.priority[job[0]] if claims.priority else 0, job))
        limits = [
            [(Fraction(claims.min_share[j]), Fraction(claims.max_share[j])) for j in job]
            for job in own
        ]
        parts = [
            (
                Fraction(claims.weight[job[0]]),
                sum((low for low, _ in of_job), Fraction(0)),
                sum((high for _, high in of_job), Fraction(0)),
            )
            for job, of_job in zip(own, limits, strict=True)
        ]
        given = _one_by_one(slots, parts) if is_fifo else _filled(slots, parts)
        for job, of_job, part in zip(own, limits, given, strict=True):
            equal = [(Fraction(1), low, high) for low, high in of_job]
            for j, share in zip(job, _filled(part, equal), strict=True):
                shares[j] = share

    give(-1, Fraction(claims.capacity))
    return [float(share) for share in shares]


def _exact(
    weight: float, min_share: float, max_share: float
) -> tuple[Fraction, Fraction, Fraction]:
    return Fraction(weight), Fraction(min_share), Fraction(max_share)


def _scaled(slots: Fraction, parts: Parts) -> list[Fraction]:
    total = sum((min_share for _, min_share, _ in parts), Fraction(0))
    return [
        min_share * min(1, slots / total) if total else min_share for _, min_share, _ in parts
    ]


def _one_by_one(slots: Fraction, parts: Parts) -> list[Fraction]:
    shares = _scaled(slots, parts)
    for number, (_, _, max_share) in enumerate(parts):
        shares[number] += min(max_share - shares[number], slots - sum(shares))
    return shares


def _filled(slots: Fraction, parts: Parts) -> list[Fraction]:
    shares, level = _scaled(slots, parts), Fraction(0)
    everyone = list(enumerate(parts))
    while (left := slots - sum(shares)) and any(shares[n] < p[2] for n, p in everyone):
        rising = [n for n, (w, _, max_share) in everyone if shares[n] <= level * w < max_share]
        # The next to rise no more, and the next to join in.
        events = [parts[n][2] / parts[n][0] - level for n in rising]
        events += [shares[n] / w - level for n, (w, _, _) in everyone if shares[n] > level * w]
        speed, step = sum((parts[n][0] for n in rising), Fraction(0)), min(events)
        if speed * step > left:
            step = left / speed
        level += step
        for n in rising:
            shares[n] = level * parts[n][0]
    return shares


def by_programs(claims: Claims) -> list[float]:
    """The shares of FAIR by linear programs over the shares of all claims at once.

    For pools that are all fair and guarantees that all fit. What a pool can use, and so what
    its guarantee is worth, is found by programs, too. Right to 1e-4 of a slot: what is settled
    is left a little room, so that the next programs have solutions.
    """
    everything = range(len(claims))
    pools = [inside(claims, n) for n in range(len(claims.groups))]
    program = _Program(claims.min_share, claims.max_share)
    for members, group in zip(pools, claims.groups, strict=True):
        program.bound(members, 0.0, group.slots_max)
    program.bound(everything, 0.0, claims.capacity)
    total = program.largest(everything)
    guarantees = [
        min(group.slots_min, program.largest(members))
        for members, group in zip(pools, claims.groups, strict=True)
    ]
    for members, min_share in zip(pools, guarantees, strict=True):
        program.bound(members, min_share, INF)
    program.bound(everything, total - 1e-6, INF)
    for pool in range(-1, len(pools)):
        below = [(pools[n], claims.groups[n].weight) for n in children(claims, pool)]
        jobs = [] if below else jobs_in(claims, pool)
        program.level_up(below or [(job, claims.weight[job[0]]) for job in jobs])
        for job in jobs:
            program.level_up([([j], 1.0) for j in job])
    return [program.largest([j]) for j in everything]


class _Program:
    """Shares of claims between their bounds, with bounds on sums of them."""

    def __init__(self, min_share: Sequence[float], max_share: Sequence[float]) -> None:
        self.bounds = list(zip(min_share, max_share, strict=True))
        self.rows: list[np.ndarray] = []
        self.right: list[float] = []

    def bound(self, members: Sequence[int], low: float, high: float) -> None:
        """The sum of these shares is between low and high."""
        row = self._row(members)
        for sign, right in ((1.0, high), (-1.0, -low)):
            if right < INF:
                self.rows.append(sign * row)
                self.right.append(right)

    def largest(
        self, members: Sequence[int], floors: Sequence[tuple[np.ndarray, float]] = ()
    ) -> float:
        """The largest sum of these shares."""
        return self._best(self._row(members), floors)

    def level_up(self, parts: Sequence[tuple[Sequence[int], float]]) -> None:
        """Fix sums of shares, each with its weight: the least for its weight is largest, ..."""
        left = list(parts)
        while left:
            # All are at least their weight times a level, which is the last variable.
            rows = [
                (self._row(members) - weight * self._row([-1]), 0.0) for members, weight in left
            ]
            level = self._best(self._row([-1]), rows)
            floors = [(self._row(members), level * weight - 1e-9) for members, weight in left]
            settled = []
            for members, weight in left:
                best, lowest = self.largest(members, floors), -self._best(-self._row(members))
                if best <= max(level * weight, lowest) + 1e-5:
                    settled.append((members, best))
            assert settled, "somebody cannot have more"
            for members, best in settled:
                self.bound(members, best - 1e-6, best + 1e-6)
            done = [members for members, _ in settled]
            left = [part for part in left if part[0] not in done]

    def _row(self, members: Sequence[int]) -> np.ndarray:
        row = np.zeros(len(self.bounds) + 1)
        row[list(members)] = 1.0
        return row

    def _best(self, goal: np.ndarray, floors: Sequence[tuple[np.ndarray, float]] = ()) -> float:
        rows = [*self.rows, *(-row for row, _ in floors)]
        right = [*self.right, *(-floor for _, floor in floors)]
        bounds = [*self.bounds, (0.0, 1e6)]
        found = linprog(-goal, np.array(rows), right, bounds=bounds)
        assert found.status == 0, found.message
        return float(-found.fun)
