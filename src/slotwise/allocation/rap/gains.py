"""Gains: what each further unit is worth, job by job. The fast solvers select among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slotwise.allocation.rap.problem import Ints, ResourceProblem
from slotwise.objective.costs import Floats


@dataclass(frozen=True, slots=True)
class Gains:
    """J lists of gains that do not rise, of which the `units` largest > 0 are wanted.

    units  how many may be given
    room   how long the list of each job is
    gain   the gain of one unit more for these jobs, which have been given so many
    """

    units: int
    room: Ints
    gain: Callable[[Ints, Ints], Floats]

    def __len__(self) -> int:
        return len(self.room)

    def at(self, jobs: Ints, given: Ints) -> Floats:
        """The gain of one unit more; -inf where there is no room or nothing to gain."""
        room = self.room[jobs]
        gains = self.gain(jobs, np.minimum(given, np.maximum(room - 1, 0)))
        return np.where((given < room) & (gains > 0), gains, -np.inf)


def minisum_gains(problem: ResourceProblem) -> Gains:
    """By how much a unit lowers the cost of its job; a gain where the cost was inf is inf.

    If these do not rise, the costs being convex, their largest are the optimum of the sum.
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
    """The minimax transformation: a unit gains what its job costs without it (FLEX 3.2).

    These gains never rise, whatever the costs, and giving the largest of them makes the
    greatest cost least. They are counted from the level below which the maximum cannot fall,
    where every job has the most that it can get: a job below that needs no unit more.
    """
    jobs = np.arange(len(problem))
    floor = float(problem.cost(jobs, problem.min_share + problem.room).max(initial=-np.inf))

    def gain(jobs: Ints, given: Ints) -> Floats:
        if floor == np.inf:
            return np.zeros(len(jobs))
        return problem.cost(jobs, problem.min_share[jobs] + given) - floor

    return Gains(problem.slack, problem.room, gain)
