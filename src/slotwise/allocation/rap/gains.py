"""Gains: the value of each further unit, by job. The fast solvers select among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slotwise.allocation.rap.problem import ResourceProblem
from slotwise.objective.costs import Floats, Ints


@dataclass(frozen=True, slots=True)
class Gains:
    """J non-increasing lists of gains, of which the `units` largest > 0 are selected.

    units  the number of units to give
    room   the length of the list of each job
    gain   gain(jobs, given): the gain of one more unit for jobs that were given `given` units
    """

    units: int
    room: Ints
    gain: Callable[[Ints, Ints], Floats]

    def __len__(self) -> int:
        return len(self.room)

    def at(self, jobs: Ints, given: Ints) -> Floats:
        """The gain of one more unit; -inf if there is no room or nothing to gain."""
        room = self.room[jobs]
        gains = self.gain(jobs, np.minimum(given, np.maximum(room - 1, 0)))
        return np.where((given < room) & (gains > 0), gains, -np.inf)


def minisum_gains(problem: ResourceProblem) -> Gains:
    """The amounts by which a unit lowers the cost of its job; inf where the cost was inf.

    For convex costs these gains do not increase, and the largest ones minimise the sum.
    """

    def gain(jobs: Ints, given: Ints) -> Floats:
        units = problem.min_share[jobs] + given
        one_more = np.minimum(units + 1, problem.max_share[jobs])
        before, after = problem.cost(jobs, units), problem.cost(jobs, one_more)
        endless = before == np.inf
        gains: Floats = np.where(endless, np.inf, np.where(endless, 0.0, before) - after)
        return gains

    return Gains(problem.slack, problem.room, gain)


def minimax_gains(problem: ResourceProblem) -> Gains:
    """The minimax transformation: the gain of a unit is the job's cost without it (FLEX 3.2).

    These gains never increase, for any costs, and selecting the largest ones minimises the
    maximum cost. They are relative to the lowest possible maximum, where every job has as many
    units as it can get: a job below that level needs no more units.
    """
    jobs = np.arange(len(problem))
    floor = float(problem.cost(jobs, problem.min_share + problem.room).max(initial=-np.inf))

    def gain(jobs: Ints, given: Ints) -> Floats:
        if floor == np.inf:
            return np.zeros(len(jobs))
        return problem.cost(jobs, problem.min_share[jobs] + given) - floor

    return Gains(problem.slack, problem.room, gain)
