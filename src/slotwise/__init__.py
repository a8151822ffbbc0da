"""slotwise schedules many jobs on a shared machine.

It minimizes the metric that users choose (mean response time, stretch, missed deadlines, SLA
cost, makespan) while every pool keeps its guaranteed share. The same scheduler plans, simulates
and runs jobs, and every result has a proven lower bound.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slotwise import earlier_paths

__version__ = "0.1.0"

if TYPE_CHECKING:
    from slotwise.api import compare as compare
    from slotwise.api import explain as explain
    from slotwise.api import replay as replay
    from slotwise.api import run as run
    from slotwise.api import simulate as simulate
    from slotwise.api import write_report as write_report
    from slotwise.backends.simulated.simulation import Fault as Fault
    from slotwise.backends.simulated.simulation import Outage as Outage
    from slotwise.backends.simulated.simulation import Simulation as Simulation
    from slotwise.core.cluster import Cluster as Cluster
    from slotwise.core.cluster import Host as Host
    from slotwise.core.cluster import Network as Network
    from slotwise.core.errors import InputError as InputError
    from slotwise.core.errors import MissingExtraError as MissingExtraError
    from slotwise.core.errors import PromiseRefused as PromiseRefused
    from slotwise.core.errors import SlotwiseError as SlotwiseError
    from slotwise.core.events import HostAdded as HostAdded
    from slotwise.core.events import HostDrained as HostDrained
    from slotwise.core.events import HostRemoved as HostRemoved
    from slotwise.core.events import PoolsChanged as PoolsChanged
    from slotwise.core.job import Block as Block
    from slotwise.core.job import Job as Job
    from slotwise.core.job import Phase as Phase
    from slotwise.core.job import PhaseId as PhaseId
    from slotwise.core.job import Shuffle as Shuffle
    from slotwise.core.job import Tasks as Tasks
    from slotwise.core.log import read_log as read_log
    from slotwise.core.objective import Objective as Objective
    from slotwise.core.pools import Pool as Pool
    from slotwise.core.pools import Preemption as Preemption
    from slotwise.core.schedule import Piece as Piece
    from slotwise.core.schedule import Schedule as Schedule
    from slotwise.insight.intervals import Interval as Interval
    from slotwise.insight.intervals import JobExplained as JobExplained
    from slotwise.insight.intervals import WorstWaits as WorstWaits
    from slotwise.insight.report.session_table import SessionJob as SessionJob
    from slotwise.insight.report.session_table import SessionJobs as SessionJobs
    from slotwise.jobs.calls import Calls as Calls
    from slotwise.jobs.dataflow.ends import Output as Output
    from slotwise.jobs.dataflow.graph import Dataflow as Dataflow
    from slotwise.jobs.mapreduce.program import BatchMapReduce as BatchMapReduce
    from slotwise.jobs.mapreduce.program import MapReduce as MapReduce
    from slotwise.plans import plan as plan
    from slotwise.plans import plan_tasks as plan_tasks
    from slotwise.results import Plan as Plan
    from slotwise.results import Result as Result
    from slotwise.results import RunInterrupted as RunInterrupted
    from slotwise.results import RunLost as RunLost
    from slotwise.results import RunUnrecorded as RunUnrecorded
    from slotwise.results import TaskPlan as TaskPlan
    from slotwise.service.clients.client import Client as Client
    from slotwise.sessions.futures import Future as Future
    from slotwise.sessions.session import Session as Session
    from slotwise.workload.file import read_workload as read_workload
    from slotwise.workload.workload import CommandJob as CommandJob
    from slotwise.workload.workload import DataflowJob as DataflowJob
    from slotwise.workload.workload import PhasedJob as PhasedJob
    from slotwise.workload.workload import Placement as Placement
    from slotwise.workload.workload import ProgramJob as ProgramJob
    from slotwise.workload.workload import Workload as Workload
    from slotwise.workload.workload import command as command
    from slotwise.workload.workload import mapreduce as mapreduce
    from slotwise.workload.workload import phases as phases

# Names are imported on first use: a worker process that runs a user's map does not need the
# planner, and starts in a fraction of the time.
_NAMES = {
    "slotwise.plans": ("plan", "plan_tasks"),
    "slotwise.api": ("simulate", "run", "compare", "replay", "explain", "write_report"),
    "slotwise.sessions.session": ("Session",),
    "slotwise.sessions.futures": ("Future",),
    "slotwise.service.clients.client": ("Client",),
    "slotwise.insight.intervals": ("Interval", "JobExplained", "WorstWaits"),
    "slotwise.insight.report.session_table": ("SessionJob", "SessionJobs"),
    "slotwise.workload.workload": (
        "Workload",
        "ProgramJob",
        "CommandJob",
        "DataflowJob",
        "PhasedJob",
        "mapreduce",
        "command",
        "phases",
        "Placement",
    ),
    "slotwise.workload.file": ("read_workload",),
    "slotwise.core.job": ("Job", "Phase", "PhaseId", "Tasks", "Block", "Shuffle"),
    "slotwise.core.pools": ("Pool", "Preemption"),
    "slotwise.core.cluster": ("Cluster", "Host", "Network"),
    "slotwise.core.objective": ("Objective",),
    "slotwise.jobs.mapreduce.program": ("MapReduce", "BatchMapReduce"),
    "slotwise.jobs.calls": ("Calls",),
    "slotwise.jobs.dataflow.graph": ("Dataflow",),
    "slotwise.jobs.dataflow.ends": ("Output",),
    "slotwise.backends.simulated.simulation": ("Simulation", "Fault", "Outage"),
    "slotwise.core.events": ("HostAdded", "HostDrained", "HostRemoved", "PoolsChanged"),
    "slotwise.results": (
        "Plan",
        "TaskPlan",
        "Result",
        "RunInterrupted",
        "RunLost",
        "RunUnrecorded",
    ),
    "slotwise.core.schedule": ("Schedule", "Piece"),
    "slotwise.core.log": ("read_log",),
    "slotwise.core.errors": (
        "SlotwiseError",
        "InputError",
        "MissingExtraError",
        "PromiseRefused",
    ),
}

PUBLIC = {name: module for module, names in _NAMES.items() for name in names}
"""The module of each public name."""

__all__ = ["__version__", *PUBLIC]


earlier_paths.install()


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'slotwise' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
