"""Keeps the columns of the tasks that have not begun from one decision to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from slotwise.model.job import PhaseId
from slotwise.model.unbegun import Floats, Ints, Unbegun, UnbegunPhases
from slotwise.runtime.phase_state import PhaseState


class UnbegunColumns:
    """The columns, computed when they are read.

    A launch changes those of its phase, and joining all columns is left, which numpy does. When
    a phase has no tasks left, the list of phases is made again; after `outdate` everything is.
    """

    def __init__(self, jobs_left: Callable[[], Iterable[Sequence[PhaseState]]]) -> None:
        """`jobs_left` returns the phases of each admitted job that is not over."""
        self._jobs_left = jobs_left
        self._found: Unbegun | None = None
        self._left: list[PhaseState] = []
        self._rows: list[_Row] = []
        self._of: UnbegunPhases | None = None

    def outdate(self) -> None:
        """Jobs, tasks or hosts came or went: compute everything again at the next reading."""
        self._found = None

    def read(self) -> Unbegun:
        """The columns at this instant."""
        if self._found is None:
            self._left = [phase for phases in self._jobs_left() for phase in phases]
            self._rows = [_Row(phase) for phase in self._left if phase.pending]
            self._of = None
        changed = [row for row in self._rows if row.phase.pending != row.count]
        if not changed and self._found is not None:
            return self._found
        for row in changed:
            row.read()
        if not all(row.count for row in changed):
            self._rows = [row for row in self._rows if row.count]
            self._of = None
        if self._of is None:
            self._of = _phases([row.phase for row in self._rows])
        self._found = self._joined(self._of)
        return self._found

    def _joined(self, of: UnbegunPhases) -> Unbegun:
        rows = self._rows
        if not rows:
            none = np.zeros(0)
            places = np.zeros(0, np.int64)
            return Unbegun(
                of, self._left, np.zeros(1, np.int64), none.astype(object), none, places
            )
        task_first = np.array([0, *(row.count for row in rows)]).cumsum()
        return Unbegun(
            of,
            self._left,
            task_first,
            np.concatenate([row.tasks for row in rows]),
            np.concatenate([row.expected for row in rows]),
            np.concatenate([row.largest for row in rows])
            + np.repeat(task_first[:-1], np.diff(task_first)),
        )


class _Row:
    """The columns of one phase."""

    __slots__ = ("count", "expected", "largest", "numbers", "phase", "tasks")

    def __init__(self, phase: PhaseState) -> None:
        self.phase, self.count = phase, phase.pending
        self.numbers = np.array(phase.pending_tasks())
        name, numbers = phase.id, self.numbers.tolist()
        self.tasks = np.fromiter(((name, task) for task in numbers), object, self.count)
        each = phase.phase.tasks.work
        self.expected: Floats = (
            np.array(each)[self.numbers]
            if isinstance(each, tuple)
            else np.full(self.count, phase.expected(numbers[0]))
        )
        self._sort()

    def read(self) -> None:
        """Drop the tasks that are not pending any more."""
        self.count = self.phase.pending
        numbers = np.array(self.phase.pending_tasks(), np.int64)
        kept = self.numbers.searchsorted(numbers)
        self.numbers, self.tasks, self.expected = numbers, self.tasks[kept], self.expected[kept]
        self._sort()

    def _sort(self) -> None:
        self.largest: Ints = (-self.expected).argsort(kind="stable")


def _phases(phases: Sequence[PhaseState]) -> UnbegunPhases:
    """The columns of these phases, which have tasks that have not begun."""
    jobs: dict[str, int] = {}
    first: list[int] = []
    place: dict[PhaseId, int] = {}
    behind: dict[PhaseId, list[int]] = {}
    arcs: list[list[int]] = []
    follows = []
    for number, phase in enumerate(phases):
        job = phase.job.id
        if job not in jobs:
            jobs[job] = len(jobs)
            first.append(number)
        place[phase.id] = number
        waits_for = [PhaseId(job, name) for name in phase.phase.waits_for]
        for name in waits_for:
            behind.setdefault(name, []).append(number)
        arcs.append(sorted(place[name] for name in waits_for if name in place))
        follows.append(len(arcs[-1]) < len(waits_for))
    return UnbegunPhases(
        phases,
        place,
        jobs,
        np.array([phases[number].job.weight for number in first], dtype=float),
        np.array([*first, len(phases)]),
        np.array([0, *map(len, arcs)]).cumsum(),
        np.array([other for others in arcs for other in others], dtype=np.int64),
        behind,
        np.array(follows, dtype=np.bool_),
    )
