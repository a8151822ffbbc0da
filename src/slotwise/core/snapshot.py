"""The read-only view of the whole state that a policy gets; it is not a copy.

It holds estimates only: no policy can see how long a task will really take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Launch, VirtualTime
from slotwise.core.job import PhaseId
from slotwise.core.pools import PoolTree
from slotwise.core.views import ChangesView, PhaseView, PoolView


@dataclass(frozen=True, slots=True)
class TaskTimings:
    """What finished tasks took, by phase (rows) and host (columns).

    tasks   the number of tasks whose times are known
    ratios  the logarithm of their seconds over their expected work in seconds at speed 1;
            0 without tasks
    """

    phases: Sequence[PhaseId]
    hosts: Sequence[str]
    tasks: npt.NDArray[np.float64]
    ratios: npt.NDArray[np.float64]


class LaunchOrder(NamedTuple):
    """The phases that get the next free slots, one task each, in this order.

    `is_cut` if further turns cannot be told before these launches are applied.
    """

    phases: Sequence[PhaseView]
    is_cut: bool


class Snapshot(Protocol):
    """The whole state at one instant."""

    @property
    def now(self) -> float:
        """The instant, in seconds on the clock of arrivals."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The hosts that are present now, with their racks and slots."""
        ...

    @property
    def pools(self) -> PoolTree:
        """The pools; every job's pool is among them."""
        ...

    def ready(self, slot_kind: str) -> Sequence[PhaseView]:
        """The ready phases that use this kind of slot, in order of arrival."""
        ...

    def holding(self, slot_kind: str) -> Sequence[PhaseView]:
        """The ready phases, then those that hold such slots but are ready no longer.

        These wait again because input was lost, while their running tasks go on. O(phases of
        admitted jobs).
        """
        ...

    def wide(self, slot_kind: str) -> Collection[PhaseView]:
        """Those of them that take several slots at once, in order of becoming ready."""
        ...

    def backlogged(self, slot_kind: str) -> Iterable[PhaseView]:
        """The ready phases with pending tasks, by pool, then within it; largest lack first."""
        ...

    def turns(self, slot_kind: str, most: Callable[[PhaseView], int]) -> LaunchOrder:
        """The turns of phases for the free slots if each launches a task at each of its turns.

        That is the order of `backlogged` after each launch, within all limits. `most` gives the
        number of tasks that a phase launches; it is called at the first turn of each phase.
        """
        ...

    def free(self, slot_kind: str) -> Mapping[str, int]:
        """The hosts with free slots of this kind for all, and the number of these slots."""
        ...

    def reserved(self, slot_kind: str) -> Mapping[str, Mapping[PoolView, int]]:
        """The other free slots of each host: those reserved for pools that took them back."""
        ...

    def freed(self, slot_kind: str) -> Sequence[str]:
        """The hosts on which slots of this kind became free since the last turn of the loop."""
        ...

    def capacity(self, slot_kind: str) -> int:
        """The slots of this kind, held and free, on hosts that can begin tasks."""
        ...

    def overdue(self, slot_kind: str) -> Collection[PoolView]:
        """The shares of pools that have lacked slots for as long as their time-out."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether no slot is free, not even reserved, no pool is overdue and no phase is wide.

        Then nothing can be launched, taken back or kept for others.
        """
        ...

    @property
    def lost(self) -> Collection[str]:
        """The hosts where nothing can begin: unresponsive ones, and those that will leave."""
        ...

    @property
    def queues(self) -> QueuesView:
        """The queue of each host, if the policy plans queues."""
        ...

    @property
    def seen(self) -> TaskTimings:
        """Totals of finished tasks by phase and host; only for the phases begun last.

        They count the tasks that finished since they were first asked for: a policy that needs
        them asks at its first decision.
        """
        ...

    @property
    def unbegun(self) -> Unbegun:
        """The tasks that have not begun, of all admitted jobs, as columns.

        A policy that plans all tasks reads it at each decision: it costs less than O(tasks) in
        Python, because most of it is kept from one reading to the next.
        """
        ...

    def phase(self, name: PhaseId) -> PhaseView:
        """A phase of a job that is not over."""
        ...

    def phases_of(self, job: str) -> Sequence[PhaseView]:
        """The phases of a job that is not over, in its order."""
        ...

    def jobs_left(self) -> Iterable[Sequence[PhaseView]]:
        """The phases of each admitted job that is not over, in topological order.

        The jobs are in order of arrival.
        """
        ...

    @property
    def phases_left(self) -> Sequence[PhaseView]:
        """The phases of `jobs_left`, and of jobs that are over since jobs or tasks came, in a
        row. It is kept from one reading to the next."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether jobs or phases came or went since the last `Reallocate`."""
        ...

    @property
    def changes(self) -> ChangesView:
        """What came or left since the last allocation."""
        ...

    @property
    def has_changed(self) -> bool:
        """Whether any event or decision was applied since the last `Reallocate`."""
        ...

    @property
    def has_shrunk(self) -> bool:
        """Whether the demand of a phase fell below its allocation or guarantee, or increased.

        While this is False, the jobs and phases are the same, and so is the result of an
        allocator that depends on shares and demand but not on work.
        """
        ...

    @property
    def reallocates_from(self) -> float:
        """The earliest instant at which a stale allocation may be replaced."""
        ...

    @property
    def objective(self) -> tuple[str, Literal["sum", "max"]] | None:
        """The penalty and the aggregate that a user set; None: those of the beginning."""
        ...

    @property
    def epoch_ends(self) -> float:
        """When the epoch of the last `Reallocate` ends."""
        ...

    @property
    def virtual(self) -> VirtualTime | None:
        """What the last `Reallocate` remembers of a reference system, if it has one."""
        ...

    @property
    def has_wide(self) -> bool:
        """Whether a ready phase takes several slots at once: its tasks are wide, or a gang."""
        ...

    @property
    def doomed(self) -> Mapping[str, str]:
        """The jobs that can no longer succeed and were not given up yet, with the reason."""
        ...

    @property
    def broken(self) -> Collection[PhaseId]:
        """The gangs to stop: an attempt has ended without a result, and others still run."""
        ...

    def attempts_of(self, job: str) -> Sequence[Launch]:
        """The running attempts of a job."""
        ...


# The queues of hosts as a policy sees them, if it plans queues (DMRS V).


class QueuesView(Protocol):
    """The queues of the last `Enqueue`, without the tasks launched since."""

    @property
    def by_host(self) -> Mapping[str, Sequence[tuple[PhaseId, int]]]:
        """The phase and number of each host's tasks, the next one first."""
        ...

    @property
    def jobs(self) -> Sequence[str]:
        """The jobs in the order in which their tasks were placed."""
        ...

    @property
    def is_outdated(self) -> bool:
        """Whether jobs, tasks or hosts that it does not cover came or went since."""
        ...

    @property
    def has_heard(self) -> bool:
        """Whether time has passed since, so that estimates may have changed."""
        ...


# The tasks that have not begun, as columns: for policies that plan all of them at once.

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UnbegunPhases:
    """The phases with tasks that have not begun: jobs by arrival, each in topological order.

    phases   these phases
    place    of each phase, by its name
    jobs     the place of each of their jobs, by name
    weight   of each job
    graphs   the jobs; a phase may wait for others here
    behind   the places of the phases here that wait for a phase, by its name
    follows  whether a phase waits for phases without such tasks
    """

    phases: Sequence[PhaseView]
    place: Mapping[PhaseId, int]
    jobs: Mapping[str, int]
    weight: Floats
    graphs: JobGraphs
    behind: Mapping[PhaseId, Sequence[int]]
    follows: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Unbegun:
    """The tasks that have not begun, of all admitted jobs that are not over.

    of          their phases
    count       the number of tasks of each phase
    task_first  the place of the first task of each phase, followed by the number of tasks
    tasks       the phase and the number of each task, phase after phase, by number
    number      the number of each task
    expected    the work of each task as estimated beforehand, seconds at speed 1
    largest     the places of the tasks, phase after phase, the largest first; ties by number
    """

    of: UnbegunPhases
    count: Sequence[int]
    task_first: Ints
    tasks: npt.NDArray[np.object_]
    number: Ints
    expected: Floats
    largest: Ints


# The stages of several jobs as arrays: which job they belong to, and which wait for which.

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class JobGraphs:
    """Jobs as DAGs of stages. The stages of a job are in topological order, job after job.

    first         the index of the first stage of each job, followed by the number of stages
    before_first  of each stage, where its part of `before` begins; then the length of that
    before        the stages before each stage, by index among all
    """

    first: Ints
    before_first: Ints
    before: Ints

    @classmethod
    def of(cls, stages: list[int], before: list[list[int]]) -> JobGraphs:
        """Jobs of these numbers of stages; `before` has the stages before each stage."""
        return cls(
            np.cumsum([0, *stages]),
            np.cumsum([0, *map(len, before)]),
            np.array([other for others in before for other in others], dtype=np.int64),
        )

    @cached_property
    def place(self) -> Ints:
        """The place of each stage within its job."""
        stages = np.diff(self.first)
        return np.arange(int(self.first[-1])) - np.repeat(self.first[:-1], stages)

    @cached_property
    def arcs(self) -> list[Ints]:
        """For each place within a job, pairs of the stage there and one before it."""
        behind = np.repeat(np.arange(len(self.place)), np.diff(self.before_first))
        pairs, place = np.column_stack([behind, self.before]), self.place[behind]
        return [pairs[place == number] for number in range(int(self.place.max()) + 1)]

    @cached_property
    def is_chain(self) -> npt.NDArray[np.bool_]:
        """For each job, whether each stage waits for exactly the stage before it."""
        waits = np.diff(self.before_first)
        is_next = waits == (self.place > 0)
        one = np.flatnonzero(is_next & (waits == 1))
        is_next[one] = self.before[self.before_first[one]] == one - 1
        return np.logical_and.reduceat(is_next, self.first[:-1])
