"""Events that a backend reports. Times are seconds on the clock of arrivals."""

from __future__ import annotations

from dataclasses import dataclass

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
class OutputLost:
    """The output of these done tasks is lost before all that need it have read it.

    They are to be done again. Nothing is lost of a job that is over.
    """

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]


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

Event = (
    JobArrived
    | JobsClosed
    | JobCancelled
    | TaskEnded
    | OutputLost
    | HostLost
    | HostJoined
    | LaunchDropped
)
"""All events that a backend may report."""
