"""The shares of all pools in one kind of slot: a tree with service orders and time-outs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf

from slotwise.core.cluster import ANY_KIND
from slotwise.core.decisions import Launch
from slotwise.core.host_state import FreeSlots
from slotwise.core.job import PRIORITIES, PhaseId
from slotwise.core.phase_state import PhaseState, phases_below, sorted_below
from slotwise.core.pool_state import (
    CrossKindLimit,
    GroupNode,
    JobShare,
    PoolState,
    ShareNode,
    formed,
    path_to,
    whole,
)
from slotwise.core.pools import Pool, PoolTree, ShareKey
from slotwise.core.reserved import Reserved
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.tolerances import SLOTS

WHOLE = ShareKey("", "")
"""All slots of one kind: the parent of the shares of the pools at the top."""


class Shares:
    """The order in which phases get slots of one kind, and the pools that are overdue.

    `now` is the current instant. `alarms` holds the instants at which pools will be overdue
    unless they get the missing slots, and `short` the same for jobs that take slots back within
    their pools. `reserved` are the free slots that are reserved for
    pools. For `whole` only the order below it is maintained. If phases are served in turn
    whatever their pools, all of them are in the order below `whole`, and the pools only count.
    `settle` costs O(log n) for each level of pools, `reallocate` O(pools + phases).
    """

    def __init__(
        self,
        slot_kind: str,
        free: FreeSlots,
        by_kind: SharesByKind,
    ) -> None:
        self.slot_kind, self._by_kind = slot_kind, by_kind
        self.reserved = Reserved(free)
        self.whole = PoolState(WHOLE, slot_kind, 0, None, 0, inf, None)
        self.overdue: dict[PoolState, None] = {}
        self.now = 0.0
        # Each after the one that contains it.
        self._by_key: dict[ShareKey, PoolState] = {WHOLE: self.whole}
        self._of_pool: defaultdict[tuple[str, PoolState], list[PoolState]] = defaultdict(list)
        self._jobs: Collection[JobShare] = ()
        """Those whose phases were counted or allocated slots last."""
        self.alarms: list[tuple[float, int, PoolState]] = []
        self.short: dict[tuple[PoolState, str], tuple[float, PhaseState | JobShare]] = {}

    def inner_first(self) -> Iterable[PoolState]:
        """The shares of all pools and the whole, each before the one that contains it."""
        return reversed(self._by_key.values())

    def pools(self) -> Sequence[PoolState]:
        """The shares of all pools, each after the one that contains it."""
        return [share for share in self._by_key.values() if share is not self.whole]

    def get(self, key: ShareKey) -> PoolState | None:
        """The share of a pool with this key, if it has one."""
        return self._by_key.get(key)

    def share(self, keys: Sequence[ShareKey], pools: PoolTree) -> PoolState:
        """The share with the last of these keys, which form a path from the top."""
        above = self.whole
        for key in keys:
            if key not in self._by_key:
                self._by_key[key] = self._new(key, above, pools)
            above = self._by_key[key]
        return above

    def join_totals(self, pools: PoolTree) -> None:
        """Join the shares of a number for all kinds, now that there are several kinds."""
        for key, share in self._by_key.items():
            if share is not self.whole and share.total is None:
                total = self._by_kind.total_of(key, pools[key.pool])
                if total is not None:
                    share.join(total)

    def raise_alarms(self) -> None:
        """Mark the pools whose time-out has passed as overdue."""
        alarms, now = self.alarms, self.now
        while alarms and alarms[0][0] <= now:
            due, _, pool = heappop(alarms)
            if due in (pool.min_share_due, pool.fair_due):  # The shortage has not ended.
                self._note_overdue(pool)
                self._rerank(pool)

    def next_alarm(self) -> float:
        """When the next pool will be overdue if nothing changes; inf if none will."""
        alarms = self.alarms
        of_jobs = min([due for due, _ in self.short.values() if due > self.now], default=inf)
        while alarms:
            due, _, pool = alarms[0]
            if due in (pool.min_share_due, pool.fair_due):
                return min(due, of_jobs)
            heappop(alarms)  # The pool got the missing slots.
        return of_jobs

    def overdue_jobs(self) -> dict[PoolState, int]:
        """The pools in which jobs have been below their shares for too long.

        With the slots that these jobs lack, without those that are being taken for the pool.
        """
        if not self.short:
            return {}
        lacks: dict[PoolState, int] = {}
        for (pool, _), (due, job) in self.short.items():
            if due <= self.now:
                held = job.running - job.slots_on_lost_hosts
                more = whole(min(job.allocated, _usable(job))) - held
                lacks[pool] = lacks.get(pool, -pool.slots_being_reclaimed) + more
        return {pool: slots for pool, slots in lacks.items() if slots > 0}

    def note_dry_run(self, pool: str) -> None:
        """What a pool or its jobs would take back now was logged: once for a shortage."""
        overdue = [share for share in self.overdue if share.name == pool]
        for share in overdue:
            share.has_noted = True
            self._watch(share)
        for key, (due, job) in [*self.short.items()] if not overdue else ():
            if key[0].name == pool and due <= self.now:
                self.short[key] = inf, job

    def reallocate(
        self,
        ready: Mapping[PhaseId, PhaseState],
        slots: Mapping[PhaseId, float],
        in_turn: bool = False,
    ) -> None:
        """Set the slots that each ready phase should hold; 0 for phases not named.

        `in_turn`: phases are served by priority, then by arrival, and min shares do not count.
        Afterwards call `set_guarantees` for all kinds, and then `rebuild_order`.
        """
        whole, jobs = self.whole, dict[JobShare, None]()
        is_new_order = in_turn != whole.is_in_turn
        whole.is_in_turn = in_turn
        for node in (*self._by_key.values(), *self._jobs):
            node.allocated = node.owed = 0.0
            node.backlogged = []
            node.rank = None
        for of_pool in self._by_key.values():
            of_pool.members = of_pool.changes = 0
            of_pool.moved = 0.0
        are_quick, given = not (in_turn or is_new_order), slots.get
        for phase_id, phase in ready.items():
            share, pool, job = given(phase_id, 0.0), phase.pool, phase.job_share
            pool.members += 1
            held = share or phase.allocated or job is not None
            if are_quick and not held and phase.rank is not None and phase.pending:
                pool.backlogged.append(phase.rank)  # It waits as before.
                continue
            if job is not None:
                is_one = job.ready < 2 and not job.is_formed
                job = None if is_one else formed(job, jobs, in_turn)
            parent, rank = whole if in_turn else job or pool, phase.rank
            # Where thousands of phases wait, most get what they had, or still nothing.
            is_same = share == phase.allocated and rank is not None and not is_new_order
            if not is_same or (share and phase.phase.slots_min):
                phase.allocated = share
                min_share = 0 if in_turn else phase.phase.slots_min
                phase.owed = min(share, min_share) if min_share else 0.0
                phase.count_units()
                pool.owed += phase.owed
                if phase.pending:
                    phase.rank = rank = phase.ranked(parent.is_in_turn)
            if share:
                phase.allocated = share  # 1 and 1.0 are written differently.
                pool.allocated += share
            if job is not None:
                job.add(phase)
            if phase.pending:
                assert rank is not None
                parent.backlogged.append(rank)
        self._jobs = jobs
        for pool in self.inner_first():
            if pool.parent is not None:
                pool.parent.allocated += pool.allocated

    def adjust(self, phase: PhaseState, slots: float) -> None:
        """Change the slots that one phase should hold, and those of the pools above it."""
        more = slots - phase.allocated
        phase.allocated = slots
        phase.count_units()
        self._rank_again(phase)
        self.add(phase, more)

    def set_priority(self, phase: PhaseState) -> None:
        """The priority of the job of a phase has changed: it counts where these come first."""
        phase.urgency = -PRIORITIES[phase.job.priority]
        self._rank_again(phase)

    def guarantee(self, phase: PhaseState) -> None:
        """The min share of a phase has changed: it counts in its order at once."""
        phase.owed = min(phase.allocated, phase.phase.slots_min)
        phase.count_units()
        self._rank_again(phase)

    def _rank_again(self, phase: PhaseState) -> None:
        """Give a phase with a backlog its new place in the order."""
        if phase.rank is not None:
            parent = self._order_of(phase)
            order = parent.backlogged
            del order[bisect_left(order, phase.rank)]
            phase.rank = rank = phase.ranked(parent.is_in_turn)
            insort(order, rank)

    def add(self, phase: PhaseState, more: float) -> None:
        """Add to the slots that the job and the pools of a phase should hold.

        A pool with a guarantee keeps what it should hold: phases that come or leave divide it
        again.
        """
        pool, group = phase.pool, phase.group
        if group is not None:
            group.allocated = max(0.0, group.allocated + more)
            group.count_units()
        pool.moved += abs(more)
        for above in path_to(pool):
            if above.is_guaranteed:
                break
            slots = above.allocated + more
            above.allocated = slots if slots > SLOTS else 0.0  # Sums are rounded.
            above.owed = min(above.owed, above.allocated)
            above.count_units()
            if above.preemption is not None:
                self._watch(above)
        self._rerank(group or pool)

    def rebuild_order(self) -> None:
        """Sort the order below each node, and add the node to the order of its parent."""
        for job in self._jobs:
            job.count_units()
            job.backlogged.sort()
            if job.backlogged:
                job.rank = rank = job.ranked()
                job.parent.backlogged.append(rank)
        for pool in self.inner_first():
            pool.count_units()
            if pool.preemption is not None:
                self._watch(pool)
            pool.backlogged.sort()
            if pool.backlogged and pool.parent is not None:
                pool.rank = rank = pool.ranked()
                pool.parent.backlogged.append(rank)
        if any(map(_jobs_take_back, self._by_key.values())):
            self._watch_jobs()

    def clear(self) -> None:
        """Count nothing any more."""
        for pool in self._by_key.values():
            pool.running = pool.slots_on_lost_hosts = pool.demand = pool.stopping = (
                pool.slots_being_reclaimed
            ) = 0
            pool.backlogged = []
            pool.rank = None

    def recount(self, phases: Collection[PhaseState], lost: Collection[str]) -> None:
        """Recount all phases: hosts came or went, or an attempt ended on a lost one.

        Tasks on the hosts in `lost` count against no share of the other hosts.
        Call `clear` before for all kinds, and after all are counted `rebuild_order`.
        O(running tasks + phases + pools).
        """
        pools = self._by_key.values()
        jobs = [phase.group for phase in phases]
        self._jobs = dict.fromkeys([job for job in jobs if job is not None])
        for job in self._jobs:
            job.running = job.slots_on_lost_hosts = job.demand = 0
            job.backlogged = []
            job.rank = None
        self.reserved.count()
        for phase in phases:
            phase.count_on_lost(lost)
            self._count(phase, lost)
        for pool in pools:
            pool.excess = pool.running
        for pool in self.inner_first():
            if pool.parent is not None:
                pool.parent.demand += pool.usable

    def settle(self, phase: PhaseState, held: int) -> None:
        """Update the shares above a phase that changed and holds `held` more slots.

        Each one, from its job or pool upwards, gets its place in the order, or none without a
        backlog. A share without siblings keeps its place while it has a backlog, and takes no
        turns.
        """
        phase.estimated = None
        is_backlogged, more = False, -phase.counted
        if phase.is_ready:
            is_backlogged = phase.pending > 0
            more += phase.demand
        phase.counted += more
        child: ShareNode = phase
        group: GroupNode | None = phase.group or phase.pool
        whole = self.whole
        has_one_pool = whole.below == 1 and not whole.is_in_turn
        parent: GroupNode | None = whole if whole.is_in_turn else group  # Has the child.
        while group is not None:
            group.running += held
            if more:
                before = group.demand
                group.demand = after = before + more
                room = group.max_share - group.slots_on_lost_hosts
                if room < before or room < after:
                    more = int(min(after, room) - min(before, room))
            if group is parent:
                order, old = group.backlogged, child.rank
                if group.below != 1 or group.is_in_turn:
                    if held > 0:
                        group.service = child.serve(group.service, held)
                    if is_backlogged:
                        child.rank = new = child.ranked(group.is_in_turn)
                        if old is not None:
                            del order[bisect_left(order, old)]
                        insort(order, new)
                    elif old is not None:
                        del order[bisect_left(order, old)]
                        child.rank = None
                elif is_backlogged != (old is not None):
                    child.rank = child.ranked() if is_backlogged else None
                    order[:] = [child.rank] if child.rank is not None else []
                is_backlogged = bool(order)
                child, parent = group, group.parent
            if group.total is not None:
                assert isinstance(group, PoolState), "jobs have no numbers of their own"
                self._settle_total(group, held)
            if group.preemption is not None:
                assert isinstance(group, PoolState), "jobs take no slots back"
                self._watch(group)
                if group is phase.pool and _jobs_take_back(group) and not whole.is_in_turn:
                    self._watch_job(phase.group or phase, phase.id.job, group)
            group = group.parent
            if has_one_pool and group is whole and is_backlogged == (child.rank is not None):
                return  # What the whole holds is not used, and its only pool keeps its place.

    def ask_to_stop(self, phase: PhaseState, task: int, share: PoolState | None) -> None:
        """Count a running task that was asked to stop, for a pool (`share`) or for none."""
        phase.stopping[task] = share
        phase.count_stopping(phase.launches[task][0], 1)
        for pool in path_to(phase.pool):
            pool.stopping += phase.width
        for pool in path_to(share):
            pool.slots_being_reclaimed += phase.width

    def ended(self, phase: PhaseState, launch: Launch) -> PoolState | None:
        """A task has ended: if it was asked to stop, it no longer counts as stopping.

        The share for which it was asked to stop, if it is one of this kind of slot.
        """
        if launch.task not in phase.stopping:
            return None
        share = phase.stopping.pop(launch.task)
        phase.count_stopping(launch, -1)
        for pool in path_to(phase.pool):
            pool.stopping -= phase.width
        for pool in path_to(share):
            pool.slots_being_reclaimed -= phase.width
        return share if share is not None and share.slot_kind == self.slot_kind else None

    def check(self, phases: Iterable[PhaseState]) -> None:
        """Assert that every share agrees with these phases. For tests."""
        phases = list(phases)
        for pool in self._by_key.values():
            below = [other for other in self._by_key.values() if other.parent is pool]
            if pool is not self.whole:
                _check(pool, below, [p for p in phases if pool in path_to(p.pool)])
            _check_order(pool, self.whole)
            assert pool.is_overdue == (pool in self.overdue)
            assert pool.starving == pool.is_starving + sum(p.starving for p in below)
        in_order = list(phases_below(self.whole))
        assert sorted_below(self.whole, reversed(in_order)) == in_order
        jobs = dict.fromkeys(phase.job_share for phase in phases)
        for job in [job for job in jobs if job is not None]:
            members = [phase for phase in phases if phase.job_share is job]
            assert job.ready == sum(phase.is_ready for phase in members)
            assert {phase.group for phase in members} == {job if job.is_formed else None}
            if job.is_formed:
                assert job.running == sum(phase.running for phase in members)
                assert job.slots_on_lost_hosts == sum(
                    phase.slots_on_lost_hosts for phase in members
                )
                _check_order(job, self.whole)

    def _new(self, key: ShareKey, above: PoolState, pools: PoolTree) -> PoolState:
        pool = pools[key.pool]
        share = PoolState(
            key,
            self.slot_kind,
            len(self._by_key),
            above,
            pool.slots_min.get(key.kind, 0),
            pool.max_share(key.kind),
            pools.preemption(key.pool),
            self._by_kind.total_of(key, pool),
            self._by_kind.limits_of(pool),
        )
        share.is_in_turn = pool.policy == "fifo"
        same = self._of_pool[key.pool, above]
        same.append(share)
        for one in same:  # They split the weight of the pool.
            one.weight = pool.weight / len(same)
            self._rerank(one)
        if above.below == 2:  # Its first sibling had none, and its place was not updated.
            for sibling in [other for other in self._by_key.values() if other.parent is above]:
                self._rerank(sibling)
        return share

    def _settle_total(self, pool: PoolState, held: int) -> None:
        """A part of a total has changed: update the shortages of its other parts."""
        total = pool.total
        if held > 0 and total is not None:
            total.serve(pool, held)
        if pool.preemption is not None:
            for other in pool.of_other_kinds:
                shares = self._by_kind.of[other.slot_kind]
                shares._watch(other)
                shares._rerank(other)

    def _count(self, phase: PhaseState, lost: Collection[str]) -> None:
        """Add the demand and the slots of a phase to the shares that it counts against."""
        phase.estimated = None
        phase.counted = phase.demand if phase.is_ready else 0
        phase.pool.demand += phase.counted
        takers = [
            taker
            for task, taker in phase.stopping.items()
            if phase.launches[task][0].host not in lost
        ]
        if phase.group is not None:
            phase.group.running += phase.running
            phase.group.slots_on_lost_hosts += phase.slots_on_lost_hosts
        for pool in path_to(phase.pool):
            pool.running += phase.running
            pool.slots_on_lost_hosts += phase.slots_on_lost_hosts
            pool.stopping += len(takers) * phase.width
        for taker in takers:
            for pool in path_to(taker):
                pool.slots_being_reclaimed += phase.width
        phase.rank = None
        if phase.is_ready and phase.pending:
            parent = self._order_of(phase)
            phase.rank = rank = phase.ranked(parent.is_in_turn)
            parent.backlogged.append(rank)

    def _order_of(self, phase: PhaseState) -> GroupNode:
        """The node in whose order a phase with a backlog is: all slots, its job or its pool."""
        return self.whole if self.whole.is_in_turn else phase.group or phase.pool

    def _watch(self, pool: PoolState) -> None:
        """Check whether a pool's shortages have begun, are over, or are overdue."""
        for due in pool.watch(self.now):
            if self.now < due < inf:
                heappush(self.alarms, (due, pool.order, pool))
        self._note_overdue(pool)

    def _watch_jobs(self) -> None:
        """Check the jobs that take slots back within their pools: all have new shares."""
        before, self.short = self.short, {}
        for pool in self._by_key.values():
            for *_, child in pool.backlogged if _jobs_take_back(pool) else ():
                if isinstance(child, JobShare):
                    name = child.members[0].id.job
                else:
                    assert isinstance(child, PhaseState), "such pools have no pools below them"
                    name = child.id.job
                if (pool, name) in before:
                    self.short[pool, name] = before[pool, name][0], child
                self._watch_job(child, name, pool)

    def _watch_job(self, job: PhaseState | JobShare, name: str, pool: PoolState) -> None:
        """Check whether the shortage of a job, or of its only ready phase, begins or ends."""
        assert pool.preemption is not None, "only such pools are watched"
        held = job.running - job.slots_on_lost_hosts
        share = min(job.allocated, _usable(job))
        if held < pool.preemption.fraction * share and held < whole(share):
            due, _ = self.short.get((pool, name), (self.now + pool.preemption.jobs_after, job))
            self.short[pool, name] = due, job
        elif self.short.get((pool, name), (inf, None))[1] is job:
            del self.short[pool, name]

    def _note_overdue(self, pool: PoolState) -> None:
        """Update whether a pool may take slots back now, and whether it is starving.

        In a dry run it is not served before others either.
        """
        assert pool.preemption is not None, "only pools that take back are watched"
        is_starving = pool.min_share_due <= self.now and not pool.preemption.dry_run
        if is_starving != pool.is_starving:
            pool.is_starving = is_starving
            for above in path_to(pool):
                above.starving += 1 if is_starving else -1
        is_overdue = min(pool.min_share_due, pool.fair_due) <= self.now
        if is_overdue != pool.is_overdue:
            pool.is_overdue = is_overdue
            if is_overdue:
                self.overdue[pool] = None
            else:
                del self.overdue[pool]

    def _rerank(self, group: GroupNode) -> None:
        """Move a job or a pool, and those that contain it, to their places in each order."""
        child: GroupNode | None = group
        while child is not None:
            if child.rank is not None and child.parent is not None:
                order = child.parent.backlogged
                del order[bisect_left(order, child.rank)]
                child.rank = rank = child.ranked()
                insort(order, rank)
            child = child.parent


def _jobs_take_back(pool: PoolState) -> bool:
    """Whether jobs of a pool take slots back from each other."""
    preemption = pool.preemption
    if preemption is None or preemption.jobs_after == inf:
        return False
    return not pool.is_in_turn and not pool.below


def _usable(job: PhaseState | JobShare) -> int:
    """The slots of responsive hosts that a job, or its only ready phase, can use."""
    if isinstance(job, JobShare):
        return job.usable
    return job.demand if job.is_ready else job.running - job.slots_on_lost_hosts


def _check(pool: PoolState, below: Sequence[PoolState], phases: Sequence[PhaseState]) -> None:
    """Assert that a share agrees with the shares directly, and all phases, below it."""
    assert pool.running == sum(phase.running for phase in phases)
    assert pool.slots_on_lost_hosts == sum(phase.slots_on_lost_hosts for phase in phases)
    stopping = sum(len(phase.stopping) * phase.width for phase in phases)
    assert stopping - pool.slots_on_lost_hosts <= pool.stopping <= stopping
    own = sum(phase.demand for phase in phases if phase.is_ready and phase.pool is pool)
    assert pool.demand == own + sum(other.usable for other in below)
    parts = [pool] if pool.total is None else pool.total.parts.values()
    most = max(pool.max_share, sum(part.excess for part in parts))
    assert sum(part.running for part in parts) <= most, "no pool exceeds its max share"


def _check_order(group: GroupNode, whole: PoolState) -> None:
    """Assert that the order below a pool or a job is sorted and up to date."""
    assert group.backlogged == sorted(group.backlogged), "the order below a node is sorted"
    for *_, child in group.backlogged:
        if isinstance(child, PhaseState):
            assert group is (whole if whole.is_in_turn else child.group or child.pool)
        else:
            assert isinstance(child, GroupNode)
            assert child.parent is group
        if group.below != 1 or whole.is_in_turn:
            # A share without siblings has a place, but needs no order.
            assert child.rank == child.ranked(group.is_in_turn), "a place is up to date"


# The shares of all pools in all kinds of slots.


class SharesByKind:
    """One tree of shares for each kind of slot, and what involves several of them.

    of  the shares of each kind
    """

    def __init__(self, free: Mapping[str, FreeSlots]) -> None:
        self._free = free
        self._totals: dict[ShareKey, CrossKindLimit] = {}
        self._limits: dict[str, tuple[ResourceLimit, ...]] = {}
        self.of: dict[str, Shares] = {}
        for kind in free:
            self.of[kind] = Shares(kind, free[kind], self)

    def add(self, kind: str, now: float, pools: PoolTree) -> None:
        """Add the shares of a new kind of slots; afterwards call `recount`.

        A share of a number for all kinds now has it in common with the new kind.
        """
        for shares in self.of.values():
            shares.join_totals(pools)
        self.of[kind] = Shares(kind, self._free[kind], self)
        self.of[kind].now = now

    def total_of(self, key: ShareKey, pool: Pool) -> CrossKindLimit | None:
        """What a share has in common with other kinds; None without a number for several."""
        has_number = ANY_KIND in pool.slots_min or ANY_KIND in pool.slots_max
        if key.kind != ANY_KIND or not has_number or len(self._free) == 1:
            return None
        if key not in self._totals:
            least, most = pool.slots_min.get(ANY_KIND, 0), pool.max_share(ANY_KIND)
            self._totals[key] = CrossKindLimit(least, most, self._free)
        return self._totals[key]

    def limits_of(self, pool: Pool) -> tuple[ResourceLimit, ...]:
        """The limits of resources beside slots that all shares of a pool have in common."""
        if pool.resources_max and pool.name not in self._limits:
            most = pool.resources_max.items()
            self._limits[pool.name] = tuple([ResourceLimit(pool.name, *one) for one in most])
        return self._limits.get(pool.name, ())

    def at(self, now: float) -> None:
        """Set the clock, and mark the pools whose time-out has passed as overdue."""
        for shares in self.of.values():
            shares.now = now
            if shares.alarms:
                shares.raise_alarms()

    def next_alarm(self) -> float:
        """When the next pool will be overdue if nothing changes; inf if none will."""
        alarm = inf
        for shares in self.of.values():
            if shares.alarms or shares.short:
                alarm = min(alarm, shares.next_alarm())
        return alarm

    def reallocate(
        self,
        ready: Mapping[str, Mapping[PhaseId, PhaseState]],
        slots: Mapping[PhaseId, float],
        in_turn: bool,
    ) -> None:
        """Set the slots that each ready phase should hold; 0 for phases not named.

        `in_turn`: phases are served by priority, then by arrival, and min shares do not count.
        """
        for kind, phases in ready.items():
            self.of[kind].reallocate(phases, slots, in_turn)
        if not in_turn:
            set_guarantees(
                [pool for shares in self.of.values() for pool in shares.inner_first()]
            )
        for shares in self.of.values():
            shares.rebuild_order()

    def adjust(
        self,
        phases: Mapping[PhaseId, PhaseState],
        slots: Mapping[PhaseId, float],
        ended: Mapping[PhaseId, PhaseState],
    ) -> None:
        """Change the slots that some phases should hold; `ended` are not ready any more."""
        for name, share in slots.items():
            if name not in ended:
                self.of[phases[name].slot_kind].adjust(phases[name], share)
        for phase in ended.values():
            self.of[phase.slot_kind].add(phase, -phase.allocated)

    def recount(self, phases: Iterable[PhaseState], lost: set[str]) -> None:
        """Recount what all shares hold and demand; the hosts in `lost` are unresponsive."""
        of_kind: dict[str, list[PhaseState]] = {kind: [] for kind in self.of}
        for phase in phases:
            of_kind[phase.slot_kind].append(phase)
        limits = [limit for of_pool in self._limits.values() for limit in of_pool]
        for limit in limits:
            limit.lost, limit.stopping, limit.excess = 0, 0, limit.held
        for shares in self.of.values():
            shares.clear()
        for kind, shares in self.of.items():
            shares.recount(of_kind[kind], lost)
        for shares in self.of.values():
            shares.rebuild_order()

    def release_host(self, host: str) -> None:
        """A host changes: none of its slots is reserved any more."""
        for shares in self.of.values():
            shares.reserved.release_host(host)

    def hand_over(self, others: SharesByKind, phases: Iterable[PhaseState]) -> None:
        """The pools are replaced by others, which keep what is taken back by their names.

        Afterwards call `recount`.
        """
        for kind, shares in self.of.items():
            for host, by_pool in [*shares.reserved.by_host.items()]:
                for share, slots in [*by_pool.items()]:
                    shares.reserved.release(host, share, slots)
                    if (other := others.of[kind].get(share.key)) is not None:
                        others.of[kind].reserved.add(host, other, slots)
        for phase in phases:
            for task, taker in phase.stopping.items():
                if taker is not None:
                    phase.stopping[task] = others.of[taker.slot_kind].get(taker.key)

    def check_limits(self, phases: Iterable[PhaseState], lost: Collection[str]) -> None:
        """Assert that what is held of each limit is counted, and exceeds none. For tests."""
        held: Counter[ResourceLimit] = Counter()
        stopping: Counter[ResourceLimit] = Counter()
        for phase in phases:
            for launch, *_ in phase.launches.values():
                has = phase.held(launch)
                amounts = {limit: has.get(limit.name, 0) for limit in phase.resource_limits}
                held.update(amounts)
                if launch.task in phase.stopping and launch.host not in lost:
                    stopping.update(amounts)
        for limit in (limit for of_pool in self._limits.values() for limit in of_pool):
            assert limit.held == held[limit], "all that is held is counted"
            assert limit.stopping == stopping[limit], "all that will be free is counted"
            assert limit.held <= max(limit.most, limit.excess), "no pool exceeds its limit"

    def check_reclaimed(self, phases: Iterable[PhaseState], lost: set[str]) -> None:
        """Assert that what is taken back for each share, or reserved, is counted. For tests."""
        reclaimed: Counter[PoolState] = Counter()
        for phase in phases:
            for host, taker in phase.stops():
                if host not in lost:
                    reclaimed.update(dict.fromkeys(path_to(taker), phase.width))
        for shares in self.of.values():
            assert not shares.reserved.by_host.keys() & lost, (
                "nothing begins on a host that is lost"
            )
            for by_pool in shares.reserved.by_host.values():
                assert all(slots > 0 for slots in by_pool.values())
                for taker, slots in by_pool.items():
                    reclaimed.update(dict.fromkeys(path_to(taker), slots))
        for shares in self.of.values():
            for pool in shares.inner_first():
                assert pool.slots_being_reclaimed == reclaimed[pool], (
                    "all slots that come are counted"
                )

    def note_dry_run(self, pool: str) -> None:
        """What a pool would take back was logged."""
        for shares in self.of.values():
            shares.note_dry_run(pool)

    @property
    def has_overdue(self) -> bool:
        """Whether a pool or a job may take slots back."""
        return any(shares.overdue or shares.overdue_jobs() for shares in self.of.values())

    def taker(self, pool: str | None, slot_kind: str) -> PoolState | None:
        """The share of a pool for which a task of a kind is asked to stop; None without a pool.

        It is an overdue share of the pool that lacks slots, of this kind if possible; otherwise
        one of another kind, which may hold more slots once the task has stopped.
        """
        if not pool:
            return None
        every = [share for shares in self.of.values() for share in shares.pools()]
        every.sort(key=lambda share: share.slot_kind != slot_kind)  # Stable.
        named = [share for share in every if share.name == pool]
        overdue = [share for share in named if share.is_overdue]
        lacking = [share for share in overdue if share.missing(self.of[slot_kind].now) > 0]
        lacking += self.of[slot_kind].overdue_jobs().keys() & {*named}
        own = [share for share in named if share.slot_kind == slot_kind]
        return next(iter(lacking or overdue or own), None)


def set_guarantees(pools: Sequence[PoolState]) -> None:
    """Set the slots of its allocation that each share is owed.

    That is its min share, or the sum owed below it if that is more. `pools` holds all shares of
    all kinds, each before the one that contains it.
    """
    if any(pool.total is not None for pool in pools):
        # Parts of a total have equal depth, and everything below any of them must come first.
        pools = sorted(pools, key=lambda pool: -pool.depth)
    divided: set[ShareKey] = set()
    for pool in pools:
        if pool.total is None:
            pool.owed = min(max(pool.owed, pool.min_share), pool.allocated)
        elif pool.key not in divided:
            divided.add(pool.key)
            pool.total.divide()
        if pool.parent is not None:
            pool.parent.owed += pool.owed
