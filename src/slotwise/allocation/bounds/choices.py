"""When each job may complete, at what cost, and what that needs of windows of time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slotwise.allocation.bounds.cheapest import Points
from slotwise.allocation.bounds.interior import Mixture, best_prices
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.objective.costs import Floats

STEPS = 24
"""Of the search for prices."""

GAP = 1e-9
"""Relative; closer to the best prices it need not come."""

ROUNDING = 1e-13
"""What the sums lose, of the numbers that they are made of."""


def with_ends(jobs: BoundJobs, turns: Floats, inner: Floats) -> Floats:
    """The ends of the completions of each job, and these instants as far as between them.

    turns  J x K: from this completion on a window needs no less; behind all nothing changes
    """
    soonest, latest = jobs.soonest[:, None], jobs.latest[:, None]
    latest = np.minimum(latest, np.maximum(turns.max(axis=1, keepdims=True), soonest))
    return np.concatenate([soonest, np.clip(inner, soonest, latest), latest], axis=1)


@dataclass(frozen=True, slots=True)
class Choices:
    """Between two completions next to each other, costs and needs of a job are concave.

    Where that would take too many of them, `points` are all, and these are some.

    completion  J x N, seconds, in any order
    cost        J x N
    above       J x N, the cost a moment later: more where it jumps
    needs       J x N x K seconds of the whole capacity, in each window
    room        K seconds
    scale       the most that a job of all these can cost more than its least
    """

    completion: Floats
    cost: Floats
    above: Floats
    needs: Floats
    room: Floats
    scale: float
    points: Points | None = None

    def settled(self) -> Mixture:
        """Nearly the best price of a second of all slots in each window, >= 0."""
        return best_prices(self.cost, self.needs, self.room, self.scale, STEPS, GAP)

    def bound(self, prices: Floats) -> float:
        """What is proven with these prices."""
        if self.points is None:
            cheapest = (self.cost + self.needs @ prices).min(axis=1)
        else:
            cheapest = self.points.cheapest(prices)
        paid = float(self.room @ prices)
        large = float(self.needs.max(axis=1).sum(axis=0) @ prices)
        large += float(np.abs(cheapest).sum()) + paid
        return float(cheapest.sum()) - paid - ROUNDING * large

    def short(self, prices: Floats) -> float:
        """How much more these prices would prove if there were no points but the choices."""
        if self.points is None:
            return 0.0
        cheapest = (self.cost + self.needs @ prices).min(axis=1)
        return float((cheapest - self.points.cheapest(prices)).sum())

    def widened(self, prices: Floats) -> Choices:
        """With the cheapest of the points of each job among the choices."""
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
        """With the completions of a job not later than one of them."""
        points = self.points and self.points.until(job, instant)
        return self._only(job, self.completion[job] <= instant, self.cost, points)

    def after(self, job: int, instant: float) -> Choices:
        """With the completions of a job later than one of them, by however little."""
        cost = self.cost.copy()
        cost[job] = np.where(self.completion[job] == instant, self.above[job], cost[job])
        points = self.points and self.points.after(job, instant)
        return self._only(job, self.completion[job] >= instant, cost, points)

    def _only(
        self, job: int, allowed: NDArray[np.bool_], cost: Floats, points: Points | None
    ) -> Choices:
        # One that is allowed takes the place of each other one, so that the arrays keep shape.
        chosen = np.where(allowed, np.arange(len(allowed)), np.argmax(allowed))
        arrays = [array.copy() for array in (self.completion, cost, self.above, self.needs)]
        for array in arrays:
            array[job] = array[job][chosen]
        completion, cost, above, needs = arrays
        return replace(
            self, completion=completion, cost=cost, above=above, needs=needs, points=points
        )
