"""Planners of whole tasks by name: DMRS, our improvement of it, and other schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotwise.allocation.search.budget import Budget
    from slotwise.assignment.dmrs.problem import RelatedMachines
    from slotwise.assignment.dmrs.schedule import Runs

# Each planner imports its module when it is called: the command line only lists the names.


def _dmrs(problem: RelatedMachines, budget: Budget) -> Runs:
    from slotwise.assignment.dmrs.algorithm import dmrs

    return dmrs(problem)


def _dmrs_best(problem: RelatedMachines, budget: Budget) -> Runs:
    from slotwise.assignment.dmrs.search import best_found

    return best_found(problem, budget)


def _fifo(problem: RelatedMachines, budget: Budget) -> Runs:
    from slotwise.assignment.dmrs.fifo import fifo

    return fifo(problem)


def _identical_machine(problem: RelatedMachines, budget: Budget) -> Runs:
    from slotwise.assignment.dmrs.baselines import identical_machine

    return identical_machine(problem)


def _map_only(problem: RelatedMachines, budget: Budget) -> Runs:
    from slotwise.assignment.dmrs.baselines import map_only

    return map_only(problem)


PLANNERS: Mapping[str, Callable[[RelatedMachines, Budget], Runs]] = MappingProxyType(
    {
        "dmrs": _dmrs,
        "dmrs-best": _dmrs_best,
        "fifo": _fifo,
        "identical-machine": _identical_machine,
        "map-only": _map_only,
    }
)
"""The schedulers of whole tasks by name. Only those that search use the budget."""
