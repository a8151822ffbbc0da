"""Divides a pool's min or max share for several kinds of slots together among these kinds.

Allocators share out one kind of slot after the other, so a number for several kinds is divided
first. A min share is divided into whole slots of each kind, guided by the allocation without
it. A max share is divided as the allocator itself would share out that number of slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, inf
from typing import Any

from slotwise.core.job import PRIORITIES
from slotwise.core.pools import ShareKey
from slotwise.core.tolerances import SLOTS
from slotwise.policy.allocator import Allocator, Claims, Group, is_joint

ByKind = Mapping[str, Claims]
Slots = Mapping[str, Sequence[float]]
Member = tuple[str, int]
"""A claim: its kind of slot, and its number among the claims on these."""

COLUMNS = (
    *("weight", "arrival", "work", "owner", "priority", "unmeasured", "place"),
    *("attained", "finish"),
)
"""The fields of claims that do not depend on the kind of slot."""

NORMAL = PRIORITIES["normal"]
"""The priority of claims where the field is empty because all are normal."""


def share_slots(allocator: Allocator, claims: ByKind, is_whole: bool) -> Slots:
    """Slots for each claim on each kind of slot: all at once, or kind by kind.

    Min and max shares that pools state for several kinds together hold for the sum over these
    kinds. With `is_whole`, max shares also hold after shares are rounded up.
    """

    def give(claims: ByKind) -> Slots:
        if is_joint(allocator):
            return allocator.share_all(claims) if claims else {}
        return {kind: allocator.share(of_kind) for kind, of_kind in claims.items()}

    if len(claims) < 2:
        return give(claims)
    keeps_min = allocator.keeps_min_shares
    return share_in_kinds(claims, give, allocator.share, keeps_min=keeps_min, is_whole=is_whole)


def share_in_kinds(
    claims: ByKind,
    give: Callable[[ByKind], Slots],
    give_one: Callable[[Claims], Sequence[float]],
    *,
    keeps_min: bool,
    is_whole: bool,
) -> Slots:
    """Slots from `give`, such that shares stated for several kinds hold for the sum over them.

    give       slots for all claims, kind by kind
    give_one   slots for claims that all draw on the same slots
    keeps_min  whether min shares are kept
    is_whole   whether max shares also hold for slots that are rounded up, as plans do

    Pools at the same depth that exceed their max shares are cut together, then `give` is called
    again. For most workloads the number of these calls is the number of levels of such pools.
    """
    divided = _divided(claims)
    if not divided:
        return give(claims)
    forest = _Forest(claims, divided)
    floors: Slots = {kind: of_kind.min_share for kind, of_kind in claims.items()}
    if keeps_min:
        preferred = floors
        if any(forest.groups[key].slots_min for key in forest.divided):
            nothing = {key: dict.fromkeys(claims, 0.0) for key in forest.divided}
            preferred = give(_restated(claims, "slots_min", nothing))
        floors = _min_floors(claims, forest, preferred)
        guaranteed = {key: forest.sums(key, floors) for key in forest.divided}
        claims = _restated(claims, "slots_min", guaranteed)
    left, slots = forest.divided, give(claims)
    while above := [key for key in left if _is_above(forest, key, slots, is_whole)]:
        # Inner pools first, so that the pools that contain them use all of their slots.
        inner = [key for key in above if forest.depth[key] == forest.depth[above[0]]]
        parts = {
            key: _max_parts(claims, forest, key, slots, floors, give_one, is_whole)
            for key in inner
        }
        left = [key for key in left if key not in parts]
        claims = _restated(claims, "slots_max", parts)
        slots = give(claims)
    return slots


def _divided(claims: ByKind) -> list[ShareKey]:
    """The pools with a min or max share for several kinds together. O(pools)."""
    kinds = Counter(
        group.key
        for of_kind in claims.values()
        for group in of_kind.groups
        if group.slots_min > 0 or group.slots_max < inf
    )
    return [key for key, count in kinds.items() if key is not None and count > 1]


class _Forest:
    """The pools on all kinds of slots, where groups with the same key are one pool.

    groups   by key, each after the one that contains it
    members  the claims in each pool: their indices, by kind
    paths    by kind, for each group the keys from itself up to the top
    depth    of each pool, 1 at the top
    divided  pools with a share for several kinds together, inner ones first
    """

    def __init__(self, claims: ByKind, divided: Sequence[ShareKey]) -> None:
        self.groups: dict[ShareKey, Group] = {}
        self.members: dict[ShareKey, dict[str, list[int]]] = {}
        self.paths: dict[str, list[list[ShareKey]]] = {}
        self.depth: dict[ShareKey, int] = {}
        self._claims = claims
        for kind, of_kind in claims.items():
            paths = self.paths[kind] = []
            for group in of_kind.groups:
                key = group.key
                assert key is not None, "groups of several kinds have keys"
                paths.append([key, *(paths[group.parent] if group.parent >= 0 else ())])
                self.groups.setdefault(key, group)
                self.members.setdefault(key, {})[kind] = []
                self.depth[key] = len(paths[-1])
            for number, place in enumerate(of_kind.group):
                for key in paths[place]:
                    self.members[key][kind].append(number)
        self.divided = sorted(divided, key=lambda key: -self.depth[key])

    def path(self, member: Member) -> Sequence[ShareKey]:
        """The pools of a claim, from the innermost to the top."""
        kind, number = member
        return self.paths[kind][self._claims[kind].group[number]]

    def sums(self, key: ShareKey, slots: Slots) -> dict[str, float]:
        """The slots of each kind that the claims in a pool have."""
        inside = self.members[key]
        return {
            kind: sum([of_kind[number] for number in inside.get(kind, ())])
            for kind, of_kind in slots.items()
        }


def _restated(
    claims: ByKind, name: str, parts: Mapping[ShareKey, Mapping[str, float]]
) -> ByKind:
    """The claims with the field `name` of these pools replaced by its part of each kind."""

    def restated(group: Group, kind: str) -> Group:
        if group.key is None or group.key not in parts:
            return group
        stated: dict[str, Any] = {name: parts[group.key][kind]}
        return replace(group, **stated)

    return {
        kind: replace(of_kind, groups=[restated(group, kind) for group in of_kind.groups])
        for kind, of_kind in claims.items()
    }


class _Floors:
    """Guaranteed slots of claims, raised step by step.

    slots  guaranteed to each claim, by kind
    held   slots guaranteed in each pool
    free   slots of each kind that are not guaranteed to any claim
    """

    def __init__(self, claims: ByKind, forest: _Forest) -> None:
        self.slots = {
            kind: [float(s) for s in of_kind.min_share] for kind, of_kind in claims.items()
        }
        self.free = {kind: c.capacity - sum(c.min_share) for kind, c in claims.items()}
        self.held = {key: sum(forest.sums(key, self.slots).values()) for key in forest.members}
        self._claims, self._forest = claims, forest

    def raise_to_min(self, key: ShareKey, preferred: Slots) -> float:
        """Raise the guarantees in a pool to its min share; the number beyond the free slots.

        They are raised first to the slots of each kind that the pool would get without a
        guarantee, then on the kinds with the most free slots. Slots beyond the free ones are
        guaranteed as well; their number is returned.
        """
        if self._forest.groups[key].slots_min <= self.held[key]:
            return 0.0
        wanted = self._forest.sums(key, preferred)
        before = self._forest.sums(key, self.slots)
        for kind, slots in wanted.items():
            part = min(floor(slots + SLOTS) - before[kind], self.free[kind])
            self._raise(key, kind, part)
        for kind in sorted(self.free, key=lambda kind: -self.free[kind]):
            self._raise(key, kind, self.free[kind])
        return sum(self._raise(key, kind, inf) for kind in self.free)

    def cut_to_max(self, key: ShareKey) -> None:
        """Scale the guarantees in a pool down to its max share, which is hard."""
        max_share, held = self._forest.groups[key].slots_max, self.held[key]
        if held > max_share:
            for kind, numbers in self._forest.members[key].items():
                for number in numbers:
                    self._add((kind, number), self.slots[kind][number] * (max_share / held - 1))

    def _raise(self, key: ShareKey, kind: str, slots: float) -> float:
        """Guarantee up to `slots` more slots of a kind in a pool; the number it took."""
        begun = self.held[key]
        goal = min(self._forest.groups[key].slots_min, begun + slots)
        for number in self._forest.members[key].get(kind, ()):
            left = goal - self.held[key]
            if left <= 0:
                break
            self._add((kind, number), max(0.0, min(left, self._room((kind, number), key))))
        return self.held[key] - begun

    def _room(self, member: Member, key: ShareKey) -> float:
        """How many more slots can be guaranteed to a claim, within its pools up to `key`."""
        kind, number = member
        room = self._claims[kind].max_share[number] - self.slots[kind][number]
        for pool in self._forest.path(member):
            room = min(room, self._forest.groups[pool].slots_max - self.held[pool])
            if pool == key:
                break
        return room

    def _add(self, member: Member, slots: float) -> None:
        kind, number = member
        self.slots[kind][number] += slots
        self.free[kind] -= slots
        for pool in self._forest.path(member):
            self.held[pool] += slots


def _min_floors(claims: ByKind, forest: _Forest, preferred: Slots) -> Slots:
    """The guarantee of each claim, such that each pool has its min share over all kinds.

    Inner pools come first. If a pool finds no free slot of the kinds that it can use, it moves
    to the front of the pools at its depth, and everything starts again. This ends when no pool
    fails, when an order repeats, or after as many orders as there are pools, plus one.
    """
    rank = {key: (-forest.depth[key], 0) for key in forest.divided}
    simple = [key for key in reversed(forest.groups) if key not in rank]
    tried: set[tuple[ShareKey, ...]] = set()
    while (order := tuple(sorted(rank, key=rank.__getitem__))) not in tried:
        tried.add(order)
        floors, failed = _Floors(claims, forest), []
        for key in [*simple, *order]:
            floors.cut_to_max(key)
            if floors.raise_to_min(key, preferred) > SLOTS and key in rank:
                failed.append(key)
        for key in failed:
            rank[key] = (rank[key][0], -len(tried))
        if len(tried) > len(rank):
            break
    return floors.slots


def _is_above(forest: _Forest, key: ShareKey, slots: Slots, is_whole: bool) -> bool:
    """Whether a pool has more slots than its max share for several kinds together."""
    given = forest.sums(key, slots).values()
    total = sum(ceil(part - SLOTS) if is_whole else part for part in given)
    return total > forest.groups[key].slots_max * (1 + SLOTS)


def _max_parts(
    claims: ByKind,
    forest: _Forest,
    key: ShareKey,
    slots: Slots,
    floors: Slots,
    give_one: Callable[[Claims], Sequence[float]],
    is_whole: bool,
) -> dict[str, float]:
    """The slots of each kind that a pool gets when its max share is kept over all kinds.

    The allocator shares out that number of slots among the claims in the pool, as if they all
    drew on the same slots. Each claim can use at most what it was given of its kind.
    """
    max_share = forest.groups[key].slots_max
    parts = forest.sums(key, slots)
    if max_share <= 0:
        return dict.fromkeys(parts, 0.0)
    if sum(parts.values()) > max_share:
        members = [
            (kind, number)
            for kind, numbers in forest.members[key].items()
            for number in numbers
            if slots[kind][number] > SLOTS
        ]
        members.sort(key=lambda member: claims[member[0]].place[member[1]])
        found = give_one(_joined(claims, forest, key, members, slots, floors))
        parts = dict.fromkeys(parts, 0.0)
        for (kind, _), share in zip(members, found, strict=True):
            parts[kind] += share
    return _rounded(parts, max_share) if is_whole else parts


def _joined(
    claims: ByKind,
    forest: _Forest,
    key: ShareKey,
    members: Sequence[Member],
    slots: Slots,
    floors: Slots,
) -> Claims:
    """Claims on several kinds as claims on the slots of one pool."""
    index: dict[ShareKey, int] = {}
    groups: list[Group] = []
    for member in members:
        path = forest.path(member)
        parent = -1
        for pool in reversed(path[: path.index(key) + 1]):
            if pool not in index:
                index[pool] = len(groups)
                # Any claim in the pool may use its guarantee, not only those that hold it.
                owed = sum(forest.sums(pool, floors).values())
                min_share = min(owed, sum(forest.sums(pool, slots).values()))
                groups.append(replace(forest.groups[pool], slots_min=min_share, parent=parent))
            parent = index[pool]

    columns: dict[str, Any] = {name: column(claims, name, members) for name in COLUMNS}
    return replace(
        next(iter(claims.values())),
        capacity=int(forest.groups[key].slots_max),
        min_share=[min(floors[kind][n], slots[kind][n]) for kind, n in members],
        max_share=[slots[kind][n] for kind, n in members],
        group=[index[forest.path(member)[0]] for member in members],
        groups=groups,
        left=left_of_jobs(claims),
        job_weight=(),
        deadline=(),
        **columns,
    )


def left_of_jobs(claims: ByKind) -> dict[str, Sequence[float]]:
    """`Claims.left` of the claims on all kinds of slots."""
    return {job: left for c in claims.values() for job, left in c.left.items()}


def column(claims: ByKind, name: str, members: Sequence[Member]) -> list[Any]:
    """A field of these claims; empty if it is empty on each kind."""
    fields = {kind: getattr(of_kind, name) for kind, of_kind in claims.items()}
    if not any(map(len, fields.values())):
        return []
    return [fields[kind][n] if len(fields[kind]) else NORMAL for kind, n in members]


def _rounded(parts: Mapping[str, float], max_share: float) -> dict[str, float]:
    """The parts rounded down, then up by largest remainder while the sum fits `max_share`."""
    whole = {kind: float(floor(part + SLOTS)) for kind, part in parts.items()}
    for kind in sorted(parts, key=lambda kind: whole[kind] - parts[kind]):
        if parts[kind] > whole[kind] + SLOTS and sum(whole.values()) + 1 <= max_share:
            whole[kind] += 1
    return whole
