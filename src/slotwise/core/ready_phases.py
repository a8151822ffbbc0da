"""The ready phases of one kind of slot as columns, kept from one decision to the next.

Where thousands of phases wait, an allocation reads the same properties of nearly all of them
again. Columns hold what does not change while a phase is ready and its job stays the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slotwise.core.job import PRIORITIES, Job, Phase, PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.phase_work import AS_STATED, NEVER
from slotwise.core.pool_state import PoolState
from slotwise.core.pools import ShareKey
from slotwise.core.resources import Resources, table

_ORDER = attrgetter("order")


class ReadyColumns(NamedTuple):
    """Properties of ready phases in order of arrival; nobody may change these lists.

    weight     the share weight of its job
    job_weight its weight in the objective
    arrival    of its job, seconds
    deadline   of its job, or None
    priority   of its job, as a number
    slots_min  its stated min share
    pool       the share of its pool that it counts against
    path       the names of that share and of those that contain it, from the top down
    request    what one of its tasks occupies
    """

    phase: list[PhaseState]
    id: list[PhaseId]
    owner: list[tuple[Job, Phase]]
    weight: list[float]
    job_weight: list[float]
    arrival: list[float]
    deadline: list[float | None]
    place: list[int]
    priority: list[float]
    slots_min: list[int]
    pool: list[PoolState]
    path: list[tuple[ShareKey, ...]]
    request: list[Resources]

    @classmethod
    def empty(cls) -> ReadyColumns:
        """Columns without phases."""
        return cls._make([] for _ in cls._fields)


def _row(phase: PhaseState) -> tuple[object, ...]:
    job = phase.job
    return (
        *(phase, phase.id, (job, phase.phase), job.share_weight, job.weight, job.arrival),
        *(job.deadline, phase.order, PRIORITIES[job.priority], phase.phase.slots_min),
        *(phase.pool, phase.shares, phase.request),
    )


class Requests(list[Resources]):
    """A column of requests, with the same as numbers.

    names    of all resources that are requested, sorted
    amounts  a row for each request, with a column for each name
    slots    the slots that each request has of the kind of the phases
    """

    __slots__ = ("amounts", "names", "slots")

    def __init__(
        self, requests: Sequence[Resources], slot_kind: str, kept: RequestTable | None = None
    ) -> None:
        """`kept`: the table of these requests, where it is known."""
        super().__init__(requests)
        names, amounts = kept or _tabulated(requests)
        used = np.flatnonzero(amounts.any(axis=0))
        self.names = [names[column] for column in used.tolist()]
        self.slots = amounts[:, names.index(slot_kind)]
        self.amounts = amounts if len(used) == len(names) else amounts[:, used]


RequestTable = tuple[list[str], npt.NDArray[np.int64]]
"""Names, sorted, and for each request a row of amounts."""


def _tabulated(requests: Sequence[Resources]) -> RequestTable:
    amounts = table(requests)
    return list(amounts), np.array(list(amounts.values()), np.int64).T


class ReadyPhases:
    """The ready phases that use one kind of slot, in order of arrival.

    pinned   how many of them have tasks that must run where those that they continue did
    several  how many of them are of jobs with several phases
    unstated how many of them state no work
    unlike   how many of them are of jobs with penalties of their own

    A change of one phase costs a search, and moves references in each column. Columns that were
    read are copied before they change, so that a reader keeps those that it has read.
    """

    def __init__(self) -> None:
        self.pinned = self.several = self.unstated = self.unlike = 0
        self._learned_at = NEVER
        self._columns = ReadyColumns.empty()
        self._is_read = False
        self._requests: RequestTable | None = None  # since they were read

    @property
    def phases(self) -> list[PhaseState]:
        """The phases; for reading at once only."""
        return self._columns.phase

    def columns(self) -> ReadyColumns:
        """The columns as they are now."""
        self._is_read = True
        return self._columns

    def requests(self) -> Requests:
        """The column of requests, with their amounts; there must be some."""
        requests, first = self._columns.request, self._columns.phase[0]
        if self._requests is None:
            self._requests = _tabulated(requests)
        return Requests(requests, first.slot_kind, self._requests)

    def add(self, phase: PhaseState) -> None:
        """A phase becomes ready."""
        self._count(phase, 1)
        place = self._place(phase)
        if self._requests is not None:
            names, amounts = self._requests
            row = [phase.request.get(name, 0) for name in names]
            is_known = phase.request.keys() <= set(names)
            inserted = (names, np.insert(amounts, place, row, axis=0)) if is_known else None
            self._requests = inserted
        for column, value in zip(self._own(), _row(phase), strict=True):
            column.insert(place, value)

    def remove(self, phase: PhaseState) -> None:
        """A phase is not ready any more."""
        self._count(phase, -1)
        place = self._place(phase)
        if self._requests is not None:
            self._requests = self._requests[0], np.delete(self._requests[1], place, axis=0)
        for column in self._own():
            del column[place]

    def refresh(self, phase: PhaseState) -> None:
        """The job, the pool or the request of a ready phase was replaced."""
        place, self._requests = self._place(phase), None
        for column, value in zip(self._own(), _row(phase), strict=True):
            column[place] = value

    def estimates(self, now: float) -> list[tuple[float, float]]:
        """What `PhaseState.estimate` returns for each; most phases wait, and keep theirs."""
        phases = self.phases
        if not phases:
            return []
        learned = phases[0].work.learned
        is_sure = learned.is_exact and not self.unstated
        learned_at = AS_STATED if is_sure else learned.changes
        if learned_at != self._learned_at:
            self._learned_at = learned_at
            return [phase.estimate(now) for phase in phases]
        return [phase.estimated or phase.estimate(now) for phase in phases]

    def check(self, phases: list[PhaseState]) -> None:
        """Assert that the columns are those of these phases. For tests."""
        assert self._columns.phase == sorted(phases, key=_ORDER)
        rows = list(zip(*self._columns, strict=True))
        assert rows == list(map(_row, self.phases)), "columns are up to date"
        if self._requests is not None and phases:
            kept, new = self.requests(), Requests(self._columns.request, phases[0].slot_kind)
            assert kept.names == new.names, "the names of the resources are known"
            assert np.array_equal(kept.amounts, new.amounts), "the amounts are up to date"
        counts = self.pinned, self.several, self.unstated, self.unlike
        again = ReadyPhases()
        for phase in phases:
            again._count(phase, 1)
        assert counts == (again.pinned, again.several, again.unstated, again.unlike)
        for phase in phases:
            assert phase.is_pinned or phase.counted == phase.demand, "its demand is counted"

    def _count(self, phase: PhaseState, number: int) -> None:
        self.pinned += number * phase.is_pinned
        self.several += number * (len(phase.job.phases) > 1)
        self.unstated += number * (phase.phase.tasks.work is None)
        self.unlike += number * (phase.job.penalty is not None)

    def _place(self, phase: PhaseState) -> int:
        return bisect_left(self._columns.place, phase.order)

    def _own(self) -> Sequence[list[Any]]:
        """The columns, to be changed: copies of those that were read."""
        if self._is_read:
            self._columns = ReadyColumns._make(column.copy() for column in self._columns)
            self._is_read = False
        return self._columns
