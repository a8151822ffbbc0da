"""The work of tasks: MapReduce programs and plain calls, their input, shuffle and output."""

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

# Modules are imported on first use. A worker process then imports only what its tasks need,
# which shortens the restart of a task whose worker was killed.
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
"""Public names of the package, and the module of each."""

__all__ = [*PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'slotwise.program' has no attribute {name!r}")
    return getattr(import_module(f"slotwise.program.{PUBLIC[name]}"), name)
