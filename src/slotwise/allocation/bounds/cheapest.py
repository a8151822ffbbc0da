"""The cheapest completion of each job at given prices, among all completions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slotwise.allocation.bounds.parts import Ints
from slotwise.allocation.bounds.shapes import Shapes
from slotwise.allocation.bounds.window_demand import Falls
from slotwise.objective.costs import Floats

ROUNDING = 1e-15
"""The rounding error of each term of a running sum, relative to the largest term."""


@dataclass(frozen=True, slots=True)
class Points:
    """Completions that include a cheapest one of each job, at any prices.

    completion  J x M, in order, from the soonest to the latest
    cost        J x M; inf where the job must not complete then
    above       J x M, the cost a moment later: higher where it jumps
    turn        J x M, the change of the slope of one window's need from there on, per second
    window      J x M, that window
    needs       J x K, of each window at the first completion
    falls       the needs at all completions, in the unit of `needs`
    """

    completion: Floats
    cost: Floats
    above: Floats
    turn: Floats
    window: Ints
    needs: Floats
    falls: Falls

    @classmethod
    def of(cls, falls: Falls, shapes: Shapes, options: Floats, count: int) -> Points:
        """The points where falls begin and end, and `options`: both ends and kinks of costs.

        Between two of these, costs and needs are linear in the completion. Needs are in the
        unit of the falls, of `count` windows. O(M log M) for each job.
        """
        rows = np.arange(len(options))
        soonest, latest = options.min(axis=1), options.max(axis=1)
        job = np.concatenate([falls.job, falls.job, np.repeat(rows, options.shape[1])])
        nothing = np.zeros(options.size)
        turn = np.concatenate([-falls.rate, falls.rate, nothing])
        window = np.concatenate([falls.window, falls.window, nothing.astype(np.int64)])
        at = np.concatenate([falls.since, falls.until, options.ravel()])
        at = np.clip(at, soonest[job], latest[job])
        order = np.lexsort((at, job))
        many = np.bincount(job, minlength=len(rows))
        place = np.arange(len(job)) - np.repeat(np.cumsum(many) - many, many)
        shape = (len(rows), int(many.max()))
        completion = np.repeat(latest[:, None], shape[1], axis=1)
        turns, windows = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        row = job[order]
        completion[row, place], turns[row, place] = at[order], turn[order]
        windows[row, place] = window[order]
        needs = falls.at(soonest[:, None], count)[:, 0]
        cost, above = shapes.at(completion), shapes.at(np.nextafter(completion, np.inf))
        return cls(completion, cost, above, turns, windows, needs, falls)

    def cheapest(self, prices: Floats) -> Floats:
        """A lower bound on the minimum of cost plus priced needs, for each job. O(J M)."""
        total, lost = self._totals(prices)
        lowest: Floats = total.min(axis=1) - lost
        return lowest

    def best(self, prices: Floats) -> tuple[Floats, Floats, Floats]:
        """J x 1 each: a completion that is nearly the cheapest, its cost and `above`."""
        place = self._totals(prices)[0].argmin(axis=1)[:, None]
        completion, cost, above = (
            np.take_along_axis(array, place, axis=1)
            for array in (self.completion, self.cost, self.above)
        )
        return completion, cost, above

    def needed(self, completion: Floats) -> Floats:
        """J x N x K: the needs of the windows, for N completions of each job."""
        return self.falls.at(completion, self.needs.shape[1])

    def _totals(self, prices: Floats) -> tuple[Floats, Floats]:
        slope = np.cumsum(self.turn * prices[self.window], axis=1)
        fallen = np.cumsum(slope[:, :-1] * np.diff(self.completion, axis=1), axis=1)
        paid = self.needs @ prices
        total = self.cost + paid[:, None]
        total[:, 1:] += fallen
        return total, ROUNDING * total.shape[1] * paid

    def until(self, job: int, instant: float) -> Points:
        """The points without those completions of a job that are later than `instant`."""
        costs = self.cost.copy()
        costs[job, self.completion[job] > instant] = np.inf
        return replace(self, cost=costs)

    def after(self, job: int, instant: float) -> Points:
        """The points with only those completions of a job that are later than `instant`."""
        costs = self.cost.copy()
        ends = self.completion[job]
        costs[job] = np.where(
            ends == instant, np.maximum(costs[job], self.above[job]), costs[job]
        )
        costs[job, ends < instant] = np.inf
        return replace(self, cost=costs)
