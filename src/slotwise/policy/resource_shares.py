"""The slots of claims of which some need other resources, within the limits of their pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from slotwise.core.cluster import Cluster
from slotwise.core.job import Phase
from slotwise.core.pools import ShareKey
from slotwise.core.resources import NOTHING, Resources, with_slots
from slotwise.core.tolerances import SLOTS
from slotwise.policy.allocator import Allocator, Claims, Group, reads_requests
from slotwise.policy.cross_kind_limits import (
    COLUMNS,
    ByKind,
    Member,
    Slots,
    column,
    left_of_jobs,
    share_slots,
)
from slotwise.policy.drf import by_dominant
from slotwise.policy.fair import Fair


def share_all(allocator: Allocator, claims: ByKind, *, is_whole: bool = False) -> Slots:
    """Slots for each claim on each kind of slot: all at once, or kind by kind.

    Min and max shares that pools state for several kinds together hold for the sum over these
    kinds. With `is_whole`, max shares also hold after shares are rounded up.
    """
    if any(len(of_kind.request) for of_kind in claims.values()):
        return _share_resources(allocator, claims, is_whole)
    return share_slots(allocator, claims, is_whole)


def occupied_by_slot(phase: Phase, cluster: Cluster) -> float:
    """The slots that each slot of a phase is worth by the greatest part that a task occupies.

    More than 1 if a task requests a greater part of another resource of the cluster.
    """
    if not phase.needs:
        return 1.0
    slots, totals = cluster.capacity[cluster.slot_kind(phase.kind)], cluster.totals
    worth = 1.0
    for name, amount in phase.needs.pairs:
        worth = max(worth, slots * amount / (phase.slots * max(totals.get(name, 0), 1)))
    return worth


def _share_resources(allocator: Allocator, claims: ByKind, is_whole: bool) -> Slots:
    """Slots for claims of which some need other resources, which all kinds of slots share.

    By dominant resource, all claims are one problem, in which each kind of slot is a resource.
    Other allocators divide the slots of each kind by what a task occupies, in the part of the
    resources that the claims on this kind would get by dominant resource.
    """
    if len(claims) > 1:
        joined, members = _together(claims)
        fair: dict[str, list[float]] = {kind: [0.0] * len(c) for kind, c in claims.items()}
        shares = (allocator if reads_requests(allocator) else Fair()).share(joined)
        for (kind, number), share in zip(members, shares, strict=True):
            fair[kind][number] = share
        if reads_requests(allocator):
            return fair
        claims = _with_parts(claims, joined, members, shares)
    elif reads_requests(allocator):
        return share_slots(allocator, claims, is_whole)
    give = partial(_give, allocator, is_whole)
    return _within_limits(claims, give, allocator.share)


def _give(allocator: Allocator, is_whole: bool, claims: ByKind) -> Slots:
    """Slots from an allocator that divides slots only; none for claims that can use none."""
    slots = {kind: [0.0] * len(of_kind) for kind, of_kind in claims.items()}
    can, units, scaled = dict[str, Sequence[int]](), dict[str, list[float]](), {}
    for kind, of_kind in claims.items():
        can[kind] = range(len(of_kind))
        if 0 in of_kind.max_share:
            can[kind] = [n for n, most in enumerate(of_kind.max_share) if most > 0]
            of_kind = of_kind.some(can[kind])
        if can[kind]:
            scaled[kind], units[kind] = by_dominant(of_kind)
    for kind, shares in share_slots(allocator, scaled, is_whole).items() if scaled else ():
        for number, share, unit in zip(can[kind], shares, units[kind], strict=True):
            slots[kind][number] = share / unit
    return slots


def _together(claims: ByKind) -> tuple[Claims, list[Member]]:
    """The claims on all kinds of slots as one problem, and the kind and number of each."""
    index: dict[ShareKey | None, int] = {}
    groups: list[Group] = []
    place: dict[str, list[int]] = {}
    request: dict[str, Sequence[Resources]] = {}
    for kind, of_kind in claims.items():
        place[kind] = []
        for group in of_kind.groups:
            number = index.setdefault(group.key, len(groups))
            place[kind].append(number)
            if number == len(groups):
                parent = place[kind][group.parent] if group.parent >= 0 else -1
                groups.append(replace(group, parent=parent))
        request[kind] = of_kind.request or [
            with_slots(kind, phase.slots, NOTHING) for _, phase in of_kind.owner
        ]
    members = [(kind, n) for kind, of_kind in claims.items() for n in range(len(of_kind))]
    members.sort(key=lambda member: claims[member[0]].place[member[1]])
    columns: dict[str, Any] = {
        name: column(claims, name, members) for name in (*COLUMNS, "min_share", "max_share")
    }
    return replace(
        next(iter(claims.values())),
        capacity=sum(of_kind.capacity for of_kind in claims.values()),
        group=[place[kind][claims[kind].group[n]] for kind, n in members],
        groups=groups,
        request=[request[kind][n] for kind, n in members],
        totals=next(of_kind.totals for of_kind in claims.values() if len(of_kind.request)),
        left=left_of_jobs(claims),
        job_weight=(),
        deadline=(),
        **columns,
    ), members


def _with_parts(
    claims: ByKind, joined: Claims, members: Sequence[Member], shares: Sequence[float]
) -> ByKind:
    """The claims of each kind, with the part of the totals that these shares give the kind."""
    used: dict[str, dict[str, float]] = {kind: {} for kind in claims}
    for (kind, number), share, request in zip(members, shares, joined.request, strict=True):
        tasks = share / claims[kind].owner[number][1].slots
        for name, amount in request.items():
            used[kind][name] = used[kind].get(name, 0.0) + tasks * amount
    whole = {
        name: sum(of_kind.get(name, 0.0) for of_kind in used.values()) for name in joined.totals
    }

    def part(kind: str, name: str, total: int) -> int:
        if name in claims or not whole[name]:
            return total
        return int(total * used[kind].get(name, 0.0) / whole[name])

    needs = dict(zip(members, joined.request, strict=True))
    return {
        kind: replace(
            of_kind,
            request=[needs[kind, number] for number in range(len(of_kind))],
            totals=Resources({n: part(kind, n, t) for n, t in joined.totals.items()}),
        )
        for kind, of_kind in claims.items()
    }


# Limits of pools, where the allocator divides slots only.


def _within_limits(
    claims: ByKind,
    give: Callable[[ByKind], Slots],
    give_one: Callable[[Claims], Sequence[float]],
) -> Slots:
    """Slots from `give`, such that pools exceed none of their limits of other resources.

    What a pool may hold of a resource is divided among its claims as the allocator divides
    slots (`give_one`). Each of them can use no more than that, and `give` shares out again, so
    that others get the rest. At most as many calls as there are limits, inner pools first.
    """
    limits = {
        (group.key.pool, name): most
        for of_kind in claims.values()
        for group in reversed(of_kind.groups)
        if group.key is not None
        for name, most in group.limits.items()
    }
    slots = give(claims)
    while limits:
        for (pool, name), most in limits.items():
            users = _users(claims, pool, name)
            used = sum([each * slots[kind][n] for (kind, n), each in users.items()])
            if used > most * (1 + SLOTS):
                break
        else:
            break
        del limits[pool, name]
        claims = _cut(claims, _parts_of(claims, users, name, most, give_one))
        slots = give(claims)
    return slots


def _users(claims: ByKind, pool: str, name: str) -> dict[Member, float]:
    """The claims in a pool that need a resource, and the amount of it for each slot. O(J)."""
    found: dict[Member, float] = {}
    for kind, of_kind in claims.items():
        inside: list[bool] = []
        for group in of_kind.groups:
            is_it = group.key is not None and group.key.pool == pool
            inside.append(is_it or (group.parent >= 0 and inside[group.parent]))
        for number, (place, request) in enumerate(
            zip(of_kind.group, of_kind.request, strict=True)
        ):
            if inside[place] and (amount := request.get(name, 0)):
                found[kind, number] = amount / of_kind.owner[number][1].slots
    return found


def _parts_of(
    claims: ByKind,
    users: Mapping[Member, float],
    name: str,
    most: int,
    give_one: Callable[[Claims], Sequence[float]],
) -> dict[Member, float]:
    """The slots of each user of a resource when `most` of it is divided as slots are."""
    if not most:
        return dict.fromkeys(users, 0.0)
    joined, members = _together(claims)
    numbers = [
        number
        for number, member in enumerate(members)
        if member in users and joined.max_share[number] > 0
    ]
    units = [joined.capacity * users[members[number]] / most for number in numbers]
    groups = [
        replace(group, slots_min=0.0, slots_max=inf, limits={}) for group in joined.groups
    ]
    problem = joined.some(numbers, groups=groups)
    columns: dict[str, Any] = {
        column: [value * unit for value, unit in zip(values, units, strict=True)]
        for column in ("work", "min_share", "max_share")
        if (values := getattr(problem, column))
    }
    left = _left_within(problem, name, most)
    shares = give_one(replace(problem, request=(), left=left, **columns))
    return {
        members[number]: share / unit
        for number, share, unit in zip(numbers, shares, units, strict=True)
    }


def _left_within(claims: Claims, name: str, most: int) -> dict[str, list[float]]:
    """`Claims.left`, where phases that need a resource count by their part of `most` of it."""

    def units(phase: Phase) -> float:
        if not (amount := phase.needs.get(name, 0)):
            return 1.0
        part = amount / phase.slots / most
        return claims.capacity * part / occupied_by_slot(phase, claims.cluster)

    return {
        job.id: [work * units(one) for work, one in zip(left, job.phases, strict=True)]
        for job in {job.id: job for job, _ in claims.owner}.values()
        if (left := claims.left.get(job.id))
    }


def _cut(claims: ByKind, most: Mapping[Member, float]) -> ByKind:
    """The claims, of which these can use no more than these slots."""
    found = {}
    for kind, of_kind in claims.items():
        top = [min(x, most.get((kind, n), inf)) for n, x in enumerate(of_kind.max_share)]
        low = [min(pair) for pair in zip(of_kind.min_share, top, strict=True)]
        found[kind] = replace(of_kind, min_share=low, max_share=top)
    return found
