"""The best of all priority orders by the packing scheme: the FLEX paper's reference (4.1)."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.core.errors import InputError
from slotwise.policy.compiled import has_numba
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import Packer
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.exhaustive import MAX_JOBS, search
from slotwise.policy.search.orders import ORDERS
from slotwise.policy.search.solve import improve

COMPILED_FROM = 10
"""Jobs from which numba is worth its import."""


def best_order(problem: Malleable) -> tuple[list[int], float]:
    """An order of minimum value, and that value. InputError for more than `MAX_JOBS` jobs.

    Depth-first search over prefixes. A prefix is pruned if its cost, with each other job done
    as early as the prefix alone allows, is not below the best known value. J! orders in the
    worst case; ten jobs take some milliseconds compiled (extra `fast`), otherwise some tenths
    of a second.
    """
    if len(problem) > MAX_JOBS:
        raise InputError(
            f"{len(problem)} jobs have too many orders to try; give at most {MAX_JOBS}"
        )
    if not len(problem):
        return [], 0.0
    packer = _packer(problem)
    start, value = _good_order(problem, packer)
    if len(problem) >= COMPILED_FROM and problem.costs.are_known and has_numba():
        from experiments.flex.best_order_compiled import search_compiled

        order = search_compiled(problem, start, value)
    else:
        order = search(problem, start, value)
    return order, problem.value(packer.completions(order))


def _packer(problem: Malleable) -> Packer:
    return Packer(problem.capacity, problem.work, problem.min_share, problem.max_share)


def _good_order(problem: Malleable, packer: Packer) -> tuple[list[int], float]:
    """The best of the known orderings, improved until no move of one or two jobs helps."""

    def value(order: Sequence[int]) -> float:
        return problem.value(packer.completions(order))

    known = (make(problem) for make, jobs_most in ORDERS.values() if len(problem) <= jobs_most)
    return improve(min(known, key=value), value, Budget())
