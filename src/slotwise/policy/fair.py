"""FAIR: the allocation layer of the Hadoop Fair Scheduler."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from slotwise.core.costs import Floats, Ints
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.grant import grant
from slotwise.policy.waterline import in_orders, scale_to, water_line, water_lines


class Fair:
    """Weighted water-line over the pools, then within each pool (HFS design document, 4.6).

    Every pool with demand gets at least its min share; a pool without demand reserves nothing.
    Pools within a pool divide its slots by the same rule. In a pool that contains jobs, the
    policy "fair" shares by the weights of the jobs, and what a job gets is divided equally
    among its ready phases; "fifo" serves jobs by priority, highest first, then by arrival.
    Under both, the min shares of the phases come first and count into the guarantees of their
    jobs. Shares are real numbers: half a slot is one slot for half of the time. O(J log J).
    """

    reads_work: ClassVar[bool] = False
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = True
    is_by_level: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        return share_by_jobs(claims, _share, served_in_turn(claims))


MANY, POOL_COSTS = 300, 4
"""Above MANY claims arrays are faster; a pool counts as POOL_COSTS claims."""


def served_in_turn(claims: Claims) -> set[int]:
    """The groups of policy "fifo": the phases of a job get slots in their order there."""
    return {number for number, pool in enumerate(claims.groups) if pool.policy == "fifo"}


def _share(claims: Claims) -> list[float]:
    """The shares of claims of different jobs, in the way that is fastest for their number."""
    pools = claims.groups
    if len(claims) + POOL_COSTS * len(pools) > MANY:
        return share_at_once(claims)
    if len(pools) == 1 and pools[0].policy == "fair":
        slots = min(claims.capacity, pools[0].slots_max)
        return water_line(slots, claims.weight, claims.min_share, claims.max_share)
    return share_by_pools(claims)


def share_by_pools(claims: Claims) -> list[float]:
    """The shares of jobs in a tree of pools, pool by pool: the plain form of the rule."""
    pools, last = claims.groups, len(claims.groups)
    # The last item of these lists is the root, which contains the pools at the top.
    inside: list[list[int]] = [[] for _ in range(last + 1)]
    for number, pool in enumerate(pools):
        inside[pool.parent].append(number)
    members: list[list[int]] = [[] for _ in range(last)]
    for claim in in_turn(claims):
        members[claims.group[claim]].append(claim)
    floors, tops = [0.0] * last, [0.0] * last
    for number in reversed(range(last)):
        pool, below, held = pools[number], inside[number], members[number]
        low = sum([floors[p] for p in below]) + sum([claims.min_share[j] for j in held])
        high = sum([tops[p] for p in below]) + sum([claims.max_share[j] for j in held])
        tops[number] = min(pool.slots_max, high)
        floors[number] = min(tops[number], max(pool.slots_min, low))
    slots, shares = [0.0] * last + [float(claims.capacity)], [0.0] * len(claims)
    for number in range(-1, last):
        if below := inside[number]:
            weight = [pools[p].weight for p in below]
            parts = [floors[p] for p in below], [tops[p] for p in below]
            for p, share in zip(below, water_line(slots[number], weight, *parts), strict=True):
                slots[p] = share
        elif held := members[number]:
            min_share, max_share = (
                [claims.min_share[j] for j in held],
                [claims.max_share[j] for j in held],
            )
            if pools[number].policy == "fifo":
                found = in_order(slots[number], min_share, max_share)
            else:
                weight = [claims.weight[j] for j in held]
                found = water_line(slots[number], weight, min_share, max_share)
            for j, share in zip(held, found, strict=True):
                shares[j] = share
    return shares


def in_order(
    slots: float, min_share: Sequence[float], max_share: Sequence[float]
) -> list[float]:
    """Min shares for all, scaled down if necessary; the rest of the slots go in order."""
    shares = scale_to(slots, min_share)
    left = max(0.0, slots - sum(shares))
    for number, top in enumerate(max_share):
        more = min(left, top - shares[number])
        shares[number] += more
        left -= more
    return shares


# FAIR for many claims: all pools of one depth are shared out at once, with numpy arrays.


def share_at_once(claims: Claims) -> list[float]:
    """The same shares as `share_by_pools` up to rounding. O(J log J), O(1) array steps.

    There are steps for each level of pools and two for the claims: one for claims in fair
    pools, one for claims in FIFO pools.
    """
    pools = claims.groups
    group = np.asarray(claims.group, dtype=np.intp)
    min_share, max_share = _floats(claims.min_share), _floats(claims.max_share)
    slots = _slots_of_pools(claims.capacity, pools, group, min_share, max_share)
    shares = np.zeros(len(claims))
    fifo = np.array([pool.policy == "fifo" for pool in pools])[group]
    if not fifo.all():
        fair = ~fifo if fifo.any() else np.s_[:]
        weight = _floats(claims.weight)[fair]
        shares[fair] = water_lines(slots, group[fair], weight, min_share[fair], max_share[fair])
    if fifo.any():
        turn = _in_turn(claims, group, np.flatnonzero(fifo))
        shares[turn] = in_orders(slots, group[turn], min_share[turn], max_share[turn])
    found: list[float] = shares.tolist()
    return found


def _slots_of_pools(
    capacity: float, pools: Sequence[Group], group: Ints, min_share: Floats, max_share: Floats
) -> Floats:
    """The slots of each pool: min and max shares bottom-up, then slots top-down."""
    count = len(pools)
    parent = np.array([pool.parent for pool in pools])
    weight, slots_min, slots_max = (
        np.array(values, dtype=float)
        for values in zip(*((p.weight, p.slots_min, p.slots_max) for p in pools), strict=True)
    )
    floors, tops = (np.bincount(group, v, count).astype(float) for v in (min_share, max_share))
    levels = _levels(pools)
    for level in reversed(levels):
        tops[level] = np.minimum(tops[level], slots_max[level])
        floors[level] = np.minimum(tops[level], np.maximum(slots_min[level], floors[level]))
        if level is not levels[0]:
            floors += np.bincount(parent[level], floors[level], count)
            tops += np.bincount(parent[level], tops[level], count)
    slots = np.append(np.zeros(count), capacity)  # The last is the root.
    for level in levels:
        parts = weight[level], floors[level], tops[level]
        slots[level] = water_lines(slots, parent[level] % (count + 1), *parts)
    return slots


def _levels(pools: Sequence[Group]) -> list[Ints]:
    """The pools at the top, those below them, and so on."""
    depth: list[int] = []
    for pool in pools:
        depth.append(0 if pool.parent < 0 else depth[pool.parent] + 1)
    return [np.flatnonzero(np.array(depth) == level) for level in range(max(depth) + 1)]


def _in_turn(claims: Claims, group: Ints, chosen: Ints) -> Ints:
    """These claims ordered by group, and within a group as by `in_turn`."""
    keys = [_floats(claims.arrival)[chosen], group[chosen]]
    if len(claims.priority):
        keys.insert(1, -_floats(claims.priority)[chosen])
    order: Ints = chosen[np.lexsort(keys)]
    return order


def _floats(values: Sequence[float]) -> Floats:
    return np.asarray(values, dtype=float)


# Slots are divided among jobs first, then inside each job among its ready phases.

OF_JOBS = (
    *("weight", "arrival", "group", "owner", "priority", "unmeasured", "place"),
    *("attained", "finish"),
)
"""The fields that a job has from the first of its claims."""

MANY_JOBS = 60
"""Above this number of claims of jobs that have several, arrays are faster."""


def share_by_jobs(
    claims: Claims, share: Callable[[Claims], list[float]], separate: Container[int] = ()
) -> list[float]:
    """Slots for each claim, such that the share of a job does not depend on its phases.

    `share` divides the slots among jobs. A job with several claims in a group is one claim for
    it: its guarantee and what it can use are the sums over its phases. What it gets is divided
    equally among its phases, within their min and max shares. O(J) besides `share`, and
    O(J log J) if some job has several claims.

    separate  the groups in which claims of the same job are not joined
    """
    owner = claims.owner
    if len({job.id for job, _ in owner}) == len(owner):
        return share(claims)
    index: dict[Hashable, int] = {}
    number = [
        index.setdefault(place if group in separate else (group, job.id), len(index))
        for place, (group, (job, _)) in enumerate(zip(claims.group, owner, strict=True))
    ]
    if len(index) == len(claims):
        return share(claims)
    return _divided(claims, number, share(_joined(claims, number, len(index))))


def _joined(claims: Claims, number: Sequence[int], count: int) -> Claims:
    """One claim for each job; `number` gives the job of each claim."""
    first = dict(zip(reversed(number), reversed(range(len(number))), strict=True))
    firsts = [first[job] for job in range(count)]
    columns: dict[str, Any] = {
        name: [column[n] for n in firsts] if len(column := getattr(claims, name)) else column
        for name in OF_JOBS
    }
    for name in ("work", "min_share", "max_share"):
        columns[name] = column = getattr(claims, name)
        if len(column):
            columns[name] = sums = [0.0] * count
            for job, value in zip(number, column, strict=True):
                sums[job] += value
    return replace(claims, **columns)


def _divided(claims: Claims, number: Sequence[int], slots: Sequence[float]) -> list[float]:
    """The slots of each job divided equally among its claims, within their limits."""
    members: list[list[int]] = [[] for _ in slots]
    for claim, job in enumerate(number):
        members[job].append(claim)
    if len(claims) - sum([len(inside) == 1 for inside in members]) > MANY_JOBS:
        min_share, max_share = (
            np.asarray(values, dtype=float) for values in (claims.min_share, claims.max_share)
        )
        weight, group = np.ones(len(claims)), np.asarray(number, dtype=np.intp)
        found = water_lines(np.asarray(slots), group, weight, min_share, max_share)
        shares: list[float] = found.tolist()
        return shares
    shares = [0.0] * len(claims)
    for of_job, inside in zip(slots, members, strict=True):
        if len(inside) == 1:
            shares[inside[0]] = of_job
            continue
        limits = (
            [column[j] for j in inside] for column in (claims.min_share, claims.max_share)
        )
        for j, part in zip(
            inside, water_line(of_job, [1.0] * len(inside), *limits), strict=True
        ):
            shares[j] = part
    return shares


# FIFO: first come, first served.


class Fifo:
    """Jobs get their max shares in order; min shares are ignored (FLEX 4).

    This is the FIFO that the FLEX paper compares with: it keeps the max shares of jobs and
    pools but not their min shares. Jobs are ordered by priority, then by arrival, then by their
    order in the workload. O(J log J).
    """

    reads_work: ClassVar[bool] = False
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = False
    serves_in_turn: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        return grant(claims, self.order(claims), min_share=[0.0] * len(claims))

    def order(self, claims: Claims) -> list[int]:
        """The claims in the order in which they are served."""
        return in_turn(claims)


def in_turn(claims: Claims) -> list[int]:
    """The claims by priority, the highest first, then by arrival, then by place. O(J log J)."""
    arrival, priority = claims.arrival, claims.priority
    if len(priority):
        return sorted(range(len(claims)), key=lambda j: (-priority[j], arrival[j]))
    return sorted(range(len(claims)), key=arrival.__getitem__)
