"""Planners of whole tasks by name: DMRS, our improvement of it, and other schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from slotwise.allocation.search.budget import Budget
from slotwise.dmrs.baselines import identical_machine, map_only
from slotwise.dmrs.fifo import fifo
from slotwise.dmrs.list_schedule import dmrs
from slotwise.dmrs.problem import RelatedMachines
from slotwise.dmrs.schedule import Runs
from slotwise.dmrs.search import best_found

PLANNERS: Mapping[str, Callable[[RelatedMachines, Budget], Runs]] = MappingProxyType(
    {
        "dmrs": lambda problem, budget: dmrs(problem),
        "dmrs-best": best_found,
        "fifo": lambda problem, budget: fifo(problem),
        "identical-machine": lambda problem, budget: identical_machine(problem),
        "map-only": lambda problem, budget: map_only(problem),
    }
)
"""The schedulers of whole tasks by name; only those that search use the budget."""
