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
    """An attempt ended well after `seconds` on its slot."""

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
    """An attempt was stopped because the scheduler said so."""

    at: float
    phase: PhaseId
    task: int
    attempt: int


Event = JobArrived | TaskFinished | TaskFailed | TaskKilled
"""All that a world may tell."""
