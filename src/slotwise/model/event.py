"""Events that a backend reports. Times are seconds on the clock of arrivals."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.model.cluster import Host
from slotwise.model.job import Job, PhaseId


@dataclass(frozen=True, slots=True)
class JobArrived:
    """A job arrived; it carries all that is known of it beforehand."""

    at: float
    job: Job


@dataclass(frozen=True, slots=True)
class JobsClosed:
    """No more jobs will arrive: the run ends when those that arrived are over."""

    at: float


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A user cancelled a job. It has no effect on a job that is over."""

    at: float
    job: str


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """An attempt succeeded; it computed for `seconds`.

    It may have held its slot longer, to copy, to read over a network or to wait.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """An attempt failed: its own code failed, or (`lost`) its slot died."""

    at: float
    phase: PhaseId
    task: int
    attempt: int
    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class TaskKilled:
    """An attempt was stopped because the scheduler decided so.

    It kept `kept` seconds of its work (at speed 1): the next attempt need not repeat them.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    kept: float = 0.0


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host became unresponsive. Nothing new begins there; its tasks may continue unseen."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostJoined:
    """A host that had become unresponsive is back."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostAdded:
    """A host joined the cluster. Its name may be that of a host that has left."""

    at: float
    host: Host


@dataclass(frozen=True, slots=True)
class HostDrained:
    """A host is to leave: nothing new begins there. It leaves when its last task has ended."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostRemoved:
    """A host left at once, for good.

    The attempts that ran there are lost; the backend reports their ends in the same turn. It
    has no effect on a host that has left already.
    """

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class LaunchDropped:
    """A host received a launch of an attempt that it had begun before, or that was over.

    It ignored the launch: messages may arrive late or twice.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    host: str
    reason: str


TaskEnded = TaskFinished | TaskFailed | TaskKilled
"""The end of an attempt."""

HostChange = HostAdded | HostDrained | HostRemoved
"""A change of the set of hosts."""

Event = (
    JobArrived
    | JobsClosed
    | JobCancelled
    | TaskEnded
    | HostLost
    | HostJoined
    | HostChange
    | LaunchDropped
)
"""All events that a backend may report."""
