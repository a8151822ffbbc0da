"""What a policy may see: read-only views of the state, never copies of it.

The estimates in them are estimates: no policy can see how long a task will really take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from slotwise.model.cluster import Cluster
from slotwise.model.decision import Launch, Locality
from slotwise.model.job import Job, Phase, PhaseId
from slotwise.model.pool_tree import PoolTree, ShareKey


class Seen(NamedTuple):
    """What the finished tasks of a phase have taken on one host.

    expected  their work as estimated beforehand, seconds at speed 1
    seconds   that they computed
    tasks     how many they are
    """

    expected: float
    seconds: float
    tasks: int


NOTHING_SEEN = Seen(0.0, 0.0, 0)


class QueuesView(Protocol):
    """What each host is to run next, as the last `Enqueue` said, without what was launched."""

    @property
    def by_host(self) -> Mapping[str, Sequence[tuple[PhaseId, int]]]:
        """Phase and number of the tasks of each host, the next one first."""
        ...

    @property
    def jobs(self) -> Sequence[str]:
        """The jobs in the order in which their tasks were placed."""
        ...

    @property
    def is_outdated(self) -> bool:
        """Whether jobs, tasks or hosts came or went since that it knew nothing of."""
        ...

    @property
    def has_heard(self) -> bool:
        """Whether time passed since, so that estimates may have changed."""
        ...


class PoolView(Protocol):
    """How a pool's share of one kind of slot stands, or, at the top, all slots of that kind."""

    @property
    def name(self) -> str:
        """The pool; empty for the whole."""
        ...

    @property
    def slot_kind(self) -> str:
        """The kind of slots."""
        ...

    @property
    def parent(self) -> PoolView | None:
        """The share that it lies in; None for the whole."""
        ...

    @property
    def key(self) -> ShareKey:
        """What names it."""
        ...

    @property
    def running(self) -> int:
        """Slots that it holds."""
        ...

    @property
    def away(self) -> int:
        """Those of them on unresponsive hosts."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether it holds its most share."""
        ...

    @property
    def most_there(self) -> float:
        """Its most share without what is held on unresponsive hosts."""
        ...

    @property
    def beside(self) -> Sequence[PoolView]:
        """The shares of other kinds with which it has its least and most share together."""
        ...

    def missing(self, now: float) -> int:
        """Slots that it may take back now, beside those that are coming already."""
        ...

    def spare(self) -> int:
        """Slots that can be taken from it before it is below its share, in whole slots."""
        ...


class PhaseView(Protocol):
    """One phase of a job that is not over; policies are shown ready ones as a rule."""

    @property
    def id(self) -> PhaseId:
        """Its name."""
        ...

    @property
    def job(self) -> Job:
        """The job it is part of."""
        ...

    @property
    def phase(self) -> Phase:
        """What it is: tasks, kind, least and most slots."""
        ...

    @property
    def order(self) -> int:
        """Its place in order of arrival."""
        ...

    @property
    def pending(self) -> int:
        """Number of tasks that neither run nor are done."""
        ...

    @property
    def running(self) -> int:
        """Number of tasks that run, each in one slot."""
        ...

    @property
    def away(self) -> int:
        """Number of those of them that run on unresponsive hosts."""
        ...

    @property
    def allocated(self) -> float:
        """Slots that it should hold by the last `Reallocate`."""
        ...

    @property
    def max_share(self) -> int:
        """The most slots it may hold: its most share, cut to its number of tasks."""
        ...

    @property
    def shares(self) -> tuple[ShareKey, ...]:
        """The shares of pools that it counts against, from the top down."""
        ...

    @property
    def pool(self) -> PoolView:
        """How the last of these shares stands."""
        ...

    @property
    def may_launch(self) -> bool:
        """Whether one more slot would break neither its own most share nor that of a pool."""
        ...

    @property
    def yields(self) -> bool:
        """Whether a pool that it is in, which can hold little more, should rather have slots of
        another kind that are free: then it comes after all others."""
        ...

    @property
    def is_limited(self) -> bool:
        """Whether one of its pools has a most share."""
        ...

    @property
    def is_pinned(self) -> bool:
        """Whether its tasks can run on one host each only, where what they continue ran."""
        ...

    @property
    def overrides_delay(self) -> bool:
        """Whether a pool that it is in has waited for its share for too long to wait more."""
        ...

    def attempts(self) -> Iterable[tuple[float, Launch]]:
        """When each of its running attempts began; without those that were told to stop."""
        ...

    @property
    def has_homes(self) -> bool:
        """Whether its tasks mind where they run."""
        ...

    @property
    def deferred_since(self) -> float | None:
        """Since when it waits for a slot near its input (the last `Defer`), if it does."""
        ...

    @property
    def deferred_until(self) -> float | None:
        """When it is to be asked again."""
        ...

    @property
    def has_passed(self) -> bool:
        """Whether it let all slots pass that were free when this turn of the loop began.

        They are not near its input. A `Defer` says so, and it holds beyond the wait: launches
        bring no slot nearer. It ends with tasks that come back, and where a limit may keep the
        phase from being asked.
        """
        ...

    def next_task(self) -> tuple[int, int]:
        """The pending task to launch next anywhere, and the number of that attempt."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether all that it waits for is done, and itself is not."""
        ...

    def pending_tasks(self) -> Sequence[int]:
        """The numbers of its pending tasks, lowest first. O(tasks)."""
        ...

    def attempt_of(self, task: int) -> int:
        """The number of the attempt with which a pending task would be launched."""
        ...

    def expected(self, task: int) -> float:
        """The work of a task as estimated beforehand, seconds at speed 1."""
        ...

    def locality(self, task: int, host: str) -> Locality:
        """How far a task would run from its input on this host."""
        ...

    def next_task_on(self, hosts: Collection[str]) -> tuple[int, int, str] | None:
        """The same among the tasks whose input lies on one of these hosts, and that host.

        The hosts are tried in their order, or in that of the homes where there are fewer homes;
        a phase without homes takes the first host.
        """
        ...

    def next_task_in(self, rack: str) -> tuple[int, int] | None:
        """The same among the tasks whose input lies in this rack."""
        ...

    def is_unseen(self, now: float) -> bool:
        """Whether nothing is known of its work: none was stated, none of its tasks has ended,
        and none has run for longer than a task is taken to need that nobody has seen."""
        ...

    def work_left(self, now: float) -> float:
        """Estimated work of the tasks that are not done, in seconds at speed 1, above 0."""
        ...


class Snapshot(Protocol):
    """The state of everything at one instant."""

    @property
    def now(self) -> float:
        """The instant, in seconds on the clock of arrivals."""
        ...

    @property
    def cluster(self) -> Cluster:
        """Hosts, racks, slots."""
        ...

    @property
    def pools(self) -> PoolTree:
        """The pools; every job's pool is among them."""
        ...

    def ready(self, slot_kind: str) -> Sequence[PhaseView]:
        """Ready phases that draw on this kind of slot, in order of arrival."""
        ...

    def backlogged(self, slot_kind: str) -> Iterable[PhaseView]:
        """Those with pending tasks: by pools, then within them; who lacks most first."""
        ...

    def free(self, slot_kind: str) -> Mapping[str, int]:
        """The hosts with free slots of this kind, and how many."""
        ...

    def freed(self, slot_kind: str) -> Sequence[str]:
        """The hosts on which slots of this kind came free since the last turn of the loop."""
        ...

    def capacity(self, slot_kind: str) -> int:
        """The slots of this kind, held and free, on the hosts that are not silent."""
        ...

    def overdue(self, slot_kind: str) -> Collection[PoolView]:
        """The shares of pools that have lacked slots for as long as they put up with."""
        ...

    @property
    def lost(self) -> Collection[str]:
        """The hosts that are silent: nothing can begin there."""
        ...

    @property
    def queues(self) -> QueuesView:
        """What each host is to run next, where the policy plans that ahead."""
        ...

    @property
    def seen(self) -> Mapping[PhaseId, Mapping[str, Seen]]:
        """By phase and host what finished tasks took; of the phases begun last only."""
        ...

    def phase(self, name: PhaseId) -> PhaseView:
        """A phase of a job that is not over."""
        ...

    def jobs_left(self) -> Iterable[Sequence[PhaseView]]:
        """The phases of each job that may run and is not over, each behind all that it waits
        for; the jobs in order of arrival."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether jobs or phases came or went since the last `Reallocate`."""
        ...

    @property
    def has_changed(self) -> bool:
        """Whether anything at all was applied since the last `Reallocate`."""
        ...

    @property
    def has_shrunk(self) -> bool:
        """Whether some phase can use less than it was allocated, or than a guarantee is worth,
        or can use more than before.

        While this is False, jobs and phases are the same and so is whatever an allocator says
        that looks at shares and demand but not at work.
        """
        ...

    @property
    def epoch_ends(self) -> float:
        """When the epoch of the last `Reallocate` ends."""
        ...

    @property
    def doomed(self) -> Mapping[str, str]:
        """Jobs that cannot succeed any more and were not given up yet, with the reason."""
        ...

    def attempts_of(self, job: str) -> Sequence[Launch]:
        """The running attempts of a job."""
        ...
