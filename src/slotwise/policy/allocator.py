"""The numeric problem that every allocator solves: claims on the slots of one kind.

An allocator is a function of this small value, not of the state of the cluster. So it can be
tested, timed and compared with exact methods in isolation. Both the scheduler and the planner
create it (`claims.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeGuard

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import PoolPolicy, ShareKey
from slotwise.core.resources import Resources


@dataclass(frozen=True, slots=True)
class Group:
    """A pool's share of one kind of slot: one guarantee and one limit for everything in it.

    A group contains claims or, for an inner pool, the groups of other pools. `parent` is the
    index of the group that contains it, -1 at the top. If claims on several kinds of slots have
    groups with the same `key`, the guarantee and the limit hold for the sum over these kinds.
    `limits` are the most that its claims may use of resources beside slots, by name; they, too,
    hold for the sum over the groups of a pool.
    """

    weight: float
    slots_min: float
    slots_max: float
    policy: PoolPolicy = "fair"
    parent: int = -1
    key: ShareKey | None = field(default=None, compare=False)
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)


class Waiting(NamedTuple):
    """A job that has not begun, and the jobs that it waits for and that are not over."""

    job: Job
    jobs: Set[str]


@dataclass(frozen=True, slots=True)
class Claims:
    """J claims on `capacity` slots, as parallel lists in order of arrival.

    weight     of its job for sharing, > 0: from the weight of the job, its priority and, in a
               pool with `job_weights: size`, its tasks; the job's cost is in `owner`
    arrival    of the job, seconds
    work       estimated remaining work of the phase, slot-seconds, > 0
    min_share  slots that it must get: the stated min share, cut to what it can use
    max_share  slots that it can use: the stated max share, cut to its unfinished tasks
    group      index into `groups`, of a group that contains no groups
    groups     the pools' shares, each after the one that contains it
    owner      the job and the phase that make the claim; empty if each claim is a job
    cluster    on which the jobs run
    now        the current instant, seconds on the clock of arrivals and deadlines
    priority   as a number: where jobs are served in order, higher ones come first; empty if all
               are normal
    place      in order of arrival, among the claims on all kinds of slots
    unseen     whether its work is too uncertain to be ranked; empty if no claim is unseen
    left       by job, for jobs with several phases: the estimated remaining work of each
               phase, slot-seconds of the slots that its tasks are worth by the greatest part
               of the cluster that they occupy; empty for plans
    present    slots of each kind on the responsive hosts; empty if all hosts are responsive
    attained   service of its job until now, slot-seconds; empty except for a `ServiceReader`
    finish     virtual finish of its job; empty except for a `FinishReader`
    later_work work of claims that come after all of these and are left out, slot-seconds
    waiting    the jobs that wait for others, by id; empty except for a `JointAllocator`
    request    what one task of the phase occupies; empty if no claim needs more than slots
    totals     the resources of the cluster, free and held, where there are requests
    job_weight of its job in the objective, where each claim is the only one of its job and no
               job has a penalty of its own; otherwise empty, and `owner` must be read
    deadline   of its job or None, where there is `job_weight`

    For an allocator that does not read work, `work`, `unmeasured` and `left` are empty.
    """

    capacity: int
    weight: Sequence[float]
    arrival: Sequence[float]
    work: Sequence[float]
    min_share: Sequence[float]
    max_share: Sequence[float]
    group: Sequence[int]
    groups: Sequence[Group]
    owner: Sequence[tuple[Job, Phase]]
    cluster: Cluster
    now: float = 0.0
    priority: Sequence[float] = ()
    place: Sequence[int] = ()
    unmeasured: Sequence[bool] = ()
    left: Mapping[str, Sequence[float]] = field(default_factory=dict)
    present: Mapping[str, int] = field(default_factory=dict)
    attained: Sequence[float] = ()
    finish: Sequence[float] = ()
    later_work: float = 0.0
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    request: Sequence[Resources] = ()
    totals: Resources = field(default_factory=lambda: Resources({}))
    job_weight: Sequence[float] = field(default=(), compare=False)
    deadline: Sequence[float | None] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.weight)

    def some(self, numbers: Sequence[int], **changes: Any) -> Claims:
        """These of the claims, with these fields changed."""
        columns: dict[str, Any] = {
            name: [column[number] for number in numbers]
            for name in COLUMNS
            if len(column := getattr(self, name))
        }
        return replace(self, **columns, **changes)

    @classmethod
    def of(
        cls,
        capacity: int,
        work: Sequence[float],
        *,
        weight: Sequence[float] | None = None,
        min_share: Sequence[float] | None = None,
        max_share: Sequence[float] | None = None,
        arrival: Sequence[float] | None = None,
    ) -> Claims:
        """Claims of single-phase jobs in one pool without limits.

        The defaults are weight 1, min share 0, max share `capacity` and arrival 0.
        """
        count = len(work)
        weight, arrival = weight or [1.0] * count, arrival or [0.0] * count
        phases = [Phase("phase", Tasks(capacity, amount / capacity)) for amount in work]
        return cls(
            capacity,
            weight=weight,
            arrival=arrival,
            work=work,
            min_share=min_share or [0.0] * count,
            max_share=max_share or [float(capacity)] * count,
            group=[0] * count,
            groups=[Group(1.0, 0.0, float("inf"))],
            owner=[
                (Job(f"{number}", (phase,), at, weight=heavy), phase)
                for number, (phase, at, heavy) in enumerate(
                    zip(phases, arrival, weight, strict=True)
                )
            ],
            cluster=Cluster.of_slots(capacity),
        )


COLUMNS = (
    *("weight", "arrival", "work", "min_share", "max_share", "group", "owner", "priority"),
    *("place", "unmeasured", "attained", "finish", "request", "job_weight", "deadline"),
)
"""The fields of claims that have an item for each claim, or none."""


class Allocator(Protocol):
    """Decides how many slots each claim gets now."""

    @property
    def reads_work(self) -> bool:
        """Whether it reads the claims' work; if not, work need not be estimated."""
        ...

    @property
    def phase_seconds(self) -> float:
        """About how long a decision takes for each phase; the same number on every machine.

        `scripts/bench flex` measures it for FLEX: where costs are lines, 2 to 4 ms for 1,000
        phases, otherwise 200 to 310 ms.
        """
        ...

    @property
    def keeps_min_shares(self) -> bool:
        """Whether each claim always gets its min share, scaled down if these do not fit."""
        ...

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim: within min and max shares, together at most the capacity."""
        ...


class JointAllocator(Allocator, Protocol):
    """An allocator that considers the claims on all kinds of slots at once."""

    def share_all(self, claims: Mapping[str, Claims]) -> Mapping[str, Sequence[float]]:
        """Slots for each claim, as from `share`, for every kind of slot that has claims."""
        ...


class ServiceReader(Allocator, Protocol):
    """An allocator that reads the service that jobs have attained, which grows all the time."""

    def holds_for(self, claims: Claims, shares: Sequence[float]) -> float:
        """How many seconds these shares stay right if no phase ends or becomes ready."""
        ...


class InOrder(Allocator, Protocol):
    """An allocator that gives each claim, in an order, the slots that those before it left.

    Where it places a claim depends on that claim alone, and on the work of all.
    """

    def order(self, claims: Claims) -> list[int] | None:
        """The claims in this order; None if these are not served so."""
        ...


class ByLevel(Allocator, Protocol):
    """An allocator that shares a pool of policy "fair" in proportion to weights.

    Each claim gets as many slots for its weight as all others, up to what it can use.
    """

    @property
    def is_by_level(self) -> bool:
        """Whether it does."""
        ...


class FinishReader(Allocator, Protocol):
    """An allocator that reads the virtual finish of jobs in a reference system."""

    @property
    def reads_finish(self) -> bool:
        """Whether it reads it."""
        ...


def is_joint(allocator: Allocator) -> TypeGuard[JointAllocator]:
    """Whether it considers all kinds of slots at once."""
    # Asked at each decision: `isinstance` of a protocol takes as long as dividing the slots.
    return hasattr(allocator, "share_all")


def is_in_order(allocator: Allocator) -> TypeGuard[InOrder]:
    """Whether it serves claims in an order."""
    return hasattr(allocator, "order")


def is_by_level(allocator: Allocator) -> TypeGuard[ByLevel]:
    """Whether it shares pools in proportion to weights."""
    return hasattr(allocator, "is_by_level")


def reads_requests(allocator: Allocator) -> bool:
    """Whether it shares by all resources that claims request; others divide slots only."""
    return getattr(allocator, "reads_requests", False)


def reads_service(allocator: Allocator) -> TypeGuard[ServiceReader]:
    """Whether it reads the service that jobs have attained."""
    return hasattr(allocator, "holds_for")


def reads_finish(allocator: Allocator) -> TypeGuard[FinishReader]:
    """Whether it reads the virtual finish of jobs."""
    return hasattr(allocator, "reads_finish")


def serves_in_turn(allocator: Allocator) -> bool:
    """Whether free slots go to phases by priority, then by arrival, whatever their pools."""
    return getattr(allocator, "serves_in_turn", False)
