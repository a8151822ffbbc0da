"""Decisions of a scheduler. They are values, so a log is a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import Literal, NamedTuple

from slotwise.core.job import PhaseId, fast_frozen


class Locality(IntEnum):
    """How far a task runs from its input."""

    NODE = 0
    RACK = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Reallocate:
    """The number of slots that each phase should hold from now on; 0 for phases not named.

    Half a slot is a slot half of the time. The next epoch begins at `until`, and the allocation
    is then decided again. Arrivals and ends before `earliest` do not change it sooner than
    then: until `earliest`, free slots go to whoever is furthest below this allocation.
    `virtual` is what the allocator has to remember of its reference system, if it has one.
    Free slots go to phases by priority, then by arrival, if it is `in_turn` (FIFO); then min
    shares do not count.
    `next` names the phases that come first when those in `slots` can use no more, in no
    particular order; None if the allocator serves phases in no order. `behind` is the estimated
    work of all others, slot-seconds, by kind of slot.
    """

    slots: Mapping[PhaseId, float]
    until: float
    earliest: float = -inf
    virtual: VirtualTime | None = None
    in_turn: bool = False
    next: tuple[PhaseId, ...] | None = None
    behind: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adjust:
    """Like `Reallocate`, where little has changed: phases not named keep their slots.

    It names all phases that left since the last decision of both kinds and had slots; with 0.
    """

    slots: Mapping[PhaseId, float]
    until: float
    earliest: float = -inf


Queue = tuple[tuple[PhaseId, int], ...]
"""Tasks in the order in which they will run: the phase and number of each."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """From now on each host runs these tasks, in this order (DMRS V).

    It replaces all earlier queues. A launch removes a task from its queue. `jobs` are in the
    order in which their tasks were placed. `starts` are the reservations of waiting phases: the
    instant at which the next task of each, or its gang, begins at the latest as planned.
    """

    queues: Mapping[str, Queue]
    jobs: tuple[str, ...] = ()
    starts: Mapping[PhaseId, float] = field(default_factory=dict)


@fast_frozen
class Launch:
    """Run this attempt of a task on this host, in as many slots as its phase states.

    `devices` are the numbers of the host's GPUs that the task gets, or shares. `memory` is what
    it holds of the host, in bytes, if that is learned; 0 if it holds what its phase states.
    """

    phase: PhaseId
    task: int
    attempt: int
    host: str
    locality: Locality
    devices: tuple[int, ...] = ()
    memory: int = 0


@fast_frozen
class Defer:
    """This phase waits for other free slots than those that it was offered.

    They were far from its input (delay scheduling), too few on each host for one of its tasks,
    or too few for its gang, or the hosts lack resources that its tasks request. It has been
    waiting since `since` and is considered again at `until`. A wait for locality stands still
    while slots are offered to other phases only; the `since` of the next `Defer` is later by
    this time. A launch ends the wait.

    `host` is kept until then for a phase whose tasks request resources beside slots.
    """

    phase: PhaseId
    since: float
    until: float
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """Ask this running attempt to stop, and kill it if it still runs at `until`.

    `until` None kills it at once. `pool` is the pool that takes the slot back: when the attempt
    has ended, its slots are reserved for this pool, until a task of the pool is launched there
    or a `Release`. It is None if the job was given up, another attempt of its gang has ended
    without a result, or it moves to its input.
    """

    phase: PhaseId
    task: int
    attempt: int
    host: str
    until: float | None = None
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Free slots of a host that were reserved for a pool are for all pools again.

    The pool has what it lacked, or can launch nothing there. `kind` is the kind of phases whose
    share of the pool took the slots, "task" for all kinds without a share of their own.
    """

    pool: str
    kind: str
    slot_kind: str
    host: str
    slots: int


@dataclass(frozen=True, slots=True)
class WouldPreempt:
    """A running attempt that `pool` would take the slots of, were its preemption no dry run."""

    phase: PhaseId
    task: int
    attempt: int
    host: str
    pool: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This job failed: start no more of its tasks."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """These tasks have failed, and their delays are over: they may run again."""

    phase: PhaseId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AcceptPromise:
    """The job will be done at `at`: from now on slots are reserved for it.

    From `begins` to `until`, which is `at` or before; it begins later when tasks are done.
    `factors` are assumed for its phases, by name: their real over their stated work.
    """

    job: str
    at: float
    kind: str
    slots: int
    begins: float
    until: float
    factors: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RefusePromise:
    """The job gets no promise of `at`. It runs like one that asks for none.

    `earliest` is the earliest date that could be promised; None if the reason is another one.
    """

    job: str
    at: float
    reason: str
    earliest: float | None = None


@dataclass(frozen=True, slots=True)
class GuaranteePromise:
    """The promise of a job is due: these min shares of its phases, by name, are guaranteed."""

    job: str
    slots: Mapping[str, int]


PromiseCause = Literal["hosts", "pools", "min_shares", "failures", "estimates"]
"""Why a promise is broken: hosts were lost, pools were changed, min shares came first, attempts
failed or were stopped, or tasks took longer than assumed."""


@dataclass(frozen=True, slots=True)
class BreakPromise:
    """The job is not done at the promised date. Its slots are guaranteed no more."""

    job: str
    at: float
    cause: PromiseCause


Decision = (
    Reallocate
    | Adjust
    | Enqueue
    | Launch
    | Defer
    | Preempt
    | WouldPreempt
    | Release
    | GiveUp
    | Retry
    | AcceptPromise
    | RefusePromise
    | GuaranteePromise
    | BreakPromise
)
"""All decisions of a scheduler."""


# Virtual time: how far a fluid reference system has come that shares all slots by user.
#
# It is data that a scheduler remembers from one `Reallocate` to the next. The rules are in
# `slotwise.policy.uwfq`.


class VirtualJob(NamedTuple):
    """A job that is not complete in the reference, though it may be over in reality.

    begun     its user's clock when it came
    size      its estimated work in all, slot-seconds, without `before`
    attained  the service that it had really attained at the last decision, slot-seconds
    before    its work in all as it was estimated when it was complete in the reference, slot-
              seconds, if it proved to be larger and came again; else 0
    """

    job: str
    begun: float
    size: float
    weight: float
    attained: float
    before: float = 0.0


class VirtualUser(NamedTuple):
    """A pool with jobs that are not complete in the reference.

    begun  virtual time at which the first of these jobs begins if they run one after another
    clock  service of each of its jobs since the pool became busy, slot-seconds per weight
    """

    name: str
    begun: float
    clock: float
    jobs: tuple[VirtualJob, ...]


class VirtualEnd(NamedTuple):
    """The virtual finish of a job that is complete in the reference, but not in reality.

    size  its estimated work in all, slot-seconds
    """

    finish: float
    size: float


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """The reference system at one instant.

    at      the instant, in seconds on the clock of arrivals
    slots   the slots that it shares from then on
    now     the virtual time then: slot-seconds that a busy user of weight 1 has got so far
    users   the busy users
    late    the jobs that are over in the reference only
    finish  the virtual finish of each real job, from the above
    """

    at: float
    slots: int
    now: float = 0.0
    users: tuple[VirtualUser, ...] = ()
    late: Mapping[str, VirtualEnd] = field(default_factory=dict)
    finish: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)
