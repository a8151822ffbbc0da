"""The price bound: prices of the work that must be done in windows, for any sum of costs.

With few jobs, cases improve it: a job is complete by an instant, or it is not. Proofs:
docs/algorithms/bounds.md, sections 4, 5 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count

import numpy as np
from numpy.typing import NDArray

from slotwise.core.costs import CostShapes, Floats, Ints
from slotwise.core.tolerances import CLOSE, RUNNING_SUM, SUM
from slotwise.policy.bounds.interior import Mixture, best_prices
from slotwise.policy.bounds.jobs import BoundJobs, Room
from slotwise.policy.bounds.windows import Falls, Windows, first_windows, refined

MAX_TRIALS = 17
"""The maximum number of price searches, one per case."""

TRIALS_OF_STEPS, TRIALS_OF_LINES, TRIALS_OF_OTHERS = 65, 9, 33
"""The same for jobs of several parts: cases help steps most."""

MAX_TRIED, TRIED_MOST_OF_PARTS = 300_000, 600_000
"""The limit of numbers in all trials together, except for the first."""

MAX_REFINED = 200_000
"""Windows are added only while the needs have at most this many numbers."""

SPLIT_FROM = 1e-7
"""Relative; cases are split while the bound is below the known value by more than this."""

SHORT = 1e-3
"""Part of the bound, or of the range of a job's cost; a smaller loss is accepted."""


def price_bound(jobs: BoundJobs, capacity: float, value: float = np.inf) -> float:
    """A lower bound on the sum of any costs, with arrivals; -inf for too many jobs.

    It includes min shares.

    In each window of time the work that must be done there cannot exceed the capacity. With a
    price on that work, each job has a cheapest completion, independent of the others. At any
    prices >= 0, the sum over the jobs less the price of the capacity is a lower bound
    (Lagrangian relaxation). An interior point method finds nearly optimal prices. With few
    jobs, cases are distinguished: a job is complete by an instant or it is not. Stops close to
    `value`.
    """
    if not jobs.parts.are_whole:
        return price_bound_of_parts(jobs, capacity, value)
    choices = choices_of(jobs, capacity)
    if choices is None:
        return -np.inf
    trials = min(MAX_TRIALS, MAX_TRIED // choices.needs.size)
    return bound_by_cases(choices, trials, value)


def price_bound_of_parts(jobs: BoundJobs, capacity: float, value: float = np.inf) -> float:
    """A lower bound on the sum of any costs; -inf for too many jobs.

    The method is that of `price_bound`. But needs have a bend for each part, too many for each
    to be a choice: prices are computed with some choices, and their bound with all points.
    Windows are added where the mixtures at the first prices exceed what can be done. Stops when
    the bound reaches `value`.
    """
    jobs = jobs.since(float(jobs.arrival.min()))  # Late instants have fewer digits.
    windows = first_windows(jobs, capacity)
    if windows is None:
        return -np.inf
    bound = -np.inf
    choices = choices_of_parts(jobs, capacity, windows)
    for _ in range(_rounds(jobs, choices)):
        if choices.needs.size > MAX_REFINED:
            break
        reached, choices, mixture = _settled(choices)
        bound = max(bound, reached)
        if bound >= value:
            return bound
        windows = refined(jobs, capacity, windows, choices.completion, mixture.parts)
        choices = choices_of_parts(jobs, capacity, windows)
    trials = min(_trials(jobs, choices), TRIED_MOST_OF_PARTS // choices.needs.size)
    return max(bound, bound_by_cases(choices, trials, value))


def bound_by_cases(choices: Choices, trials: int, value: float) -> float:
    """The minimum of the lower bounds of cases that cover all schedules.

    The case with the lowest bound is split in two while trials are left; each split takes two.
    Prices are computed again for each case. Stops at a bound close to `value`.
    """
    number = count()  # Cases are compared by bound and age only.
    bound, choices, mixture = _settled(choices)
    cases = [(bound, next(number), choices, mixture)]
    for _ in range((trials - 1) // 2):
        bound, _, choices, mixture = cases[0]
        if bound >= value - SPLIT_FROM * abs(value):
            break
        split = _split(choices, mixture)
        if split is None:
            break
        heappop(cases)
        for half in (choices.until(*split), choices.after(*split)):
            reached, half, mixture = _settled(half)
            heappush(cases, (max(bound, reached), next(number), half, mixture))
    return cases[0][0]


def _settled(choices: Choices) -> tuple[float, Choices, Mixture]:
    """A lower bound, and the choices and their mixture at nearly the best prices.

    If not all points are among the choices, and the bound is much lower than with the choices
    alone, the cheapest points become choices and prices are computed once more.
    """
    mixture = choices.mixture()
    bound = choices.bound(mixture.prices)
    if choices.short(mixture.prices) > SHORT * max(abs(bound), choices.scale):
        choices = choices.widened(mixture.prices)
        mixture = choices.mixture()
        bound = max(bound, choices.bound(mixture.prices))
    return bound, choices, mixture


def _split(choices: Choices, mixture: Mixture) -> tuple[int, float] | None:
    """The job that mixes cheap and expensive completions most, and a completion between these.

    Both cases have fewer completions, or a higher cost, of this job. None if no job mixes
    completions that can be divided so: then splitting does not improve the bound.
    """
    parts = mixture.parts / mixture.parts.sum(axis=1, keepdims=True)
    mean_cost = (parts * choices.cost).sum(axis=1, keepdims=True)
    spread = (parts * np.abs(choices.cost - mean_cost)).sum(axis=1)
    for job in np.argsort(-spread, kind="stable"):
        if not spread[job] > CLOSE * choices.scale:
            break
        instant = _middle(choices, int(job), float(parts[job] @ choices.completion[job]))
        if instant is not None:
            return int(job), instant
    return None


def _middle(choices: Choices, job: int, mean: float) -> float | None:
    """The completion near the mean that divides those of a job; None if none does.

    It is the latest completion of its cost. The first completion divides the others only if the
    cost jumps there, since it belongs to both cases.
    """
    completion, cost = choices.completion[job], choices.cost[job]
    middle = np.abs(completion - mean).argmin()
    early = cost <= cost[middle] if cost[middle] < cost.max() else cost < cost.max()
    if not early.any():
        return None
    chosen = completion == completion[early].max()
    first, last = completion.min(), completion.max()
    if first < completion[chosen][0] or (choices.above[job] > cost)[chosen].any():
        return float(completion[chosen][0])
    inner = completion[(first < completion) & (completion < last)]
    return float(inner.min()) if inner.size else None


def _rounds(jobs: BoundJobs, choices: Choices) -> int:
    """How often windows are added: lines need many windows, steps rather need many cases."""
    if choices.points is None:
        return 0
    return 2 if jobs.costs.are_lines else 1


def _trials(jobs: BoundJobs, choices: Choices) -> int:
    if choices.points is None:
        return TRIALS_OF_STEPS
    return TRIALS_OF_LINES if jobs.costs.are_lines else TRIALS_OF_OTHERS


# The possible completions of each job, their costs, and their needs in windows of time.
#
# Why these completions include the cheapest one: docs/algorithms/bounds.md, sections 4 and 7.

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
        # The rounding error of a slope, even of one of 0, lasts for the whole span.
        span = self.completion[:, -1] - self.completion[:, 0]
        largest = paid + np.abs(slope).max(axis=1) * span
        return total, RUNNING_SUM * total.shape[1] * largest

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
