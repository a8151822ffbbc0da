"""Keeps the columns of the tasks that have not begun from one decision to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from slotwise.model.job import PhaseId
from slotwise.model.job_graphs import JobGraphs
from slotwise.model.unbegun import Unbegun, UnbegunPhases
from slotwise.runtime.phase_state import PhaseState


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
            self._phases = [phase for phase in self.phases_left if phase.pending]
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
            phase.expected(tasks[begin][1]) if is_equal else np.array(each)[number[begin:end]]
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
    behind: dict[PhaseId, list[int]] = {}
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
            behind.setdefault(name, []).append(number)
        before.append(sorted(place[name] for name in waits_for if name in place))
        follows.append(len(before[-1]) < len(waits_for))
    graphs = JobGraphs.of(stages, before)
    weights, follow = np.array(weight, np.float64), np.array(follows, np.bool_)
    return UnbegunPhases(phases, place, jobs, weights, graphs, behind, follow)
