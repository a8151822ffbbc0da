"""The scheduler: an allocator combined with an assigner, and the names of both for users.

`Queueing` schedulers plan a queue of whole tasks for each host instead.

Schedulers are pure: they keep no memory, read no clock and start nothing. What a scheduler must
remember it emits as decisions (`Defer`, `Reallocate`) and reads from the next snapshot, so the
log contains it and a run can be replayed decision for decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor, inf, nextafter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import (
    AcceptPromise,
    Adjust,
    Decision,
    Reallocate,
    RefusePromise,
)
from slotwise.core.errors import (
    MAX_FLOAT,
    InputError,
    check_range,
    is_number,
    option_name,
    shown,
    suggestion,
)
from slotwise.core.job import Job
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.snapshot import Snapshot
from slotwise.policy.adjusting import adjust, first_in_order
from slotwise.policy.allocator import (
    Allocator,
    reads_finish,
    reads_requests,
    serves_in_turn,
)
from slotwise.policy.assignment.assigner import (
    Assigner,
    Greedy,
    give_up,
    retry,
    stop_broken,
    with_resources,
)
from slotwise.policy.assignment.delay import Delay
from slotwise.policy.assignment.preemption import preempt, serve_reserved
from slotwise.policy.claims import all_claims, share_out
from slotwise.policy.fair import Fair, Fifo
from slotwise.policy.flex import AddOn, Flex
from slotwise.policy.las import Las
from slotwise.policy.promises import PromisedJob, answer, keep_promises
from slotwise.policy.uwfq import Uwfq, virtual_time

if TYPE_CHECKING:
    from slotwise.policy.backfilling import Conservative, Easy
    from slotwise.policy.dmrs.queueing import Queueing
    from slotwise.policy.flowflex.solve import Method


EPOCH_SECONDS = 0.5
"""Seconds between decisions on the allocation when no event requires one (FLEX 4.2)."""

REST_TIMES = 10
"""The least time between allocations, by that which an allocation is estimated to take."""

MIN_EPOCH = 1e-6
"""Seconds; the shortest epoch."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Decides the allocation at every epoch, arrival and end, and fills free slots by it.

    Preemption takes slots back for pools that have been below their shares for too long; they
    are served first with these. After
    an allocation, arrivals and ends do not lead to another one for `rest_seconds`: it costs
    O(n) with n phases that it reads, which is too much for each of n arrivals. With many phases
    the time is longer, and epochs are, too: `REST_TIMES` the `phase_seconds` of the allocator
    for each phase, so that allocations take about a tenth of the time. `remade` makes the
    allocator again if the objective or its name changes. With `adjusts`, slight changes among
    many phases lead to an `Adjust` instead of the allocation of all (`allocation.adjusting`).
    """

    allocator: Allocator
    assigner: Assigner
    epoch_seconds: float = EPOCH_SECONDS
    rest_seconds: float = 0.0
    remade: Callable[[Objective | None, str | None], Allocator] | None = None
    adjusts: bool = False

    def __post_init__(self) -> None:
        _check_epoch(self.epoch_seconds)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions at this instant; empty when there is nothing more to decide.

        The loop applies them and calls again, so each call sees the changes of the last one.
        """
        if snapshot.doomed:
            return give_up(snapshot)
        if snapshot.broken:
            return stop_broken(snapshot)
        if snapshot.delays and (due := retry(snapshot)):
            return due
        now, promises = snapshot.now, snapshot.promises
        are_used = promises.asked or promises.open
        if are_used and (found := keep_promises(snapshot, self._allocator(snapshot))):
            return found
        is_stale = snapshot.is_stale and now >= snapshot.reallocates_from
        if is_stale or (now >= snapshot.epoch_ends and self._may_differ(snapshot)):
            allocator = self._allocator(snapshot)
            adjusts = self.adjusts and not promises.open  # They are guaranteed slots.
            if adjusts and (changed := adjust(allocator, snapshot)) is not None:
                earliest = now + self.rest_seconds if self.rest_seconds else -inf
                return [Adjust(changed, max(self._epoch_after(now), earliest), earliest)]
            return [self._reallocate(allocator, snapshot)]
        if snapshot.is_settled:
            return ()
        begun = snapshot.has_reserved and serve_reserved(snapshot)
        begun = begun or self.assigner.assign(snapshot)
        if not begun:
            return preempt(snapshot)
        return with_resources(snapshot, begun) if snapshot.has_wide else begun

    def _reallocate(self, allocator: Allocator, snapshot: Snapshot) -> Reallocate:
        """The allocation of all phases."""
        virtual = virtual_time(snapshot) if reads_finish(allocator) else None
        ids, claims = all_claims(allocator, snapshot, virtual)
        slots = share_out(allocator, ids, claims)
        earliest = self._earliest(allocator, snapshot)
        until = max(self._epoch_after(snapshot.now), earliest)
        first = first_in_order(allocator, ids, claims) if self.adjusts else None
        in_turn = serves_in_turn(allocator)
        return Reallocate(slots, until, earliest, virtual, in_turn, *(first or ()))

    def _allocator(self, snapshot: Snapshot) -> Allocator:
        """The allocator of the current name for the current objective."""
        aim, name = snapshot.objective, snapshot.scheduler
        if (aim is None and name is None) or self.remade is None:
            return self.allocator
        return self.remade(None if aim is None else Objective(*aim), name)

    def _earliest(self, allocator: Allocator, snapshot: Snapshot) -> float:
        """When arrivals and ends may lead to the next allocation."""
        if not self.rest_seconds:
            return -inf
        rest = REST_TIMES * allocator.phase_seconds * _phases_read(allocator, snapshot)
        return snapshot.now + max(self.rest_seconds, rest)

    def _may_differ(self, snapshot: Snapshot) -> bool:
        """Whether the allocation of a new epoch can differ from the last one.

        Several kinds of slots have parts of the other resources, which depend on all that each
        phase can still use, also above its allocation.
        """
        kinds = snapshot.cluster.capacity
        has_parts = len(kinds) > 1 and any(map(snapshot.has_requests, kinds))
        reads_all = self.allocator.reads_work or (
            has_parts and not reads_requests(self.allocator)
        )
        return snapshot.has_changed if reads_all else snapshot.has_shrunk

    def _epoch_after(self, now: float) -> float:
        """The first multiple of the length of an epoch after this instant."""
        passed = floor(now / self.epoch_seconds)
        # Rounding may put an instant that is a multiple into the previous epoch.
        for number in (passed + 1, passed + 2):
            until = number * self.epoch_seconds
            if until > now:
                return until
        return nextafter(now, inf)  # At such instants, floats are farther apart than epochs.


def promise(
    scheduler: object, snapshot: Snapshot, job: Job, earlier: Sequence[PromisedJob], now: float
) -> AcceptPromise | RefusePromise:
    """Whether a job that arrives now would get its promise: see `promises.answer`."""
    allocator = scheduler._allocator(snapshot) if isinstance(scheduler, Scheduler) else None
    return answer(snapshot, job, allocator, earlier, now)


def _phases_read(allocator: Allocator, snapshot: Snapshot) -> int:
    """The phases that an allocation reads: the ready ones, and for work all of their jobs."""
    ready = [p for kind in snapshot.cluster.capacity for p in snapshot.ready(kind)]
    if not allocator.reads_work:
        return len(ready)
    of_job = {phase.id.job: len(phase.job.phases) for phase in ready}
    return len(ready) + sum(count for count in of_job.values() if count > 1)


ALLOCATORS: Mapping[str, Callable[[Objective, float | None], Allocator]] = MappingProxyType(
    {
        "fifo": lambda objective, budget: Fifo(),
        "fair": lambda objective, budget: Fair(),
        "flex": lambda objective, budget: Flex(objective, budget_seconds=budget),
        "flex-on-fair": lambda objective, budget: AddOn(Flex(objective, budget_seconds=budget)),
        "las": lambda objective, budget: Las(),
        "uwfq": lambda objective, budget: Uwfq(),
        "flowflex": lambda objective, budget: _flowflex(objective, "best", budget),
        "flowflex-fast": lambda objective, budget: _flowflex(objective, "fast", budget),
        "flowflex-paper": lambda objective, budget: _flowflex(objective, "paper", budget),
    }
)
"""Allocators by name, each made for an objective and a budget of seconds for its search."""


def _flowflex(objective: Objective, method: Method, budget: float | None) -> Allocator:
    # FlowFlex and DMRS are imported when they are chosen: most commands use neither.
    from slotwise.policy.flowflex.allocator import FlowFlex

    return FlowFlex(objective, method, budget)


def _queueing(name: str, budget: float | None) -> Queueing:
    from slotwise.policy.dmrs.queueing import (
        Queueing,
        by_identical,
        by_maps,
        by_program,
        by_search,
    )

    if name == "dmrs":
        return Queueing(by_program)
    if name == "dmrs-best":
        return Queueing(partial(by_search, seconds=budget), fills=True)
    return Queueing(by_identical if name == "identical-machine" else by_maps, checks=False)


def _backfilling(name: str) -> Easy | Conservative:
    from slotwise.policy.backfilling import Conservative, Easy

    kind = Easy if name.startswith("easy") else Conservative
    return kind(shortest_first=name.endswith("-sjbf"))


def _flow(*given: float, **named: Any) -> Assigner:
    from slotwise.policy.assignment.flow import Flow

    return Flow(*given, **named)


QUEUEINGS = ("dmrs", "dmrs-best", "identical-machine", "map-only")
"""The names of the schedulers that plan a queue of whole tasks for each host."""

BACKFILLINGS = ("easy", "easy-sjbf", "conservative", "conservative-sjbf")
"""The names of the schedulers of rigid jobs in a queue, which rely on requested times."""

ESTIMATING = ("flex", "flex-on-fair", "uwfq", "flowflex", "flowflex-fast", "flowflex-paper")
"""The names of the allocators that order jobs by their estimated work."""

SCHEDULERS = (*ALLOCATORS, *QUEUEINGS, *BACKFILLINGS)
"""The names of all schedulers of runs."""

ASSIGNERS: Mapping[str, Callable[..., Assigner]] = MappingProxyType(
    {"greedy": Greedy, "delay": Delay, "flow": _flow}
)
"""Assigners by name; arguments are their parameters."""

WAITERS = ("delay", "flow")
"""The assigners that wait for slots near the input, with two waits as parameters."""


def make_allocator(
    name: str, objective: Objective | None = None, budget_seconds: float | None = None
) -> Allocator:
    """The allocator of this name, for an objective (mean response by default).

    `budget_seconds` limits the search at each decision, for allocators that search; None: the
    allocator decides. InputError for an unknown name.
    """
    if name not in tuple(ALLOCATORS):
        raise InputError(f"unknown allocator {shown(name)}; {suggestion(name, ALLOCATORS)}")
    check_budget(budget_seconds)
    return ALLOCATORS[name](objective or Objective(), budget_seconds)


def make_scheduler(
    name: str,
    assigner: str = "greedy",
    *,
    objective: Objective | None = None,
    epoch_seconds: float = EPOCH_SECONDS,
    waits: tuple[float, float] | None = None,
    levels: str | None = None,
    core_cost: float | None = None,
    move_within: float | None = None,
    budget_seconds: float | None = None,
    rest_seconds: float = 0.0,
    adjusts: bool = False,
) -> Scheduler | Queueing | Easy | Conservative:
    """The scheduler of these names. `waits` are the two waits of delay scheduling, in seconds.

    `levels` says whether the level of a launch persists (`assignment.delay.LEVELS`). None:
    "restart", as before there was a choice, so that old logs replay.
    `flow` takes both, too, and `core_cost`, the cost of a byte from another rack, and
    `move_within`, seconds for which tasks may move.
    `budget_seconds` is about how long it may search at each decision. Schedulers that plan
    queues minimize weighted completion times, have no epochs and place tasks themselves, and so
    do those that backfill.
    InputError for unknown names and for options that do not fit together.
    """
    if name not in SCHEDULERS:
        raise InputError(f"unknown scheduler {shown(name)}; {suggestion(name, SCHEDULERS)}")
    if assigner not in tuple(ASSIGNERS):  # It may be unhashable.
        raise InputError(
            f"unknown assigner {shown(assigner)}; {suggestion(assigner, ASSIGNERS)}"
        )
    for option, value in (("waits", waits), ("levels", levels)):
        if value is not None and assigner not in WAITERS:
            raise InputError(
                f"{option_name(option)} is a parameter of the assigners delay and flow, not of"
                f" {shown(assigner)}"
            )
    asked = {"core_cost": core_cost, "move_within": move_within}
    named: dict[str, Any] = {k: value for k, value in asked.items() if value is not None}
    for option in named if assigner != "flow" else ():
        raise InputError(
            f"{option_name(option)} is a parameter of the assigner flow, not of"
            f" {shown(assigner)}"
        )
    if name in QUEUEINGS or name in BACKFILLINGS:
        _check_epoch(epoch_seconds)
        if assigner != "greedy":
            raise InputError(
                f"{name} places tasks itself; leave out the assigner {shown(assigner)}"
            )
        check_budget(budget_seconds)
        return _queueing(name, budget_seconds) if name in QUEUEINGS else _backfilling(name)
    if waits is not None and not (isinstance(waits, tuple | list) and len(waits) == 2):
        raise InputError(
            f"waits is {shown(waits)}; give two numbers of seconds, such as (5, 10)"
        )
    if assigner in WAITERS:
        named["levels"] = "restart" if levels is None else levels
    chosen = ASSIGNERS[assigner](*(waits or ()), **named)

    def remade(aim: Objective | None, now: str | None) -> Allocator:
        return make_allocator(now or name, aim or objective, budget_seconds)

    return Scheduler(remade(None, None), chosen, epoch_seconds, rest_seconds, remade, adjusts)


def check_scheduler(
    name: str, jobs: Sequence[Job], cluster: Cluster, pools: Mapping[str, Pool]
) -> None:
    """Refuse jobs, a cluster or pools that this scheduler cannot serve."""
    if name in QUEUEINGS:
        from slotwise.policy.dmrs.jobs import check_queues

        check_queues(jobs, cluster, pools)
    elif name not in BACKFILLINGS:
        return
    for pool in pools.values():
        if pool.preemption is not None:
            raise InputError(
                f"pool {pool.name!r}: {name} takes no slots back; leave out preemption, or take"
                " another scheduler"
            )


def check_budget(seconds: float | None) -> None:
    """InputError unless it is None or a finite number of at least 0."""
    if seconds is not None and not (is_number(seconds) and 0 <= seconds <= MAX_FLOAT):
        raise InputError(
            f"{option_name('budget_seconds')} is {shown(seconds)}; give a number of seconds >="
            " 0"
        )


def _check_epoch(seconds: float) -> None:
    remedy = f"give a finite number >= {MIN_EPOCH}"
    check_range(option_name("epoch_seconds"), seconds, MIN_EPOCH, MAX_FLOAT, remedy)
