"""Corrections of estimated work and stated speeds, from the tasks that have finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp

import numpy as np

from slotwise.core.estimation import MIN_WORK
from slotwise.core.host_state import TaskTimings
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState

TRUST = 1.0
"""The weight of a stated speed, as a number of tasks that ran on the host."""


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

    def factor(self, phase: PhaseId) -> float:
        """The ratio of the real to the expected work of a task of this phase."""
        factor = self.factors.get(phase)
        return self.of_jobs.get(phase.job, 1.0) if factor is None else factor

    def factors_of(self, phases: Iterable[PhaseId]) -> list[float]:
        """`factor` of each of these phases."""
        factors, of_jobs = self.factors, self.of_jobs
        return [
            of_jobs.get(name.job, 1.0) if (factor := factors.get(name)) is None else factor
            for name in phases
        ]

    def work(self, phase: PhaseState, task: int) -> float:
        """The work of a task, seconds at speed 1, above 0."""
        return max(phase.work.expected(task) * self.factor(phase.id), MIN_WORK)


def corrected(seen: TaskTimings, stated: Mapping[str, float]) -> Corrected:
    """Corrections from finished tasks, for phases and for hosts of these stated speeds.

    The model: a task needs (expected work) x (factor of its phase) / (speed of its host). In
    logarithms this is a sum, whose terms are those of the least squares, weighted by the tasks
    that ran. The factor of a phase is free; the stated speed of a host weighs as much as
    `TRUST` tasks. So the first finished task of a phase corrects its estimate, however wrong,
    and also the later phases of its job until they have finished tasks: what made one estimate
    of a job wrong usually made all wrong. A host counts as slow only if it is slow with several
    phases, or slower than others with one. O(phases^2 x hosts).
    """
    if not seen.phases or not stated:
        return Corrected({}, {}, stated)
    tasks = seen.tasks
    speeds = np.array([stated.get(host, 1.0) for host in seen.hosts])
    costs = tasks * (seen.ratios + np.log(speeds))
    add = np.add.reduce
    of_phase, of_host = add(tasks, 1), add(tasks, 0) + TRUST
    # The factors f and the slownesses s keep, for the sums over all tasks of a phase or host,
    #     of_phase f + tasks s = tasks costs    and    of_host s + tasks' f = tasks' costs.
    by_host, costs_of_host = tasks / of_host, add(costs, 0)
    matrix = np.subtract(0.0, by_host @ tasks.T)
    matrix.flat[:: len(tasks) + 1] += np.where(of_phase > 0, of_phase, 1.0)
    factors = np.linalg.solve(matrix, add(costs, 1) - by_host @ costs_of_host)
    slowness = (costs_of_host - factors @ tasks) / of_host
    sums: dict[str, tuple[float, float]] = {}
    for phase, factor, count in zip(
        seen.phases, factors.tolist(), of_phase.tolist(), strict=True
    ):
        total, before_it = sums.get(phase.job, (0.0, 0.0))
        sums[phase.job] = total + count * factor, before_it + count
    measured = zip(seen.hosts, (speeds / np.exp(slowness)).tolist(), strict=True)
    return Corrected(
        dict(zip(seen.phases, np.exp(factors).tolist(), strict=True)),
        {job: exp(total / count) for job, (total, count) in sums.items() if count},
        {**stated, **dict(measured)},
    )
