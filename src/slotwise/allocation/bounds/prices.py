"""Prices of the work that must be done in windows of time: a bound for every sum of costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.allocation.bounds.interior import best_prices
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.shapes import Shapes, kinks_most
from slotwise.allocation.bounds.windows import WINDOWS_MOST, windows_of
from slotwise.objective.costs import Floats

NUMBERS_MOST = 500_000
"""Jobs times completions times windows: more are thinned out to so many."""

WINDOWS_LEAST = 4
"""With room for fewer windows it is not worth while."""

STEPS = 20
"""Of the search for prices."""

GAP = 1e-6
"""Relative; closer to the best prices it need not come."""

ROUNDING = 1e-13
"""What the sums lose, of the numbers that they are made of."""


def price_bound(jobs: BoundJobs, capacity: float) -> float:
    """Of the sum of any costs, with least shares and arrivals; -inf for too many jobs.

    In each of some windows of time the work that must be done there cannot be more than the
    capacity. With a price on that, each job has a cheapest completion, whatever the others
    do. At any prices >= 0 the sum over the jobs less the price of the capacity is a bound;
    an interior point method finds nearly the best ones.
    """
    choices = choices_of(jobs, capacity)
    return -np.inf if choices is None else choices.bound(choices.prices())


@dataclass(frozen=True, slots=True)
class Choices:
    """When jobs may complete, at what cost, and what that needs.

    completion  J x N, seconds
    cost        J x N
    needs       J x N x K seconds of the whole capacity, in each window
    room        K seconds
    """

    completion: Floats
    cost: Floats
    needs: Floats
    room: Floats

    def prices(self) -> Floats:
        """Nearly the best price of a second of all slots in each window, >= 0."""
        return best_prices(self.cost, self.needs, self.room, STEPS, GAP)

    def bound(self, prices: Floats) -> float:
        """What is proven with these prices."""
        cheapest = (self.cost + self.needs @ prices).min(axis=1)
        paid = float(self.room @ prices)
        large = float(
            np.abs(cheapest).sum() + paid + self.needs.max(axis=1).sum(axis=0) @ prices
        )
        return float(cheapest.sum()) - paid - ROUNDING * large


def choices_of(jobs: BoundJobs, capacity: float) -> Choices | None:
    """The completions at which a cheapest one can lie, and what they need; None if too many."""
    most = _windows_most(len(jobs), kinks_most(jobs.costs))
    if most < WINDOWS_LEAST or not jobs.work.sum() > 0:
        return None
    kinks = np.array([kink for cost in jobs.costs for kink in cost.kinks])
    windows = windows_of(jobs, capacity, kinks, most)
    turns = windows.turns(jobs)
    shapes = Shapes(jobs.costs, jobs.soonest, turns.max(axis=1))
    completion = _completions(jobs, turns, shapes.kinks)
    return Choices(
        completion,
        shapes.at(completion),
        windows.needed(jobs, completion) / capacity,
        windows.lengths,
    )


def _completions(jobs: BoundJobs, turns: Floats, kinks: Floats) -> Floats:
    """Both ends, where a window begins to need no less, and where a cost is not straight.

    Between two of these, cost and needs are concave in the completion time.
    """
    soonest, latest = jobs.soonest[:, None], jobs.latest[:, None]
    latest = np.minimum(latest, np.maximum(turns.max(axis=1, keepdims=True), soonest))
    inner = np.concatenate([turns, kinks], axis=1)
    return np.concatenate([soonest, np.clip(inner, soonest, latest), latest], axis=1)


def _windows_most(jobs: int, kinks: int) -> int:
    """K such that J (K + 3 + kinks) K numbers are not too many."""
    other = (3 + kinks) / 2
    return int(min(WINDOWS_MOST, np.sqrt(NUMBERS_MOST / jobs + other**2) - other))
