"""The tasks that have not begun, as columns: for policies that plan all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState

Floats = npt.NDArray[np.float64]
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
        later = np.repeat(np.arange(len(self.place)), np.diff(self.before_first))
        pairs, place = np.column_stack([later, self.before]), self.place[later]
        return [pairs[place == number] for number in range(int(self.place.max()) + 1)]

    @cached_property
    def is_chain(self) -> npt.NDArray[np.bool_]:
        """For each job, whether each stage waits for exactly the stage before it."""
        waits = np.diff(self.before_first)
        is_next = waits == (self.place > 0)
        one = np.flatnonzero(is_next & (waits == 1))
        is_next[one] = self.before[self.before_first[one]] == one - 1
        return np.logical_and.reduceat(is_next, self.first[:-1])


@dataclass(frozen=True, slots=True)
class UnbegunPhases:
    """The phases with tasks that have not begun: jobs by arrival, each in topological order.

    phases   these phases
    place    of each phase, by its name
    jobs     the place of each of their jobs, by name
    weight   of each job
    graphs   the jobs; a phase may wait for others of these
    successors  the places of the phases that wait for a phase, by its name
    follows  whether a phase waits for phases without such tasks
    """

    phases: Sequence[PhaseState]
    place: Mapping[PhaseId, int]
    jobs: Mapping[str, int]
    weight: Floats
    graphs: JobGraphs
    successors: Mapping[PhaseId, Sequence[int]]
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


class UnbegunColumns:
    """The columns, computed when they are read.

    Launches leave gaps in the columns, which numpy closes. When a phase has no tasks left, the
    list of phases is made again; after `outdate` everything is.
    """

    def __init__(self, jobs_left: Callable[[], Iterable[Sequence[PhaseState]]]) -> None:
        """`jobs_left` returns the phases of each admitted job that is not over."""
        self._jobs_left = jobs_left
        self._left: list[PhaseState] | None = None
        self._found: Unbegun | None = None
        self._phases: list[PhaseState] = []  # those of the columns

    def outdate(self) -> None:
        """Jobs, tasks or hosts came or went: compute everything again at the next reading."""
        self._left = self._found = None

    @property
    def phases_left(self) -> Sequence[PhaseState]:
        """All phases of the jobs."""
        if self._left is None:
            self._left = [phase for phases in self._jobs_left() for phase in phases]
        return self._left

    def read(self) -> Unbegun:
        """The columns at this instant."""
        found = self._found
        if found is None:
            self._phases = [phase for phase in _plannable(self.phases_left) if phase.pending]
            found = _columns(self._phases)
        else:
            pending = [phase.pending for phase in self._phases]
            if pending != found.count:
                found = self._without_begun(found, pending)
        self._found = found
        return found

    def _without_begun(self, found: Unbegun, pending: list[int]) -> Unbegun:
        """The columns without the tasks that have begun; `pending` are left of each phase."""
        is_left = np.ones(len(found.expected), np.bool_)
        rows = [row for row, count in enumerate(found.count) if count != pending[row]]
        for row in rows:
            begin, end = found.task_first[row : row + 2].tolist()
            kept = found.number[begin:end].searchsorted(self._phases[row].pending_tasks())
            is_left[begin:end] = False
            is_left[begin + kept] = True
        of = found.of
        if not all(pending):
            self._phases = [phase for phase in self._phases if phase.pending]
            pending = [count for count in pending if count]
            of = _phases(self._phases)
        largest = found.largest[is_left[found.largest]]
        return Unbegun(
            of,
            pending,
            np.array([0, *pending]).cumsum(),
            found.tasks[is_left],
            found.number[is_left],
            found.expected[is_left],
            (is_left.cumsum() - 1)[largest],
        )


def _plannable(phases: Sequence[PhaseState]) -> Sequence[PhaseState]:
    """Those of these phases that do not wait for failed tasks in their delays.

    These would keep hosts idle if they were in queues. The phases of each job are in
    topological order.
    """
    if not any(phase.delayed for phase in phases):
        return phases
    held: set[PhaseId] = set()
    found = []
    for phase in phases:
        waits = any(PhaseId(phase.id.job, name) in held for name in phase.waits_for)
        if waits or phase.delayed:
            held.add(phase.id)
        if not waits:
            found.append(phase)
    return found


def _columns(phases: Sequence[PhaseState]) -> Unbegun:
    """The columns of these phases, which have tasks that have not begun."""
    count = [phase.pending for phase in phases]
    first = np.array([0, *count]).cumsum()
    tasks = [(phase.id, task) for phase in phases for task in phase.pending_tasks()]
    number = np.array([task for _, task in tasks], np.int64)
    expected = np.zeros(len(tasks))
    for phase, begin, end in zip(phases, first.tolist(), first[1:].tolist(), strict=False):
        each = phase.phase.tasks.work
        is_equal = not isinstance(each, tuple)
        expected[begin:end] = (
            phase.work.expected(tasks[begin][1])
            if is_equal
            else np.array(each)[number[begin:end]]
        )
    return Unbegun(
        _phases(phases),
        count,
        first,
        np.fromiter(tasks, object, len(tasks)),
        number,
        expected,
        np.lexsort((-expected, np.arange(len(count)).repeat(count))),
    )


def _phases(phases: Sequence[PhaseState]) -> UnbegunPhases:
    """The columns of these phases, which have tasks that have not begun."""
    jobs: dict[str, int] = {}
    stages: list[int] = []
    weight: list[float] = []
    place: dict[PhaseId, int] = {}
    successors: dict[PhaseId, list[int]] = {}
    before: list[list[int]] = []
    follows: list[bool] = []
    for number, phase in enumerate(phases):
        job = phase.job.id
        if job not in jobs:
            jobs[job] = len(jobs)
            stages.append(0)
            weight.append(phase.job.weight)
        stages[-1] += 1
        place[phase.id] = number
        waits_for = [PhaseId(job, name) for name in phase.phase.waits_for]
        for name in waits_for:
            successors.setdefault(name, []).append(number)
        before.append(sorted(place[name] for name in waits_for if name in place))
        follows.append(len(before[-1]) < len(waits_for))
    graphs = JobGraphs.of(stages, before)
    weights, follow = np.array(weight, np.float64), np.array(follows, np.bool_)
    return UnbegunPhases(phases, place, jobs, weights, graphs, successors, follow)
