"""The tasks that have not begun, read phase by phase from a snapshot at each decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from slotwise.core.estimation import RUNNING_FLOOR
from slotwise.core.phase_state import PhaseState
from slotwise.core.snapshot import Snapshot
from slotwise.policy.dmrs.corrections import Corrected
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage

Names = list[tuple[str, str, int]]
"""The job, the phase and the number of each task."""


def remaining_as_read(
    snapshot: Snapshot, estimates: Corrected
) -> tuple[RelatedMachines | None, Names]:
    """The remaining problem by these estimates, and its tasks in order."""
    busy: dict[str, list[float]] = {}
    jobs: list[NumericJob] = []
    names: Names = []
    for phases in snapshot.jobs_left():
        ends = _ends(phases, estimates, snapshot.now, busy)
        stages = _stages(phases, ends, estimates, names)
        if stages:
            release = min(stage.ready for stage in stages)
            jobs.append(NumericJob(stages, release, phases[0].job.weight))
    hosts = [
        host.name
        for host in snapshot.cluster.hosts
        for _ in range(sum(host.slots.values()))
        if host.name not in snapshot.lost
    ]
    if not jobs or not hosts:
        return None, names
    speed = np.array([estimates.speeds[host] for host in hosts])
    free = np.array([busy[host].pop() if busy.get(host) else 0.0 for host in hosts])
    return RelatedMachines(speed, jobs, free), names


def _ends(
    phases: Sequence[PhaseState],
    estimates: Corrected,
    now: float,
    busy: dict[str, list[float]],
) -> Mapping[str, float]:
    """The seconds to the last end of running attempts by phase; adds all of them by host."""
    ends: dict[str, float] = {}
    for phase in phases:
        if phase.running:
            ends[phase.id.phase] = 0.0
            for started, launch in phase.attempts():
                seconds = estimates.work(phase, launch.task) / estimates.speeds[launch.host]
                left = started + seconds - now
                left = left if left > 0 else RUNNING_FLOOR * seconds
                busy.setdefault(launch.host, []).append(left)
                ends[phase.id.phase] = max(ends[phase.id.phase], left)
    return ends


def _stages(
    phases: Sequence[PhaseState],
    ends: Mapping[str, float],
    estimates: Corrected,
    names: Names,
) -> tuple[Stage, ...]:
    """The stages of a job with tasks that have not begun; the names of these tasks."""
    stages: list[Stage] = []
    place: dict[str, int] = {}
    for phase in phases:
        if phase.pending:
            pending, waits_for = phase.pending_tasks(), phase.phase.waits_for
            before = tuple(sorted(place[name] for name in waits_for if name in place))
            ready = max((ends[name] for name in waits_for if name in ends), default=0.0)
            work = np.array([estimates.work(phase, task) for task in pending])
            place[phase.id.phase] = len(stages)
            stages.append(Stage(work, before, ready, follows=len(before) < len(waits_for)))
            names += [(*phase.id, task) for task in pending]
    return tuple(stages)
