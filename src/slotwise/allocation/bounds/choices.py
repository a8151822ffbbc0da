"""The possible completions of each job, their costs, and their needs in windows of time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slotwise.allocation.bounds.cheapest import Points
from slotwise.allocation.bounds.interior import Mixture, best_prices
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.objective.costs import Floats

STEPS = 24
"""Steps of the search for prices."""

GAP = 1e-9
"""Relative; the search for prices stops this close to the optimum."""

ROUNDING = 1e-13
"""The rounding error of sums, relative to their terms."""


def with_ends(jobs: BoundJobs, turns: Floats, inner: Floats) -> Floats:
    """The soonest and latest completion of each job, and the `inner` instants between them.

    turns  J x K: from this completion on, the need of a window does not fall; after all turns
           nothing changes
    """
    soonest, latest = jobs.soonest[:, None], jobs.latest[:, None]
    latest = np.minimum(latest, np.maximum(turns.max(axis=1, keepdims=True), soonest))
    return np.concatenate([soonest, np.clip(inner, soonest, latest), latest], axis=1)


@dataclass(frozen=True, slots=True)
class Choices:
    """N completions of each of J jobs, with costs and needs in K windows.

    Between two adjacent completions, the cost and the needs of a job are concave. If that takes
    too many completions, `points` contains all of them, and these are some.

    completion  J x N, seconds, in any order
    cost        J x N
    above       J x N, the cost a moment later: higher where it jumps
    needs       J x N x K, seconds of the whole capacity in each window
    room        K, seconds
    scale       the largest range of the cost of a job
    """

    completion: Floats
    cost: Floats
    above: Floats
    needs: Floats
    room: Floats
    scale: float
    points: Points | None = None

    def settled(self) -> Mixture:
        """Nearly optimal prices of a second of all slots in each window, >= 0."""
        return best_prices(self.cost, self.needs, self.room, self.scale, STEPS, GAP)

    def bound(self, prices: Floats) -> float:
        """The lower bound that these prices prove."""
        if self.points is None:
            cheapest = (self.cost + self.needs @ prices).min(axis=1)
        else:
            cheapest = self.points.cheapest(prices)
        paid = float(self.room @ prices)
        large = float(self.needs.max(axis=1).sum(axis=0) @ prices)
        large += float(np.abs(cheapest).sum()) + paid
        return float(cheapest.sum()) - paid - ROUNDING * large

    def short(self, prices: Floats) -> float:
        """The increase of the bound at these prices if the choices were the only points."""
        if self.points is None:
            return 0.0
        cheapest = (self.cost + self.needs @ prices).min(axis=1)
        return float((cheapest - self.points.cheapest(prices)).sum())

    def widened(self, prices: Floats) -> Choices:
        """The choices, extended by the cheapest of the points of each job."""
        assert self.points is not None
        completion, cost, above = self.points.best(prices)
        return replace(
            self,
            completion=np.concatenate([self.completion, completion], axis=1),
            cost=np.concatenate([self.cost, cost], axis=1),
            above=np.concatenate([self.above, above], axis=1),
            needs=np.concatenate([self.needs, self.points.needed(completion)], axis=1),
        )

    def until(self, job: int, instant: float) -> Choices:
        """The choices without those completions of a job that are later than `instant`."""
        points = self.points and self.points.until(job, instant)
        return self._only(job, self.completion[job] <= instant, self.cost, points)

    def after(self, job: int, instant: float) -> Choices:
        """The choices with only those completions of a job that are later than `instant`."""
        cost = self.cost.copy()
        cost[job] = np.where(self.completion[job] == instant, self.above[job], cost[job])
        points = self.points and self.points.after(job, instant)
        return self._only(job, self.completion[job] >= instant, cost, points)

    def _only(
        self, job: int, allowed: NDArray[np.bool_], cost: Floats, points: Points | None
    ) -> Choices:
        # Other completions are replaced by an allowed one, so that the arrays keep their shape.
        chosen = np.where(allowed, np.arange(len(allowed)), np.argmax(allowed))
        arrays = [array.copy() for array in (self.completion, cost, self.above, self.needs)]
        for array in arrays:
            array[job] = array[job][chosen]
        completion, cost, above, needs = arrays
        return replace(
            self, completion=completion, cost=cost, above=above, needs=needs, points=points
        )
