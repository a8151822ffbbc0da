"""Nodes of the tree of shares that have children: pools, and jobs with several ready phases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, Protocol

from slotwise.runtime.ordering import Rank, ShareNode

NEVER = 1 << 60
"""More slots than there are: what a job without ready phases takes at once."""


class Member(Protocol):
    """A phase as its job sees it."""

    group: JobShare | None
    served: float
    rank: Rank | None
    order: int
    unit: int
    running: int
    slots_on_lost_hosts: int
    is_ready: bool


class GroupNode(ShareNode):
    """A pool or a job: it keeps its backlogged children in order.

    `running` and the other counters cover all phases below it; `demand` is the slots that these
    can use. `below` is the number of pool shares directly below it, and `has_groups` is set if
    there are or were pool shares or jobs. Its children are phases served in turn if
    `is_in_turn`, and it has given turns at the level `service` of theirs.
    """

    __slots__ = ("backlogged", "below", "demand", "has_groups", "is_in_turn", "service")

    is_group = True
    parent: GroupNode | None
    max_share: float = inf
    total: object = None
    preemption: object = None

    def __init__(self, order: int) -> None:
        super().__init__(order)
        self.backlogged: list[Rank] = []
        self.below = self.demand = 0
        self.has_groups = self.is_in_turn = False
        self.service = 0.0


class JobShare(GroupNode):
    """The phases of a job (`members`) that count against the same share of a pool.

    While several of them are `ready` they form one node, which gets slots like one phase, so
    that the turns of a job do not depend on their number. It takes at once the least that one
    of its ready phases does. With a single ready phase there is no such node: that changes at
    allocations (`form`, `dissolve`).
    """

    __slots__ = ("is_formed", "members", "parent", "ready")

    def __init__(self, pool: GroupNode, members: Sequence[Member]) -> None:
        super().__init__(members[0].order)
        self.parent: GroupNode = pool
        self.members = members
        self.ready = sum([member.is_ready for member in members])
        self.is_formed = False

    def form(self) -> None:
        """Let its phases get slots as one from now on; they have no place in an order."""
        self.is_formed = self.parent.has_groups = True
        self.service, self.served = 0.0, max(member.served for member in self.members)
        self.running = sum([member.running for member in self.members])
        self.slots_on_lost_hosts = sum([member.slots_on_lost_hosts for member in self.members])
        for member in self.members:
            member.group, member.served, member.rank = self, 0.0, None

    def dissolve(self) -> None:
        """The opposite of `form`."""
        self.is_formed = False
        for member in self.members:
            member.group, member.served, member.rank = None, self.served, None

    def clear(self) -> None:
        """Forget its allocation and the order of its phases."""
        self.allocated = self.owed = 0.0
        self.unit = NEVER
        self.backlogged = []
        self.rank = None

    def add(self, phase: ShareNode) -> None:
        """Count the allocation of one of its ready phases."""
        self.allocated += phase.allocated
        self.owed += phase.owed
        if phase.unit < self.unit:
            self.unit = phase.unit


def formed(job: JobShare, known: dict[JobShare, None], in_turn: bool) -> JobShare | None:
    """The node of a job, also in `known`, if it has several ready phases; otherwise None."""
    if in_turn or job.ready < 2:
        if job.is_formed:
            job.dissolve()
        return None
    if job not in known:
        known[job] = None
        job.clear()
        if not job.is_formed:
            job.form()
    return job


def walk_orders(group: GroupNode) -> Iterator[Sequence[Rank]]:
    """The orders of phases below a pool or a job, as they are served.

    Not recursive: the tree may be very deep.
    """
    levels = [iter(group.backlogged)]
    while levels:
        rank = next(levels[-1], None)
        if rank is None:
            levels.pop()
            continue
        inner: Any = rank[3]
        if not inner.is_group:
            yield (rank,)
        elif inner.has_groups:
            levels.append(iter(inner.backlogged))
        else:
            yield inner.backlogged
