"""Tardy jobs and SLAs: branch and bound over the step that each job meets."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from slotwise.core.costs import Floats
from slotwise.core.objective import Steps, met_until
from slotwise.core.tolerances import CLOSE, WHOLE
from slotwise.policy.due_dates import Promises
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.budget import Budget


@dataclass(frozen=True, slots=True)
class Choice:
    """Due dates that can be kept together, seconds, their cost, and a lower bound on it."""

    due: Floats
    value: float
    bound: float


def choose_steps(problem: Malleable, known: Floats, budget: Budget) -> Choice:
    """The due dates of minimum total cost for jobs with step costs, starting from known ones.

    Each job meets one of its steps or none. Jobs are decided one after the other, the cheapest
    step that still fits first. A branch is pruned when its lower bound is not below the best
    choice so far: each undecided job costs at least as much as at its earliest completion, and
    if these do not all fit together, some jobs must take more expensive steps. One node per
    budget step. Exact when all nodes are done, which may take 2^J nodes and rarely does.
    """
    value = problem.value(known)
    if value <= problem.value(problem.heights):  # No job completes before its height.
        return Choice(known, value, value)
    search = _StepSearch(problem, known, budget)
    bound = search.run()
    return Choice(search.due, search.value, min(search.value, bound))


@dataclass(frozen=True, slots=True)
class _Branch:
    """A partial decision; `bound` is a lower bound over all choices for the other jobs."""

    promises: Promises
    undecided: list[int]
    cost: float
    bound: float


class _StepSearch:
    def __init__(self, problem: Malleable, known: Floats, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        self.due, self.value = known, problem.value(known)
        steps = [cost.steps for cost in problem.costs if isinstance(cost, Steps)]
        assert len(steps) == len(problem), "all costs are steps"
        # Choices of each job: (latest completion, cost), cheapest first; the last is "never".
        self.choices = [
            [(at, cost) for at, cost in _choices(one) if at >= height * (1 - CLOSE)]
            for one, height in zip(steps, problem.heights, strict=True)
        ]
        stake = [choices[-1][1] for choices in self.choices]
        self.by_stake = sorted(range(len(problem)), key=lambda j: -stake[j])
        self.quantum = _quantum([cost for one in steps for _, cost in one])

    def run(self) -> float:
        """Search while the budget lasts; returns the lower bound of the unexplored nodes."""
        root = Promises(self.problem)
        nodes = [_Branch(root, self.by_stake, 0.0, self._lowest_cost(root, self.by_stake))]
        while nodes:
            if not self.budget.may_go_on():
                return min(node.bound for node in nodes)
            self._visit(nodes)
        return inf

    def _visit(self, nodes: list[_Branch]) -> None:
        """Replace the last node by its branches, the cheapest last."""
        node = nodes.pop()
        bound = max(node.bound, node.cost + self._lowest_cost(node.promises, node.undecided))
        if bound >= self.value * (1 - CLOSE):
            return
        if not node.undecided:
            self.due, self.value = node.promises.due, node.cost
            return
        job, *rest = node.undecided
        earliest = node.promises.earliest(job)
        for due, price in reversed(self.choices[job]):
            if due >= earliest:
                branch = node.promises.copy()
                branch.promise(job, due)
                nodes.append(_Branch(branch, rest, node.cost + price, bound))

    def _lowest_cost(self, promises: Promises, undecided: list[int]) -> float:
        """A lower bound on the cost of the undecided jobs."""
        if not undecided:
            return 0.0
        options = []
        for job in undecided:
            earliest = promises.earliest(job)
            options.append([(d, c) for d, c in self.choices[job] if d >= earliest])
        lowest = sum(choices[0][1] for choices in options)
        lowest += self._cover(promises, undecided, options)
        if self.quantum:
            return float(np.ceil(lowest / self.quantum - WHOLE)) * self.quantum
        return lowest

    def _cover(
        self,
        promises: Promises,
        undecided: list[int],
        options: list[list[tuple[float, float]]],
    ) -> float:
        """A lower bound on the cost, beyond each job's cheapest step, of fitting them together.

        If the work that must be done by an instant exceeds the room, jobs must take more
        expensive steps until it fits. Taking these fractionally, by cost per relieved work,
        costs no more than any real choice (a fractional covering knapsack). The result is the
        maximum over the instants.
        """
        ends = np.array([choices[0][0] for choices in options])
        at = np.concatenate((promises.line[0], ends[np.isfinite(ends)]))
        room = promises.room(at)
        worst = 0.0
        relief = np.empty((len(undecided), len(at)))
        price = np.full((len(undecided), len(at)), inf)
        for row, (job, choices) in enumerate(zip(undecided, options, strict=True)):
            needed = promises.needed(job, choices[0][0], at)
            relief[row] = needed
            for due, cost in choices[1:]:
                relieved = needed - promises.needed(job, due, at)
                with np.errstate(divide="ignore"):
                    rate = np.where(relieved > 0, (cost - choices[0][1]) / relieved, inf)
                price[row] = np.minimum(price[row], rate)
        excess = relief.sum(axis=0) - room
        for column in np.flatnonzero(excess > CLOSE * np.maximum(1.0, np.abs(room))):
            by_price = np.argsort(price[:, column], kind="stable")
            amounts, prices = relief[by_price, column], price[by_price, column]
            before = np.cumsum(amounts) - amounts
            taken = np.clip(excess[column] - before, 0.0, amounts)
            used = taken > 0
            worst = max(worst, float(np.sum(taken[used] * prices[used])))
        return worst


def _choices(steps: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """(latest completion, cost), cheapest first. A step's instant is met up to rounding."""
    latest = [met_until(at) for at, _ in steps]
    costs = [cost for _, cost in steps]
    return list(zip([*latest, inf], [0.0, *costs], strict=True))


def _quantum(costs: list[float]) -> float:
    """The least positive cost if all costs are multiples of it, otherwise 0."""
    lowest = min((cost for cost in costs if cost > 0), default=0.0)
    if lowest and all(abs(cost / lowest - round(cost / lowest)) < CLOSE for cost in costs):
        return lowest
    return 0.0
