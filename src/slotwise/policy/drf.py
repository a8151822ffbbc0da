"""The fair share by dominant resource, in pools within pools.

The rule is hierarchical dominant resource fairness (docs/algorithms/drf.md): the dominant share
of each claim, job and pool over its weight rises equally among siblings. Who needs a resource
that is used up, or has its max share, stops there; the others continue.

What a node of the tree holds is a polyline over its position among its siblings (`drf_lines`).
The polyline of a pool follows from the sum of those of its children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.core.ready_phases import Requests
from slotwise.core.resources import table
from slotwise.policy.allocator import Claims
from slotwise.policy.drf_lines import (
    SLOTS_COLUMN,
    Floats,
    LineSum,
    Polyline,
    first_above,
    near,
    outside,
)


def share_by_dominant(claims: Claims, order: Sequence[int]) -> list[float]:
    """Slots for each claim, by dominant resource, in a tree of pools.

    Several claims of one job in a fair pool count as one node, which divides what it gets
    among them by the same rule. Min shares come first; if they do not fit, all that need the
    same are scaled down by the same factor. `order` is the one in which pools of policy "fifo"
    serve their claims. O(J log J) for each resource that is used up and each level of pools.
    """
    tree = _Tree(claims, order)
    tree.place(tree.root, complex(inf))
    slots = tree.slots()
    # Rounding errors may exceed a total slightly.
    most = float((slots @ tree.part).max(initial=1.0))
    shares = np.empty(len(claims))
    shares[tree.claim] = slots / most
    found: list[float] = shares.tolist()
    return found


def room_for_one_need(claims: Claims) -> float | None:
    """The slots for which the resources suffice if all claims need the same; None if not."""
    first = claims.request[0]
    if any(group.limits for group in claims.groups) or any(
        one is not first and one != first for one in claims.request
    ):
        return None
    return 1 / float(_parts(claims)[0].max())


def by_dominant(claims: Claims) -> tuple[Claims, list[float]]:
    """The claims in units that occupy a slot each, and the units that each slot counts for.

    For allocators that divide slots only. A task counts for its dominant part of all slots,
    which is at least its own slots. So whatever the allocator gives, divided by these factors,
    fits into the totals and into the max shares of pools. Work, min and max shares are scaled;
    guarantees of pools mean that part of the cluster. O(J).
    """
    parts, use, _ = _parts(claims)
    dominant = parts.max(axis=1)
    can = dominant < inf
    factors = np.where(can, dominant * claims.capacity, 1.0)
    factor, usable = factors[use], (factors * can)[use]
    columns: dict[str, Any] = {
        name: (np.array(column, float) * scale).tolist()
        for name, scale in (("work", factor), ("min_share", usable), ("max_share", factor))
        if any(column := getattr(claims, name))
    }
    # What cannot run now gets nothing; allocators need claims that can hold something.
    units = np.where(can, factors, inf)[use].tolist()
    return replace(claims, request=(), **columns), units


LINES_KEPT, CLAIMS_KEPT = 500, 250
"""The lines that are kept, and the claims of a node of which one is: with many pools, most have
the same claims at the next decision. About 30 MB at most."""

_KEPT: dict[bytes, tuple[Polyline, Floats]] = {}
"""Lines with `stop` of their claims, by all that they depend on."""


_NO_ROWS = slice(0, 0)


@dataclass(slots=True, eq=False)
class _Node:
    """The whole cluster, a pool, or a job of several claims with different requests.

    floor     the guarantee, part of all slots
    limits    by resource, part of the totals
    own       the claims that are directly in it, as a range of the rows of the tree
    span      the claims in it at any depth
    seen      `stop` of these at the last call of `build`, before and after
    """

    weight: float
    floor: float
    limits: Floats
    is_fifo: bool = False
    children: tuple[_Node, ...] = ()
    own: slice = field(default_factory=lambda: _NO_ROWS)
    span: slice = field(default_factory=lambda: _NO_ROWS)
    line: Polyline | None = None
    seen: tuple[Floats, Floats] | None = None


class _Tree:
    """The nodes, and the claims as parallel arrays, the claims of each node side by side.

    claim  the number of each claim
    part   what one slot uses, as parts of the totals
    low    min share, slots
    begin, end, rate  it rises from `begin` to `end`, from its min share, with this rate
    stop   the position at which it is blocked
    level  the position that it has
    """

    def __init__(self, claims: Claims, order: Sequence[int]) -> None:
        parts, use, totals = _parts(claims)
        # The limits of the whole cluster are the totals.
        self.root = _Node(1.0, 0.0, np.ones(parts.shape[1]))
        groups = self._groups(claims, totals)
        inside: dict[int, list[_Node]] = {}
        for group, node in zip(claims.groups, groups, strict=True):
            inside.setdefault(group.parent, []).append(node)
        for number, nodes in inside.items():
            (self.root if number < 0 else groups[number]).children = tuple(nodes)
        rows, weight = self._members(claims, order, groups)
        self.claim = rows
        kinds, dominant = use[rows], parts.max(axis=1)
        parts[dominant == inf] = 0.0
        self.part, dominant = parts[kinds], dominant[kinds]
        can = dominant < inf
        top = np.array(claims.max_share, float)[rows] * can
        self.low = np.minimum(np.array(claims.min_share, float)[rows], top)
        dominant = np.where(can, dominant, 1.0)
        self.rate = weight / dominant
        self.begin, self.end = 1 + self.low / self.rate, 1 + top / self.rate
        self.stop, self.level = np.full(len(top), inf), np.zeros(len(top))
        self._guarantees(self.root, top, float(claims.capacity))
        self._in_order(self.root, dominant, top)
        self.build(self.root)

    def _groups(self, claims: Claims, totals: dict[str, tuple[int, float]]) -> list[_Node]:
        nodes, nothing = [], np.full(len(totals), inf)
        for group in claims.groups:
            has_limits = group.slots_max < inf or group.limits
            limits = nothing.copy() if has_limits else nothing
            for name, amount in (("", group.slots_max), *group.limits.items()):
                if name in totals:
                    column, total = totals[name]
                    limits[column] = amount / total if total else inf
            nodes.append(
                _Node(
                    group.weight,
                    group.slots_min / claims.capacity,
                    limits,
                    group.policy == "fifo",
                )
            )
        return nodes

    def _members(
        self, claims: Claims, order: Sequence[int], groups: Sequence[_Node]
    ) -> tuple[NDArray[np.intp], Floats]:
        """Add the claims to the nodes, side by side; the claim of each row, and its weight."""
        members = _by_group(claims, order)
        has_jobs = not claims.job_weight and (
            len({job.id for job, _ in claims.owner}) < len(claims)
        )
        claim, equal, count = [np.empty(0, np.intp)], list[int](), 0

        def add(several: NDArray[np.intp]) -> slice:
            nonlocal count
            claim.append(several)
            count += len(several)
            return slice(count - len(several), count)

        def walk(node: _Node) -> None:
            begun, inner = count, node.children
            if node in number:
                own = members[number[node]]
                jobs = _of_jobs(claims, own.tolist()) if has_jobs and not node.is_fifo else []
                for several in jobs:
                    job = _Node(claims.weight[several[0]], 0.0, np.full(len(node.limits), inf))
                    job.own = job.span = add(np.array(several))
                    equal.extend(range(job.own.start, job.own.stop))
                    node.children += (job,)
                joined = [j for several in jobs for j in several]
                node.own = node.span = add(own[~np.isin(own, joined)] if joined else own)
                if node.is_fifo:
                    equal.extend(range(node.own.start, node.own.stop))
            for child in inner:
                walk(child)
            if node.children:
                node.span = slice(begun, count)

        number = {node: n for n, node in enumerate(groups)}
        walk(self.root)
        rows = np.concatenate(claim)
        weight = np.array(claims.weight, float)[rows]
        weight[equal] = 1.0
        return rows, weight

    def _guarantees(self, node: _Node, top: Floats, capacity: float) -> tuple[float, float]:
        """Set the floor of each node; its floor and what it can use, parts of all slots."""
        low = float(self.low[node.own].sum()) / capacity
        high = float(top[node.own].sum()) / capacity
        for child in node.children:
            floor, most = self._guarantees(child, top, capacity)
            low, high = low + floor, high + most
        high = min(high, float(node.limits[SLOTS_COLUMN]))
        node.floor = min(high, max(node.floor, low))
        return node.floor, high

    def _in_order(self, node: _Node, dominant: Floats, top: Floats) -> None:
        """In pools of policy "fifo", claims rise one after the other."""
        for child in node.children:
            self._in_order(child, dominant, top)
        if node.is_fifo:
            rows = node.own
            ends = 1 + np.cumsum((top[rows] - self.low[rows]) * dominant[rows])
            self.end[rows] = ends
            self.begin[rows] = np.concatenate(([1.0], ends[:-1]))

    def slots(self) -> Floats:
        """The slots of each claim at its position."""
        level = np.minimum(self.level, self.stop)
        rise = np.clip(level, self.begin, self.end) - self.begin
        found: Floats = self.low * np.minimum(level, 1.0) + rise * self.rate
        return found

    def place(self, node: _Node, at: complex) -> None:
        """Set the level of each claim in a node at this position."""
        line = node.line
        assert line is not None
        self._place_inside(node, line.inside_at(at))

    def _place_inside(self, node: _Node, inside: complex) -> None:
        self.level[node.own] = inside.real
        for child in node.children:
            self.place(child, inside)

    def build(self, node: _Node) -> Polyline:
        """The line of a node, in which claims stop at its limits and those inside it."""
        rows = node.span
        base = self.stop[rows].copy()
        if node.seen is not None and np.array_equal(node.seen[0], base):
            self.stop[rows] = node.seen[1]
            assert node.line is not None
            return node.line
        key = self._key(node, base)
        if (kept := _KEPT.get(key)) is not None:  # Other threads may clear it.
            node.line, self.stop[rows] = kept
            node.seen = None  # It belongs to another line.
            return node.line
        begun, left = base, node.limits.copy()
        while True:
            self.stop[rows] = base
            line = self._sum(node, left)
            hit = first_above(line, left)
            if hit is None:
                break
            resource, vertex, part = hit
            line = line.until(vertex, part)
            users = self.part[rows, resource] > 0
            if users.all():
                break
            self._place_inside(node, line.inside[-1])
            base = np.where(users, np.minimum(base, self.level[rows]), base)
            left[resource] = inf
        node.seen = begun, self.stop[rows].copy()
        node.line = line if node is self.root else outside(line, node.floor, node.weight)
        if key:
            if len(_KEPT) >= LINES_KEPT:
                _KEPT.clear()
            _KEPT[key] = node.line, node.seen[1]
        return node.line

    def _key(self, node: _Node, base: Floats) -> bytes:
        """All that the line of a small node without children depends on; empty for others."""
        if node.children or not 0 < len(base) <= CLAIMS_KEPT:
            return b""
        numbers = np.array([len(base), len(node.limits), node.floor, node.weight])
        columns = (self.part, self.low, self.rate, self.begin, self.end)
        own = [column[node.span].tobytes() for column in columns]
        return b"".join((numbers.tobytes(), node.limits.tobytes(), base.tobytes(), *own))

    def _sum(self, node: _Node, limits: Floats) -> Polyline:
        """What is in a node, over the positions in it; of the root, where it reaches limits."""
        lines = [self.build(child) for child in node.children]
        if node.own.start < node.own.stop or not lines:
            lines.append(self._of_claims(node.own))
        if len(lines) == 1:
            return lines[0]._replace(inside=lines[0].at)
        at, together = np.concatenate([line.at for line in lines]), LineSum(lines)
        at = np.unique(near(at, together, limits) if node is self.root else at)
        return Polyline(at, at, together.used_at(at))

    def _of_claims(self, rows: slice) -> Polyline:
        """What these claims hold together, over the positions of all."""
        part, low, stop = self.part[rows], self.low[rows], self.stop[rows]
        rising = part * self.rate[rows, None]
        early = stop < 1
        at = [np.array([0.0, 1.0]), stop[early]]
        at += [np.minimum(self.begin[rows], stop), np.minimum(self.end[rows], stop)]
        scaled = part * low[:, None]
        late = scaled[~early] if early.any() else scaled
        change = [scaled.sum(axis=0)[None], -late.sum(axis=0)[None], -scaled[early]]
        positions = np.concatenate(at)
        order = np.argsort(positions, kind="stable")
        positions = positions[order]
        slope = np.cumsum(np.concatenate([*change, rising, -rising])[order], axis=0)
        used = np.zeros_like(slope)
        np.cumsum(slope[:-1] * np.diff(positions)[:, None], axis=0, out=used[1:])
        is_new = np.append(True, positions[1:] != positions[:-1])  # Many need the same.
        vertices = positions[is_new].astype(complex)
        return Polyline(vertices, vertices, used[is_new])


def _parts(claims: Claims) -> tuple[Floats, NDArray[np.intp], dict[str, tuple[int, float]]]:
    """What one slot of each kind of request uses, the kind of each claim, and the totals.

    The totals are pairs of column and amount, by name; "" is all slots together. A request of
    what the cluster lacks is infinite.
    """
    names, amounts, slots, use = _amounts(claims)
    totals = {"": (SLOTS_COLUMN, float(claims.capacity))}
    parts = np.empty((len(amounts), 1 + len(names)))
    parts[:, SLOTS_COLUMN] = 1 / claims.capacity
    for name, of_each in zip(names, amounts.T, strict=True):
        totals[name] = column, total = len(totals), float(claims.totals.get(name, 0))
        each = of_each / slots
        parts[:, column] = each / total if total else np.where(each, inf, 0.0)
    return parts, use, totals


def _amounts(
    claims: Claims,
) -> tuple[Sequence[str], NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]]:
    """The requested resources, a row of amounts and the slots of each kind of request, and the
    kind of each claim. Where the amounts are kept, each request is a kind of its own."""
    request = claims.request
    if isinstance(request, Requests):
        return request.names, request.amounts, request.slots, np.arange(len(claims))
    # Claims that request the same share one value: comparing by identity is fast.
    keys = np.fromiter(map(id, request), np.int64, len(claims))
    _, first, use = np.unique(keys, return_index=True, return_inverse=True)
    found = table([request[n] for n in first.tolist()])
    slots = np.array([claims.owner[n][1].slots for n in first.tolist()])
    return list(found), np.array(list(found.values()), np.int64).T, slots, use


def _by_group(claims: Claims, order: Sequence[int]) -> list[NDArray[np.intp]]:
    """The claims in each group, in this order."""
    ordered = np.array(order, np.intp)
    if len(claims.groups) == 1:
        return [ordered]
    group = np.array(claims.group, np.intp)[ordered]
    ends = np.bincount(group, minlength=len(claims.groups)).cumsum().tolist()
    joined = ordered[np.argsort(group, kind="stable")]
    return [joined[begin:end] for begin, end in pairwise([0, *ends])]


def _of_jobs(claims: Claims, members: Sequence[int]) -> list[list[int]]:
    """The claims of each job that has several of these."""
    jobs: dict[str, list[int]] = {}
    for j in members:
        jobs.setdefault(claims.owner[j][0].id, []).append(j)
    return [several for several in jobs.values() if len(several) > 1]
