"""What a task does: MapReduce programs and plain calls, their input, shuffle and output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotwise.program.calls import Calls as Calls
    from slotwise.program.calls import Sleep as Sleep
    from slotwise.program.execution import Execution as Execution
    from slotwise.program.loading import BUILTINS as BUILTINS
    from slotwise.program.loading import load as load
    from slotwise.program.mapreduce import BatchMapReduce as BatchMapReduce
    from slotwise.program.mapreduce import MapReduce as MapReduce
    from slotwise.program.mapreduce_execution import MapReduceExecution as MapReduceExecution
    from slotwise.program.planning import plan_mapreduce as plan_mapreduce

# A worker process that does one kind of task need not import what plans and commits others: a
# task that was killed waits for that before it begins again.
PUBLIC = {
    "BUILTINS": "loading",
    "BatchMapReduce": "mapreduce",
    "Calls": "calls",
    "Execution": "execution",
    "MapReduce": "mapreduce",
    "MapReduceExecution": "mapreduce_execution",
    "Sleep": "calls",
    "load": "loading",
    "plan_mapreduce": "planning",
}
"""Every name that others import from here, and its module."""

__all__ = [*PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'slotwise.program' has no attribute {name!r}")
    return getattr(import_module(f"slotwise.program.{PUBLIC[name]}"), name)
