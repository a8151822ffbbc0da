"""The read-only views of phases and pools that a policy gets; they are not copies.

Units: what a phase or a pool holds, demands and may hold is counted in slots (`running`,
`slots_on_lost_hosts`, `max_share`, `allocated`, `missing`, `spare`). `pending` counts tasks. A
task holds `width` slots of one host, so `running` and `max_share` of a phase are multiples of
its width. It launches one task, or all tasks of a gang, at once: `unit` slots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from slotwise.core.decisions import Launch, Locality
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.pools import ShareKey


class PoolView(Protocol):
    """A pool's share of one kind of slot; at the top, all slots of that kind."""

    @property
    def name(self) -> str:
        """The pool; empty at the top."""
        ...

    @property
    def slot_kind(self) -> str:
        """The kind of slots."""
        ...

    @property
    def parent(self) -> PoolView | None:
        """The share that contains it; None at the top."""
        ...

    @property
    def key(self) -> ShareKey:
        """Its key."""
        ...

    @property
    def running(self) -> int:
        """The slots that it holds."""
        ...

    @property
    def slots_on_lost_hosts(self) -> int:
        """The slots that it holds on unresponsive hosts."""
        ...

    @property
    def slots_being_reclaimed(self) -> int:
        """The slots that other tasks were asked to free for it, and those reserved for it."""
        ...

    @property
    def held(self) -> int:
        """The slots that it holds on responsive hosts."""
        ...

    @property
    def expected(self) -> int:
        """The slots that it will hold when all attempts that were asked to stop have ended."""
        ...

    @property
    def lacks(self) -> int:
        """The whole slots of its share that it does not hold; below 0 if it holds more."""
        ...

    @property
    def surplus(self) -> float:
        """The slots above its share that it will hold when stopping tasks have ended.

        Slots that are being taken back for it do not count, since it does not hold them yet.
        """
        ...

    @property
    def is_starving(self) -> bool:
        """Whether it has lacked slots of its min share for as long as its time-out."""
        ...

    @property
    def allocated(self) -> float:
        """The slots that the phases in it should hold now."""
        ...

    @property
    def moved(self) -> float:
        """The slots that each `Adjust` since the last `Reallocate` gave or took here."""
        ...

    @property
    def room_later(self) -> float:
        """`room` when all tasks below it that were asked to stop have ended."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether it holds its max share."""
        ...

    @property
    def room(self) -> float:
        """The number of further slots that it may hold; inf without a max share."""
        ...

    @property
    def most_there(self) -> float:
        """Its max share minus the slots that it holds on unresponsive hosts."""
        ...

    @property
    def of_other_kinds(self) -> Sequence[PoolView]:
        """The shares of other kinds with which it has a common min and max share."""
        ...

    def missing_least(self, now: float) -> int:
        """Slots of its min share that it may take back now; `missing` includes them."""
        ...

    def missing(self, now: float) -> int:
        """Slots that it may take back now, without those already being taken back for it."""
        ...

    def spare(self) -> int:
        """The whole slots that can be taken from it before it is below its share."""
        ...

    def walk(self) -> Iterable[PhaseView]:
        """The phases below it with pending tasks, in the order in which they are served."""
        ...


SLIGHT = 100
"""Changes in a pool are slight up to one for this number of its ready phases."""


class ChangesView(Protocol):
    """The changes since the last `Reallocate`, and since the last `Adjust`."""

    @property
    def is_slight(self) -> bool:
        """Whether few phases came or left since the last `Reallocate`, for each pool."""
        ...

    @property
    def came(self) -> Mapping[PhaseId, PhaseView]:
        """The ready phases that came, or whose demand changed, since the last of both."""
        ...

    @property
    def ended(self) -> Mapping[PhaseId, PhaseView]:
        """The phases with slots that are not ready any more, since the last of both."""
        ...

    @property
    def front(self) -> Mapping[str, Mapping[PhaseId, PhaseView]] | None:
        """By kind of slot: the ready phases that the last `Reallocate` put first, if any."""
        ...

    @property
    def others(self) -> Mapping[str, Mapping[PhaseId, PhaseView]]:
        """By kind of slot: the other ready phases that came, or whose demand changed, since."""
        ...

    @property
    def behind(self) -> Mapping[str, float]:
        """By kind of slot: the work of the phases behind those, slot-seconds."""
        ...


class PhaseView(Protocol):
    """One phase of a job that is not over; policies mostly get ready ones."""

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
        """Its description: tasks, kind, min and max slots."""
        ...

    @property
    def order(self) -> int:
        """Its place in order of arrival."""
        ...

    @property
    def pending(self) -> int:
        """The number of tasks that neither run nor are done."""
        ...

    @property
    def tasks_left(self) -> int:
        """The number of tasks that are not done."""
        ...

    @property
    def width(self) -> int:
        """The slots of one host that each task occupies."""
        ...

    @property
    def unit(self) -> int:
        """The slots that it takes at once: those of a task, or of all tasks of a gang."""
        ...

    @property
    def is_gang(self) -> bool:
        """Whether all of its tasks start together. It may launch only while none runs."""
        ...

    @property
    def running(self) -> int:
        """The slots that its running tasks hold."""
        ...

    @property
    def slots_on_lost_hosts(self) -> int:
        """The slots that it holds on unresponsive hosts."""
        ...

    @property
    def allocated(self) -> float:
        """The slots that it should hold according to the last `Reallocate`."""
        ...

    @property
    def max_share(self) -> int:
        """The most slots it may hold: its max share, or the slots of all its tasks."""
        ...

    @property
    def shares(self) -> tuple[ShareKey, ...]:
        """The shares of pools that it counts against, from the top down."""
        ...

    @property
    def pool(self) -> PoolView:
        """The last of these shares."""
        ...

    @property
    def may_launch(self) -> bool:
        """Whether one more task, or its gang, exceeds neither its max share nor a pool's."""
        ...

    @property
    def yields(self) -> bool:
        """Whether one of its pools, near its limit, should get free slots of another kind.

        Such a phase is served after all others.
        """
        ...

    @property
    def is_limited(self) -> bool:
        """Whether one of its pools has a max share."""
        ...

    @property
    def is_pinned(self) -> bool:
        """Whether each task can run on one host only, where the task that it continues ran."""
        ...

    @property
    def overdue(self) -> int:
        """The number of its pools that are overdue."""
        ...

    @property
    def overrides_delay(self) -> bool:
        """Whether one of its pools is overdue, so that it must not wait for locality."""
        ...

    def attempts(self) -> Iterable[tuple[float, Launch]]:
        """The start and launch of each running attempt, without those asked to stop."""
        ...

    def spared_until(self, task: int) -> float:
        """Until when a running task is not stopped for the share of a pool, if it ever is.

        It is stopped before only for a min share. It has run twice as long then as the longest
        of its attempts that was stopped for a pool.
        """
        ...

    def stops(self) -> Iterable[tuple[str, PoolView | None]]:
        """The host of each running attempt that was asked to stop, and the pool it is for."""
        ...

    @property
    def has_homes(self) -> bool:
        """Whether its tasks prefer hosts."""
        ...

    @property
    def level(self) -> Locality:
        """The locality of its last launch of a task that has a home; NODE before it.

        NODE for a gang, too, which launches all of its tasks together.
        """
        ...

    @property
    def deferred_since(self) -> float | None:
        """When its wait for other free slots began (last `Defer`); None without one.

        For a wait that stood still it is later by that time; None while it stands still.
        """
        ...

    @property
    def waited(self) -> float:
        """The seconds of a wait that stands still; 0 without one.

        A wait for locality stands still while slots are offered to other phases only.
        """
        ...

    @property
    def deferred_until(self) -> float | None:
        """When it is considered again at the latest; None until it is offered slots again."""
        ...

    @property
    def has_passed(self) -> bool:
        """Whether it skipped all slots that were free when this turn of the loop began.

        None of them is near its input. A `Defer` sets this, and it stays set when the wait is
        over, because launches bring no slot nearer. It is reset when tasks become pending
        again. It is not set where a limit may have excluded the phase, or while other
        phases wait for several slots at once, for which some may be kept.
        """
        ...

    def next_task(self) -> tuple[int, int]:
        """The pending task to launch next on any host, and the number of that attempt."""
        ...

    def next_task_without_home(self, hosts: Iterable[str]) -> tuple[int, int, str] | None:
        """Like `next_task`, among the tasks whose input is on no host of the cluster.

        Also the one of these hosts to take.
        """
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it is not done, and all that it waits for is done."""
        ...

    def pending_tasks(self) -> Sequence[int]:
        """The numbers of its pending tasks, lowest first. O(tasks)."""
        ...

    def attempt_of(self, task: int) -> int:
        """The number of the next attempt of a pending task."""
        ...

    def expected(self, task: int) -> float:
        """The work of a task as estimated beforehand, in seconds at speed 1."""
        ...

    def locality(self, task: int, host: str) -> Locality:
        """How far a task would run from its input on this host."""
        ...

    @property
    def failures(self) -> object | None:
        """Where its tasks have failed; None if none has."""
        ...

    def avoided(self, lost: Collection[str]) -> Collection[str]:
        """The hosts where it begins nothing, because its tasks only fail there.

        Empty if it has no `failures`. `lost` are the hosts where nothing can begin.
        """
        ...

    def next_task_for(self, hosts: Iterable[str]) -> tuple[int, int, str]:
        """Like `next_task`, and the one of these hosts to take: one where it has not failed."""
        ...

    def next_task_on(self, hosts: Collection[str]) -> tuple[int, int, str] | None:
        """Like `next_task`, among the tasks with input on one of these hosts; also the host.

        The hosts are tried in the given order, or in the order of the homes if there are fewer
        homes. A phase without homes takes the first host where the task has not failed.
        """
        ...

    @property
    def homes(self) -> HomesView:
        """Where the input of its pending tasks is."""
        ...

    def next_task_in(self, rack: str) -> tuple[int, int] | None:
        """Like `next_task`, among the tasks with input in this rack."""
        ...

    def work_left(self, now: float) -> float:
        """The estimated work of the tasks that are not done, in slot-seconds; above 0."""
        ...

    def estimate(self, now: float) -> tuple[float, float]:
        """`work_left`, and the standard deviation of the logarithm of the time of its tasks.

        The latter is 0 if a task has finished, and if work is stated and was exact so far.
        """
        ...

    def attained(self, now: float) -> float:
        """The work that its finished and running tasks have done so far, in slot-seconds."""
        ...


# Where the input of the pending tasks of a phase is, as arrays.

Integers = npt.NDArray[np.signedinteger[Any]]


class Copies(NamedTuple):
    """The copies of the input of pending tasks: entry i is a copy for a task on a host.

    names  hosts, which need not be in the cluster
    tasks  the task of each copy, in increasing order
    hosts  the host of each copy, as a place in `names`
    """

    names: Sequence[str]
    tasks: Integers
    hosts: Integers


class HomesView(Protocol):
    """The pending tasks of one phase and their input."""

    def copies(self) -> Copies:
        """The copies of the input of its pending tasks; for pinned tasks, their hosts.

        O(copies of all tasks), in numpy.
        """
        ...

    def pending(self, most: int) -> Sequence[int]:
        """The lowest pending tasks, at most so many."""
        ...

    def task_without_home(self) -> int | None:
        """A pending task with input on no host of the cluster."""
        ...

    def without_home(self) -> Sequence[int]:
        """The pending tasks with input on no host of the cluster, lowest first. O(these)."""
        ...

    def bytes_of(self, tasks: Integers) -> Integers:
        """The size of the input of each of these tasks; 0 where it is unknown."""
        ...
