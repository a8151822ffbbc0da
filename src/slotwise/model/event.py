"""Events: what a world tells. Times are seconds on the clock of arrivals."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.model.job import Job, PhaseId


@dataclass(frozen=True, slots=True)
class JobArrived:
    """A job is there; it carries everything that anybody may know of it beforehand."""

    at: float
    job: Job


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """An attempt ended well; it computed for `seconds`.

    It may have held its slot longer: for copying, for reading over a network, for waiting.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """An attempt ended badly: its own code failed, or (`lost`) the slot under it died."""

    at: float
    phase: PhaseId
    task: int
    attempt: int
    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class TaskKilled:
    """An attempt was stopped because the scheduler said so.

    It kept `kept` seconds of its work (at speed 1): the next attempt need not do them again.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    kept: float = 0.0


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host fell silent. Nothing new begins there; what runs there may go on unseen."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostJoined:
    """A host that had fallen silent is back."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class LaunchDropped:
    """A host was told to begin an attempt that it had begun before, or that was over.

    It did nothing: messages may come late or twice.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    host: str
    reason: str


TaskEnded = TaskFinished | TaskFailed | TaskKilled
"""The end of an attempt."""

Event = JobArrived | TaskEnded | HostLost | HostJoined | LaunchDropped
"""All that a world may tell."""
