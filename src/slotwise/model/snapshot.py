"""The read-only view of the whole state that a policy gets; it is not a copy.

It holds estimates only: no policy can see how long a task will really take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from slotwise.model.cluster import Cluster
from slotwise.model.decision import Launch
from slotwise.model.job import PhaseId
from slotwise.model.pool_tree import PoolTree
from slotwise.model.queues_view import QueuesView
from slotwise.model.unbegun import Unbegun
from slotwise.model.views import ChangesView, PhaseView, PoolView
from slotwise.model.virtual_time import VirtualTime


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
