"""The tasks that have not begun at an instant, as the numeric problem of DMRS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slotwise.assignment.dmrs.jobs import machines_of
from slotwise.assignment.dmrs.problem import JobColumns, RelatedMachines
from slotwise.estimation.corrections import Corrected
from slotwise.estimation.extrapolation import RUNNING_FLOOR, WORK_LEAST
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Snapshot
from slotwise.model.unbegun import Unbegun
from slotwise.model.views import PhaseView
from slotwise.objective.costs import Floats, Ints


@dataclass(frozen=True)
class Remaining:
    """The tasks that have not begun, on the responsive hosts; time counts from now.

    problem  the tasks as in `unbegun`; None if there are no such tasks, or no such hosts
    hosts    the host of each machine
    """

    problem: RelatedMachines | None
    unbegun: Unbegun
    hosts: list[str]

    @cached_property
    def jobs(self) -> list[str]:
        """The name of each job of the problem."""
        return list(self.unbegun.of.jobs)

    def place(self, phase: PhaseId, task: int) -> int:
        """The index of a task in the problem."""
        unbegun = self.unbegun
        stage = unbegun.of.place[phase]
        begin, end = unbegun.task_first[stage : stage + 2].tolist()
        return begin + int(unbegun.number[begin:end].searchsorted(task))


def remaining(snapshot: Snapshot, estimates: Corrected) -> Remaining:
    """The remaining problem by these estimates.

    A machine is busy until the expected end of the attempt that runs there. A stage is ready at
    the expected end of all running attempts of the phases that it waits for. O(tasks left) in
    numpy, and O(phases + running attempts) in Python.
    """
    unbegun = snapshot.unbegun
    hosts = machines_of(snapshot.cluster)
    if snapshot.lost:
        hosts = [name for name in hosts if name not in snapshot.lost]
    if not unbegun.of.phases or not hosts:
        return Remaining(None, unbegun, hosts)
    busy, ends = _running(unbegun, estimates, snapshot.now)
    free = np.zeros(len(hosts))
    if busy:
        for machine, host in enumerate(hosts):
            if left := busy.get(host):
                free[machine] = left.pop()
    speed = np.array([estimates.speeds[host] for host in hosts])
    return Remaining(
        RelatedMachines(speed, _jobs(unbegun, ends, estimates), free), unbegun, hosts
    )


def _running(
    unbegun: Unbegun, estimates: Corrected, now: float
) -> tuple[Mapping[str, list[float]], Mapping[PhaseId, float]]:
    """The seconds from now to the expected ends of all running attempts.

    By host, and the last one of each phase.
    """
    busy: dict[str, list[float]] = {}
    ends: dict[PhaseId, float] = {}
    for phase in unbegun.left:
        if phase.running:
            last = 0.0
            for host, left in seconds_left(phase, estimates, now):
                busy.setdefault(host, []).append(left)
                last = max(last, left)
            ends[phase.id] = last
    return busy, ends


def seconds_left(
    phase: PhaseView, estimates: Corrected, now: float
) -> Iterator[tuple[str, float]]:
    """The host and the remaining seconds of each running attempt of a phase, > 0.

    An attempt that exceeds its estimate is assumed to need `RUNNING_FLOOR` of the estimate.
    """
    factor, speeds = estimates.factor(phase.id), estimates.speeds
    for started, launch in phase.attempts():
        work = max(phase.expected(launch.task) * factor, WORK_LEAST)
        seconds = work / speeds[launch.host]
        left = started + seconds - now
        yield launch.host, left if left > 0 else RUNNING_FLOOR * seconds


def _jobs(unbegun: Unbegun, ends: Mapping[PhaseId, float], estimates: Corrected) -> JobColumns:
    """The jobs with their tasks that have not begun."""
    of = unbegun.of
    factor = np.array([estimates.factor(phase.id) for phase in of.phases])
    count = np.diff(unbegun.task_first)
    work = np.maximum(unbegun.expected * np.repeat(factor, count), WORK_LEAST)
    ready = np.zeros(len(of.phases))
    for name, end in ends.items():
        for stage in of.behind.get(name, ()):
            ready[stage] = max(ready[stage], end)
    return JobColumns(
        np.minimum.reduceat(ready, of.first[:-1]),
        of.weight,
        of.first,
        ready,
        of.follows,
        of.before_first,
        of.before,
        unbegun.task_first,
        work,
        _largest_first(work, unbegun),
    )


def _largest_first(work: Floats, unbegun: Unbegun) -> Ints:
    """The tasks of each stage, the largest first; ties by number.

    The order by expected work is the same, except where rounding makes works equal.
    """
    largest = unbegun.largest
    sizes = work[largest]
    is_tie = (sizes[1:] == sizes[:-1]) & (largest[1:] < largest[:-1])
    if not is_tie.any():
        return largest
    count = np.diff(unbegun.task_first)
    return np.lexsort((-work, np.repeat(np.arange(len(count)), count)))
