"""The tasks that have not begun at an instant, as the numeric problem of DMRS."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slotwise.assignment.dmrs.jobs import machines_of
from slotwise.assignment.dmrs.problem import NumericJob, RelatedMachines, Stage
from slotwise.estimation.corrections import Corrected
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Snapshot
from slotwise.model.views import PhaseView


@dataclass(frozen=True, slots=True)
class Remaining:
    """The tasks that have not begun, on the responsive hosts; time counts from now.

    problem  None if there are no such tasks, or no such hosts
    jobs     the name of each job of the problem
    tasks    for each stage of each job, its phase and the numbers of its tasks
    hosts    the host of each machine
    """

    problem: RelatedMachines | None
    jobs: Sequence[str]
    tasks: Sequence[Sequence[tuple[PhaseId, Sequence[int]]]]
    hosts: Sequence[str]

    def number(self, phase: PhaseId, task: int) -> tuple[int, int, int]:
        """The job and the stage of a task in the problem, and its index there."""
        job = self.jobs.index(phase.job)
        for stage, (name, tasks) in enumerate(self.tasks[job]):
            if name == phase:
                return job, stage, bisect_left(tasks, task)
        raise AssertionError("the task has not begun")


def remaining(
    snapshot: Snapshot, estimates: Corrected, among: Collection[str] | None = None
) -> Remaining:
    """The remaining problem by these estimates; only of the jobs `among`, if given.

    A machine is busy until the expected end of the attempt that runs there. A stage is ready at
    the expected end of all running attempts of the phases that it waits for. O(tasks left).
    """
    busy: dict[str, list[float]] = {}
    names, jobs, tasks = [], [], []
    for phases in snapshot.jobs_left():
        ends = _running(phases, estimates, snapshot.now, busy)
        name = phases[0].job.id
        if among is None or name in among:
            job, numbers = _left(phases, ends, estimates)
            if job.stages:
                names.append(name)
                jobs.append(job)
                tasks.append(numbers)
    hosts = [name for name in machines_of(snapshot.cluster) if name not in snapshot.lost]
    if not jobs or not hosts:
        return Remaining(None, names, tasks, hosts)
    speed = np.array([estimates.speeds[host] for host in hosts])
    free = np.array([busy[host].pop() if busy.get(host) else 0.0 for host in hosts])
    return Remaining(RelatedMachines(speed, jobs, free), names, tasks, hosts)


def _running(
    phases: Sequence[PhaseView],
    estimates: Corrected,
    now: float,
    busy: dict[str, list[float]],
) -> Mapping[str, float]:
    """The seconds from now to the expected end of the last running attempt of each phase.

    Adds those of all attempts to `busy`, by host.
    """
    ends: dict[str, float] = {}
    for phase in phases:
        if phase.running:
            last = 0.0
            for host, left in estimates.seconds_left(phase, now):
                busy.setdefault(host, []).append(left)
                last = max(last, left)
            ends[phase.id.phase] = last
    return ends


def _left(
    phases: Sequence[PhaseView], ends: Mapping[str, float], estimates: Corrected
) -> tuple[NumericJob, list[tuple[PhaseId, Sequence[int]]]]:
    """The stages of a job with tasks that have not begun, and these tasks."""
    stages: list[Stage] = []
    tasks = []
    place: dict[str, int] = {}
    for phase in phases:
        if not phase.pending:
            continue
        pending = phase.pending_tasks()
        waits_for = phase.phase.waits_for
        before = tuple(sorted(place[name] for name in waits_for if name in place))
        ready = max((ends[name] for name in waits_for if name in ends), default=0.0)
        work = estimates.works(phase, pending)
        place[phase.id.phase] = len(stages)
        stages.append(Stage(work, before, ready, follows=len(before) < len(waits_for)))
        tasks.append((phase.id, pending))
    release = min((stage.ready for stage in stages), default=0.0)
    return NumericJob(tuple(stages), release, phases[0].job.weight), tasks
