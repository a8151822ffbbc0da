"""FAIR: the allocation layer of the Hadoop Fair Scheduler."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from slotwise.policy.allocator import Claims
from slotwise.policy.drf import room_for_one_need, share_by_dominant
from slotwise.policy.grant import grant
from slotwise.policy.waterline import scale_to, water_line


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
    reads_requests: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        divide = _share_by_dominant if claims.request else share_by_pools
        return share_by_jobs(claims, divide, served_in_turn(claims))


def _share_by_dominant(claims: Claims) -> list[float]:
    room = room_for_one_need(claims)
    if room is None:
        return share_by_dominant(claims, in_turn(claims))
    return share_by_pools(claims, room)


def served_in_turn(claims: Claims) -> set[int]:
    """The groups of policy "fifo": the phases of a job get slots in their order there."""
    return {number for number, pool in enumerate(claims.groups) if pool.policy == "fifo"}


def share_by_pools(claims: Claims, room: float | None = None) -> list[float]:
    """The shares of jobs in a tree of pools, pool by pool. O(J) besides their order.

    `room` is the number of slots that can be used; by default it is the capacity.
    """
    capacity = float(claims.capacity) if room is None else room
    pools, last = claims.groups, len(claims.groups)
    if last == 1 and pools[0].policy == "fair":
        top = min(capacity, pools[0].slots_max)
        return water_line(top, claims.weight, claims.min_share, claims.max_share)
    # The last item of these lists is the root, which contains the pools at the top.
    inside: list[list[int]] = [[] for _ in range(last + 1)]
    for number, pool in enumerate(pools):
        inside[pool.parent].append(number)
    members: list[list[int]] = [[] for _ in range(last)]
    group = claims.group
    for claim in in_turn(claims):
        members[group[claim]].append(claim)
    least = [[claims.min_share[j] for j in held] for held in members]
    most = [[claims.max_share[j] for j in held] for held in members]
    floors, tops = [0.0] * last, [0.0] * last
    for number in reversed(range(last)):
        pool, below = pools[number], inside[number]
        low = sum([floors[p] for p in below]) + sum(least[number])
        high = sum([tops[p] for p in below]) + sum(most[number])
        tops[number] = min(pool.slots_max, high)
        floors[number] = min(tops[number], max(pool.slots_min, low))
    slots, shares = [0.0] * last + [capacity], [0.0] * len(claims)
    for number in range(-1, last):
        if below := inside[number]:
            weight = [pools[p].weight for p in below]
            parts = [floors[p] for p in below], [tops[p] for p in below]
            for p, share in zip(below, water_line(slots[number], weight, *parts), strict=True):
                slots[p] = share
        elif held := members[number]:
            min_share, max_share = least[number], most[number]
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


# Slots are divided among jobs first, then inside each job among its ready phases.

OF_JOBS = (
    *("weight", "arrival", "group", "owner", "priority", "unmeasured", "place"),
    *("attained", "finish", "request"),
)
"""The fields that a job has from the first of its claims."""


def share_by_jobs(
    claims: Claims, share: Callable[[Claims], list[float]], separate: Container[int] = ()
) -> list[float]:
    """Slots for each claim, such that the share of a job does not depend on its phases.

    `share` divides the slots among jobs. A job with several claims in a group is one claim for
    it: its guarantee and what it can use are the sums over its phases. What it gets is divided
    equally among its phases, within their min and max shares. The claims of a job whose phases
    have different requests are not joined. O(J) besides `share`, and O(J log J) if some job
    has several claims.

    separate  the groups in which claims of the same job are not joined
    """
    owner = claims.owner
    if claims.job_weight or len({job.id for job, _ in owner}) == len(owner):
        return share(claims)
    index: dict[Hashable, int] = {}
    mixed = _mixed(claims)
    number = [
        index.setdefault(
            place if group in separate or job.id in mixed else (group, job.id), len(index)
        )
        for place, (group, (job, _)) in enumerate(zip(claims.group, owner, strict=True))
    ]
    if len(index) == len(claims):
        return share(claims)
    return _divided(claims, number, share(_joined(claims, number, len(index))))


def _mixed(claims: Claims) -> set[str]:
    """The jobs whose claims have different requests."""
    if not claims.request:
        return set()
    first: dict[str, Hashable] = {}
    needs = [
        (job.id, (request.pairs, phase.slots))
        for request, (job, phase) in zip(claims.request, claims.owner, strict=True)
    ]
    return {job for job, need in needs if first.setdefault(job, need) != need}


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
    order = sorted(range(len(claims)), key=arrival.__getitem__)
    if len(priority):
        order.sort(key=priority.__getitem__, reverse=True)  # Stable.
    return order
