"""How wrong estimates of work and stated speeds were, from the tasks that have finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

import numpy as np

from slotwise.estimation.extrapolation import RUNNING_FLOOR, WORK_LEAST
from slotwise.model.decision import Launch
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import PhaseView, Seen

TRUST = 1.0
"""A stated speed weighs as much as so many tasks that ran on the host."""

SWEEPS_MOST = 20
"""How often factors and speeds are set right in turn, at most."""

SETTLED = 1e-9
"""A change of all logarithms below this is none."""

TINY = 1e-300
"""In place of no tasks at all, to divide by."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """Estimates as the finished tasks of this run have set them right.

    factors  by phase, how much more work a task was than expected
    of_jobs  the same by job, for phases not named; 1 for jobs that are not named either
    speeds   by host
    """

    factors: Mapping[PhaseId, float]
    of_jobs: Mapping[str, float]
    speeds: Mapping[str, float]

    def work(self, phase: PhaseView, task: int) -> float:
        """The work of a task, seconds at speed 1, above 0."""
        factor = self.factors.get(phase.id)
        if factor is None:
            factor = self.of_jobs.get(phase.id.job, 1.0)
        return max(phase.expected(task) * factor, WORK_LEAST)

    def seconds_left(
        self, phase: PhaseView, launch: Launch, started: float, now: float
    ) -> float:
        """How long a running attempt will still need; one that has outlived its estimate is
        taken to need a part of it still."""
        seconds = self.work(phase, launch.task) / self.speeds[launch.host]
        left = started + seconds - now
        return left if left > 0 else RUNNING_FLOOR * seconds


def corrected(
    seen: Mapping[PhaseId, Mapping[str, Seen]], stated: Mapping[str, float]
) -> Corrected:
    """What finished tasks tell of phases and of hosts, which were said to have these speeds.

    A task is taken to need its expected work x factor of its phase / speed of its host. In
    logarithms that is a sum, which means in turn take apart, each phase and host weighed by the
    tasks that ran: the factor of a phase is free, while a speed is held by what was stated as
    if `TRUST` tasks had shown it. So the first task of a phase sets its estimate right, however
    wrong that was, and the phases behind it until they have tasks of their own to show: what
    made one estimate of a job wrong mostly made all wrong. A host must be slow with several
    phases, or slower than others with one, to count as slow. O(phases x hosts) a sweep.
    """
    if not seen:
        return Corrected({}, {}, stated)
    hosts = {host: column for column, host in enumerate(stated)}
    tasks = np.zeros((len(seen), len(hosts)))
    costs = np.zeros_like(tasks)
    for row, by_host in enumerate(seen.values()):
        for host, one in by_host.items():
            if one.seconds > 0 and one.expected > 0:
                tasks[row, hosts[host]] = one.tasks
                costs[row, hosts[host]] = log(one.seconds * stated[host] / one.expected)
    of_phase, of_host = np.maximum(tasks.sum(axis=1), TINY), tasks.sum(axis=0) + TRUST
    slowness = np.zeros(len(hosts))
    for _ in range(SWEEPS_MOST):
        factors = (tasks * (costs - slowness)).sum(axis=1) / of_phase
        before = slowness
        slowness = (tasks * (costs - factors[:, None])).sum(axis=0) / of_host
        if np.abs(slowness - before).max() < SETTLED:
            break
    sums: dict[str, tuple[float, float]] = {}
    for phase, factor, count in zip(seen, factors.tolist(), of_phase.tolist(), strict=True):
        total, before_it = sums.get(phase.job, (0.0, 0.0))
        sums[phase.job] = total + count * factor, before_it + count
    return Corrected(
        dict(zip(seen, np.exp(factors).tolist(), strict=True)),
        {job: exp(total / count) for job, (total, count) in sums.items()},
        {
            host: speed * by
            for (host, speed), by in zip(
                stated.items(), np.exp(-slowness).tolist(), strict=True
            )
        },
    )
