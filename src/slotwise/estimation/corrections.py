"""Corrections of estimated work and stated speeds, from the tasks that have finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from slotwise.estimation.extrapolation import RUNNING_FLOOR, WORK_LEAST
from slotwise.estimation.rates import SETTLED
from slotwise.model.decision import Launch
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Seen, SeenByHost
from slotwise.model.views import PhaseView
from slotwise.objective.costs import Floats

TRUST = 1.0
"""The weight of a stated speed, as a number of tasks that ran on the host."""

SWEEPS_MOST = 20
"""The maximum number of alternating corrections of factors and speeds."""

TINY = 1e-300
"""Replaces a divisor of 0 tasks."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """Estimates corrected by the finished tasks of this run.

    factors  by phase, the ratio of the real to the expected work of a task
    of_jobs  the same by job, for phases not in `factors`; 1 for jobs in neither
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

    def works(self, phase: PhaseView, tasks: Sequence[int]) -> Floats:
        """The work of several tasks."""
        each = phase.phase.tasks.work
        if not isinstance(each, tuple):
            return np.full(len(tasks), self.work(phase, tasks[0]))
        factor = self.factors.get(phase.id)
        if factor is None:
            factor = self.of_jobs.get(phase.id.job, 1.0)
        works: Floats = np.maximum(np.array(each)[tasks] * factor, WORK_LEAST)
        return works

    def seconds_left(
        self, phase: PhaseView, launch: Launch, started: float, now: float
    ) -> float:
        """The remaining seconds of a running attempt, > 0. An attempt that exceeds its estimate
        is assumed to need `RUNNING_FLOOR` of the estimate."""
        seconds = self.work(phase, launch.task) / self.speeds[launch.host]
        left = started + seconds - now
        return left if left > 0 else RUNNING_FLOOR * seconds


def corrected(
    seen: Mapping[PhaseId, Mapping[str, Seen]], stated: Mapping[str, float]
) -> Corrected:
    """Corrections from finished tasks, for phases and for hosts of these stated speeds.

    The model: a task needs (expected work) x (factor of its phase) / (speed of its host). In
    logarithms this is a sum, whose terms are estimated by alternating means, weighted by the
    tasks that ran. The factor of a phase is free; the stated speed of a host weighs as much as
    `TRUST` tasks. So the first finished task of a phase corrects its estimate, however wrong,
    and also the later phases of its job until they have finished tasks: what made one estimate
    of a job wrong usually made all wrong. A host counts as slow only if it is slow with several
    phases, or slower than others with one. At most `SWEEPS_MOST` sweeps of O(phases x hosts).
    """
    if not seen or not stated:
        return Corrected({}, {}, stated)
    hosts = {host: column for column, host in enumerate(stated)}
    tasks = np.zeros((len(seen), len(hosts)))
    costs = np.zeros_like(tasks)
    for row, by_host in enumerate(seen.values()):
        known = by_host.known if isinstance(by_host, SeenByHost) else None
        if known is None or known[0] is not stated:
            known = stated, *_row(by_host, stated, hosts)
            if isinstance(by_host, SeenByHost):
                by_host.known = known
        _, tasks[row], costs[row] = known
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


def _row(
    by_host: Mapping[str, Seen], stated: Mapping[str, float], hosts: Mapping[str, int]
) -> tuple[Floats, Floats]:
    """The tasks of a phase that finished on each host, and the logarithms of their costs."""
    tasks, costs = np.zeros(len(hosts)), np.zeros(len(hosts))
    for host, one in by_host.items():
        if one.seconds > 0 and one.expected > 0:
            tasks[hosts[host]] = one.tasks
            costs[hosts[host]] = log(one.seconds * stated[host] / one.expected)
    return tasks, costs
