"""Local search for a better priority order: moves one job or exchanges two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from slotwise.allocation.search.budget import Budget
from slotwise.allocation.tolerances import SAME


def improve(
    order: Sequence[int], evaluate: Callable[[Sequence[int]], float], budget: Budget
) -> tuple[list[int], float]:
    """An order that is at least as good, and its value.

    It accepts the first better order found, one evaluation per step. It ends when no insertion
    of one job and no exchange of two helps, or when the budget is spent. O(J^2) steps for each
    round over all neighbours.
    """
    best = list(order)
    value = evaluate(best)
    helped = True
    while helped:
        helped = False
        for move in _moves(len(best)):
            if not budget.may_go_on():
                return best, value
            candidate = move(best)
            found = evaluate(candidate)
            if found < value - SAME * abs(value):
                best, value, helped = candidate, found, True
    return best, value


Move = Callable[[list[int]], list[int]]


def _moves(count: int) -> Iterator[Move]:
    """Exchanges of adjacent jobs, the smallest changes; then insertions; then exchanges."""
    for first in range(count - 1):
        yield _exchange(first, first + 1)
    for source in range(count):
        for target in range(count):
            if abs(source - target) > 1:
                yield _insertion(source, target)
    for first, other in combinations(range(count), 2):
        if other - first > 1:
            yield _exchange(first, other)


def _insertion(source: int, target: int) -> Move:
    def move(order: list[int]) -> list[int]:
        rest = order[:source] + order[source + 1 :]
        return [*rest[:target], order[source], *rest[target:]]

    return move


def _exchange(first: int, other: int) -> Move:
    def move(order: list[int]) -> list[int]:
        changed = order.copy()
        changed[first], changed[other] = order[other], order[first]
        return changed

    return move
