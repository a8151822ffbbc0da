"""A second witness for jobs that are DAGs: time in equal steps, one program for all orders.

It shares nothing with `dag_optimum` but the reading of costs. A binary for each phase and step
says whether the phase is done by the end of it; within a step any part of its work is done.
HiGHS, through scipy, solves the mixed program.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, PhaseId
from slotwise.core.objective import Objective
from slotwise.insight.bound import Work, sizes_of


def grid_value(
    jobs: Sequence[Job],
    cluster: Cluster,
    objective: Objective,
    step: float,
    steps: int,
    is_above: bool = True,
) -> float:
    """The optimum where all is rounded to a grid of `steps` steps; inf if it does not fit.

    Above: phases begin and are done at instants of the grid only, so that the optimum is at
    most this, and is this if all instants of some optimum are on the grid. Below: a phase may
    begin in the step in which another ends, and a job costs what it would at the beginning of
    its last step: the optimum is at least this, if some optimum ends within the grid. HiGHS
    is good for about 1e-6 here.
    """
    grid = _Grid(jobs, cluster, step, steps)
    grid.fill()
    grid.wait(0 if is_above else 1)
    grid.charge(objective, 1 if is_above else 0)
    return grid.solve()


class _Grid:
    """The program. Its variables, by their numbers:

    _part[i, t]  of the work of phase i, what is done in step t
    _done[i, t]  1 if all of it is done by the end of step t
    _over[j, t]  1 if all of job j is
    _largest     the maximum of all costs, if that is what counts
    """

    def __init__(self, jobs: Sequence[Job], cluster: Cluster, step: float, steps: int) -> None:
        self._jobs, self._cluster, self._step, self._steps = jobs, cluster, step, steps
        self._phases = [(job, phase) for job in jobs for phase in job.phases]
        self._place = {PhaseId(job.id, p.name): i for i, (job, p) in enumerate(self._phases)}
        self._work = [phase.tasks.work_total() or 0.0 for _, phase in self._phases]
        self._kind = [cluster.slot_kind(phase.kind) for _, phase in self._phases]
        shape = (2 * len(self._phases) + len(jobs), steps)
        number = np.arange(shape[0] * steps).reshape(shape)
        self._part, self._done, self._over = np.split(
            number, [len(self._phases), 2 * len(self._phases)]
        )
        self._largest = number.size
        self._low, self._high = np.zeros(number.size + 1), np.ones(number.size + 1)
        self._price, self._constant = np.zeros(number.size + 1), 0.0
        self._rows: list[tuple[dict[int, float], float]] = []

    def fill(self) -> None:
        """Max shares, the capacity, and all work done by the end of the grid."""
        for i, (_, phase) in enumerate(self._phases):
            slots = min(phase.slots_most, self._cluster.capacity[self._kind[i]])
            if self._work[i] > 0:
                self._high[self._part[i]] = min(1.0, slots * self._step / self._work[i])
            for t in range(self._steps):
                so_far = dict.fromkeys(self._part[i, : t + 1], -1.0)
                self._row({**so_far, self._done[i, t]: 1.0}, 0.0)
            self._low[self._done[i, -1]] = 1.0
        for kind, slots in self._cluster.capacity.items():
            drawing = [i for i, own in enumerate(self._kind) if own == kind]
            for t in range(self._steps):
                work = {self._part[i, t]: self._work[i] for i in drawing}
                self._row(work, slots * self._step)

    def wait(self, early: int) -> None:
        """No part of a phase is done before the others are, or that many steps early."""
        for i, (job, phase) in enumerate(self._phases):
            for name in phase.waits_for:
                before = self._done[self._place[PhaseId(job.id, name)]]
                for t in range(self._steps):
                    open_since = t - 1 + early
                    gate = {before[open_since]: -1.0} if open_since >= 0 else {}
                    if self._work[i] > 0:
                        self._row({self._part[i, t]: 1.0, **gate}, 0.0)
                    self._row({self._done[i, t]: 1.0, before[t]: -1.0}, 0.0)

    def charge(self, objective: Objective, after: int) -> None:
        """A job that ends in step t costs what it would at instant t, or t + 1 of the grid."""
        sizes = sizes_of(self._jobs, self._cluster, Work.estimated(self._jobs))
        is_max = objective.aggregate == "max"
        if is_max:
            self._low[self._largest], self._high[self._largest] = -inf, inf
            self._price[self._largest] = 1.0
        for j, job in enumerate(self._jobs):
            for i, (owner, _) in enumerate(self._phases):
                if owner is job:
                    for t in range(self._steps):
                        self._row({self._over[j, t]: 1.0, self._done[i, t]: -1.0}, 0.0)
            cost = objective.cost(job, sizes[job.id])
            costs = [cost.at((t + after) * self._step) for t in range(self._steps)]
            saved = -np.diff(costs)
            if is_max:
                self._row(
                    {**dict(zip(self._over[j, :-1], saved, strict=True)), self._largest: -1.0},
                    -costs[-1],
                )
            else:
                self._price[self._over[j, :-1]] = saved
                self._constant += costs[-1]

    def solve(self) -> float:
        """The value; inf if there is no schedule."""
        matrix = np.zeros((len(self._rows), len(self._low)))
        for number, (row, _) in enumerate(self._rows):
            matrix[number, list(row)] = list(row.values())
        whole = np.zeros(len(self._low))
        whole[self._done] = 1
        found = milp(
            self._price,
            integrality=whole,
            bounds=Bounds(self._low, self._high),
            constraints=LinearConstraint(matrix, -inf, [limit for _, limit in self._rows]),
            options={"mip_rel_gap": 0.0},
        )
        return inf if found.x is None else float(found.fun) + self._constant

    def _row(self, coefficients: dict[int, float], limit: float) -> None:
        """The sum of these is at most the limit."""
        self._rows.append((coefficients, limit))
