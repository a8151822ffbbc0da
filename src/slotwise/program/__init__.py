"""What a task does: MapReduce programs and plain calls, their input, shuffle and output."""

from slotwise.program.calls import Calls, Sleep
from slotwise.program.execution import Execution
from slotwise.program.loading import BUILTINS, load
from slotwise.program.mapreduce import BatchMapReduce, MapReduce
from slotwise.program.mapreduce_execution import MapReduceExecution
from slotwise.program.planning import plan_mapreduce

__all__ = [
    "BUILTINS",
    "BatchMapReduce",
    "Calls",
    "Execution",
    "MapReduce",
    "MapReduceExecution",
    "Sleep",
    "load",
    "plan_mapreduce",
]
