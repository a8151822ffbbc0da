"""The possible completions of each job, their costs, and their needs in windows of time.

Why these completions include the cheapest one: docs/algorithms/bounds.md, sections 4 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slotwise.allocation.bounds.interior import Mixture, best_prices
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import Room
from slotwise.allocation.bounds.windows import Falls, Windows, first_windows
from slotwise.allocation.tolerances import RUNNING_SUM, SUM
from slotwise.objective.costs import CostShapes, Floats, Ints

STEPS = 24
"""Steps of the search for prices."""

GAP = 1e-9
"""Relative; the search for prices stops this close to the optimum."""


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

    @classmethod
    def of(
        cls,
        shapes: CostShapes,
        completion: Floats,
        needs: Floats,
        room: Floats,
        points: Points | None = None,
    ) -> Choices:
        """The choices of jobs whose costs have these shapes."""
        cost, above = shapes.at(completion), shapes.at(np.nextafter(completion, np.inf))
        scale = float(np.ptp(cost, axis=1).max()) or 1.0
        return cls(completion, cost, above, needs, room, scale, points)

    def mixture(self) -> Mixture:
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
        return float(cheapest.sum()) - paid - SUM * large

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
    def of(cls, falls: Falls, shapes: CostShapes, options: Floats, count: int) -> Points:
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
        return total, RUNNING_SUM * total.shape[1] * paid

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


def choices_of(jobs: BoundJobs, capacity: float) -> Choices | None:
    """For jobs of one part: all completions that can be cheapest; None if there are too many.

    These are both ends, the turns of the windows' needs, and the kinks of the costs. Between
    two of them, cost and needs are concave in the completion.
    """
    windows = first_windows(jobs, capacity)
    if windows is None:
        return None
    turns = windows.turns(jobs)
    shapes = jobs.costs.below(jobs.soonest, turns.max(axis=1))
    completion = _with_ends(jobs, turns, np.concatenate([turns, shapes.kinks], axis=1))
    return Choices.of(
        shapes, completion, windows.needed(jobs, completion) / capacity, windows.lengths
    )


def choices_of_parts(jobs: BoundJobs, capacity: float, windows: Windows) -> Choices:
    """For jobs of several parts: some completions, and all points that can be cheapest.

    A job with a staircase cost completes at the end of a step, where its needs are least.
    """
    count = len(windows)
    falls = Falls.of(jobs, windows, capacity).per(capacity)
    turns = np.repeat(jobs.soonest[:, None], count, axis=1)
    np.maximum.at(turns, (falls.job, falls.window), falls.until)
    shapes = jobs.costs.below(jobs.soonest, turns.max(axis=1))
    inner = [shapes.kinks] if shapes.are_stairs else [shapes.kinks, turns]
    completion = _with_ends(jobs, turns, np.concatenate(inner, axis=1))
    first = jobs.arrival.min()
    available = Room.of(jobs, capacity).after(windows.end - first)
    space = np.where(windows.start == first, available, capacity * windows.lengths)
    points = None if shapes.are_stairs else Points.of(falls, shapes, completion, count)
    return Choices.of(shapes, completion, falls.at(completion, count), space / capacity, points)


def _with_ends(jobs: BoundJobs, turns: Floats, inner: Floats) -> Floats:
    """The soonest and latest completion of each job, and the `inner` instants between them.

    turns  J x K: from this completion on, the need of a window does not fall; after all turns
           nothing changes
    """
    soonest, latest = jobs.soonest[:, None], jobs.latest[:, None]
    latest = np.minimum(latest, np.maximum(turns.max(axis=1, keepdims=True), soonest))
    return np.concatenate([soonest, np.clip(inner, soonest, latest), latest], axis=1)
