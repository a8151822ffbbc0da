"""slotwise schedules many jobs on a shared machine.

It minimizes the metric that users choose (mean response time, stretch, missed deadlines, SLA
cost, makespan) while every pool keeps its guaranteed share. The same scheduler plans, simulates
and runs jobs, and every result has a proven lower bound.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from slotwise.api import compare as compare
    from slotwise.api import explain as explain
    from slotwise.api import replay as replay
    from slotwise.api import run as run
    from slotwise.api import simulate as simulate
    from slotwise.api import write_report as write_report
    from slotwise.model.cluster import Cluster as Cluster
    from slotwise.model.cluster import Host as Host
    from slotwise.model.errors import InputError as InputError
    from slotwise.model.errors import MissingExtraError as MissingExtraError
    from slotwise.model.errors import SlotwiseError as SlotwiseError
    from slotwise.model.event import HostAdded as HostAdded
    from slotwise.model.event import HostDrained as HostDrained
    from slotwise.model.event import HostRemoved as HostRemoved
    from slotwise.model.job import Block as Block
    from slotwise.model.job import Job as Job
    from slotwise.model.job import Phase as Phase
    from slotwise.model.job import PhaseId as PhaseId
    from slotwise.model.job import Tasks as Tasks
    from slotwise.model.network import Network as Network
    from slotwise.model.pool import Pool as Pool
    from slotwise.model.pool import Preemption as Preemption
    from slotwise.model.schedule import Piece as Piece
    from slotwise.model.schedule import Schedule as Schedule
    from slotwise.model.shuffle import Shuffle as Shuffle
    from slotwise.objective.objective import Objective as Objective
    from slotwise.plans import plan as plan
    from slotwise.plans import plan_tasks as plan_tasks
    from slotwise.programs.calls import Calls as Calls
    from slotwise.programs.dataflow.body import Output as Output
    from slotwise.programs.dataflow.graph import Dataflow as Dataflow
    from slotwise.programs.mapreduce.program import BatchMapReduce as BatchMapReduce
    from slotwise.programs.mapreduce.program import MapReduce as MapReduce
    from slotwise.record.log import read_log as read_log
    from slotwise.results import Plan as Plan
    from slotwise.results import Result as Result
    from slotwise.results import RunInterrupted as RunInterrupted
    from slotwise.results import RunLost as RunLost
    from slotwise.results import RunUnrecorded as RunUnrecorded
    from slotwise.results import TaskPlan as TaskPlan
    from slotwise.runtime.simulated.outages import Outage as Outage
    from slotwise.runtime.simulated.simulation import Fault as Fault
    from slotwise.runtime.simulated.simulation import Simulation as Simulation
    from slotwise.sessions.futures import Future as Future
    from slotwise.sessions.session import Session as Session
    from slotwise.workload.file import read_workload as read_workload
    from slotwise.workload.workload import CommandJob as CommandJob
    from slotwise.workload.workload import DataflowJob as DataflowJob
    from slotwise.workload.workload import Placement as Placement
    from slotwise.workload.workload import ProgramJob as ProgramJob
    from slotwise.workload.workload import Workload as Workload
    from slotwise.workload.workload import command as command
    from slotwise.workload.workload import mapreduce as mapreduce

# Names are imported on first use: a worker process that runs a user's map does not need the
# planner, and starts in a fraction of the time.
PUBLIC = {
    # Do
    "plan": "slotwise.plans",
    "plan_tasks": "slotwise.plans",
    "simulate": "slotwise.api",
    "run": "slotwise.api",
    "compare": "slotwise.api",
    "replay": "slotwise.api",
    "explain": "slotwise.api",
    "Session": "slotwise.sessions.session",
    "Future": "slotwise.sessions.futures",
    "write_report": "slotwise.api",
    # What is to be done
    "Workload": "slotwise.workload.workload",
    "ProgramJob": "slotwise.workload.workload",
    "CommandJob": "slotwise.workload.workload",
    "DataflowJob": "slotwise.workload.workload",
    "mapreduce": "slotwise.workload.workload",
    "command": "slotwise.workload.workload",
    "read_workload": "slotwise.workload.file",
    "Job": "slotwise.model.job",
    "Phase": "slotwise.model.job",
    "PhaseId": "slotwise.model.job",
    "Tasks": "slotwise.model.job",
    "Block": "slotwise.model.job",
    "Pool": "slotwise.model.pool",
    "Preemption": "slotwise.model.pool",
    "Shuffle": "slotwise.model.shuffle",
    "Cluster": "slotwise.model.cluster",
    "Host": "slotwise.model.cluster",
    "Network": "slotwise.model.network",
    "Placement": "slotwise.workload.workload",
    "Objective": "slotwise.objective.objective",
    # Programs
    "MapReduce": "slotwise.programs.mapreduce.program",
    "BatchMapReduce": "slotwise.programs.mapreduce.program",
    "Calls": "slotwise.programs.calls",
    "Dataflow": "slotwise.programs.dataflow.graph",
    "Output": "slotwise.programs.dataflow.body",
    # A simulation
    "Simulation": "slotwise.runtime.simulated.simulation",
    "Fault": "slotwise.runtime.simulated.simulation",
    "Outage": "slotwise.runtime.simulated.outages",
    "HostAdded": "slotwise.model.event",
    "HostDrained": "slotwise.model.event",
    "HostRemoved": "slotwise.model.event",
    # Results
    "Plan": "slotwise.results",
    "TaskPlan": "slotwise.results",
    "Result": "slotwise.results",
    "RunInterrupted": "slotwise.results",
    "RunLost": "slotwise.results",
    "RunUnrecorded": "slotwise.results",
    "Schedule": "slotwise.model.schedule",
    "Piece": "slotwise.model.schedule",
    "read_log": "slotwise.record.log",
    # Errors
    "SlotwiseError": "slotwise.model.errors",
    "InputError": "slotwise.model.errors",
    "MissingExtraError": "slotwise.model.errors",
}
"""Every public name, and where it lives."""

__all__ = ["__version__", *PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'slotwise' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
