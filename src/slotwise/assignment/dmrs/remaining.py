"""The tasks that have not begun at an instant, as the numeric problem of DMRS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slotwise.assignment.dmrs.jobs import machines_of
from slotwise.assignment.dmrs.problem import JobColumns, RelatedMachines
from slotwise.estimation.corrections import Corrected
from slotwise.estimation.extrapolation import MIN_WORK, RUNNING_FLOOR
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Snapshot
from slotwise.model.unbegun import Unbegun
from slotwise.objective.costs import Floats, Ints


@dataclass(frozen=True, slots=True)
class Machines:
    """The slots of the responsive hosts, by current estimates; time counts from now.

    hosts  the host of each machine
    speed  of each machine
    free   when the attempt that runs there is expected to end
    ends   when the last running attempt of each phase is expected to end
    """

    hosts: Sequence[str]
    speed: Floats
    free: Floats
    ends: Mapping[PhaseId, float]


def machines(snapshot: Snapshot, estimates: Corrected) -> Machines:
    """The machines at an instant. O(phases + running attempts)."""
    hosts: Sequence[str] = machines_of(snapshot.cluster)
    if snapshot.lost:
        hosts = [name for name in hosts if name not in snapshot.lost]
    busy: dict[str, list[float]] = {host: [] for host in estimates.speeds}
    ends: dict[PhaseId, float] = {}
    now, speeds = snapshot.now, estimates.speeds
    for phase in snapshot.phases_left:
        if phase.running:
            factor, last, expected = estimates.factor(phase.id), 0.0, phase.expected
            for started, launch in phase.attempts():
                work, host = expected(launch.task) * factor, launch.host
                seconds = (work if work > MIN_WORK else MIN_WORK) / speeds[host]
                left = started + seconds - now
                if left <= 0:  # It is assumed to need this part of its estimate.
                    left = RUNNING_FLOOR * seconds
                busy[host].append(left)
                if left > last:
                    last = left
            ends[phase.id] = last
    free = [busy[host].pop() if busy[host] else 0.0 for host in hosts]
    return Machines(hosts, np.array([speeds[host] for host in hosts]), np.array(free), ends)


@dataclass(frozen=True, slots=True)
class Remaining:
    """The tasks that have not begun, as in `unbegun`; time counts from now.

    problem  None if there are no such tasks, or no machines
    """

    problem: RelatedMachines | None
    unbegun: Unbegun

    @property
    def jobs(self) -> Mapping[str, int]:
        """The number of each job in the problem, by its name."""
        return self.unbegun.of.jobs

    def place(self, phase: PhaseId, task: int) -> int:
        """The index of a task in the problem."""
        unbegun = self.unbegun
        stage = unbegun.of.place[phase]
        begin, end = unbegun.task_first[stage : stage + 2].tolist()
        place: int = begin + unbegun.number[begin:end].searchsorted(task)
        return place


def remaining(snapshot: Snapshot, estimates: Corrected, machines: Machines) -> Remaining:
    """The remaining problem by these estimates.

    A stage is ready at the expected end of all running attempts of the phases that it waits
    for. O(tasks left) in numpy, and O(phases) in Python.
    """
    unbegun = snapshot.unbegun
    if not unbegun.of.phases or not machines.hosts:
        return Remaining(None, unbegun)
    jobs = _jobs(unbegun, machines.ends, estimates)
    return Remaining(RelatedMachines(machines.speed, jobs, machines.free), unbegun)


def _jobs(unbegun: Unbegun, ends: Mapping[PhaseId, float], estimates: Corrected) -> JobColumns:
    """The jobs with their tasks that have not begun."""
    of = unbegun.of
    factor = np.array(estimates.factors_of(of.place))
    work = np.maximum(unbegun.expected * factor.repeat(unbegun.count), MIN_WORK)
    ready = np.zeros(len(of.phases))
    for name, end in ends.items():
        for stage in of.behind.get(name, ()):
            ready[stage] = max(ready[stage], end)
    return JobColumns(
        of.graphs,
        np.minimum.reduceat(ready, of.graphs.first[:-1]),
        of.weight,
        ready,
        of.follows,
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
    stage_of = np.arange(len(unbegun.count)).repeat(unbegun.count)
    return np.lexsort((-work, stage_of))
