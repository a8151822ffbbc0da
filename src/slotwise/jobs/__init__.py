"""What a task does: MapReduce, dataflows, calls and commands, with their input and output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotwise.jobs.calls import Calls as Calls
    from slotwise.jobs.calls import Sleep as Sleep
    from slotwise.jobs.execution import Execution as Execution
    from slotwise.jobs.loading import load as load
    from slotwise.jobs.mapreduce.planning import plan_mapreduce as plan_mapreduce
    from slotwise.jobs.mapreduce.program import BatchMapReduce as BatchMapReduce
    from slotwise.jobs.mapreduce.program import MapReduce as MapReduce


# Modules are imported on first use. A worker process then imports only what its tasks need,
# which shortens the restart of a task whose worker was killed.
PUBLIC = {
    "BatchMapReduce": "mapreduce.program",
    "Calls": "calls",
    "Execution": "execution",
    "MapReduce": "mapreduce.program",
    "Sleep": "calls",
    "load": "loading",
    "plan_mapreduce": "mapreduce.planning",
}
"""Public names of the package, and the module of each."""

__all__ = [*PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'slotwise.jobs' has no attribute {name!r}")
    return getattr(import_module(f"slotwise.jobs.{PUBLIC[name]}"), name)
