"""Delayed actions of the simulated backend: heap entries that are not plain events."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.model.decision import Launch, Preempt
from slotwise.model.event import TaskFailed, TaskFinished
from slotwise.model.job import PhaseId

AttemptKey = tuple[PhaseId, int, int]


@dataclass(frozen=True, slots=True)
class Deliver:
    """A decision reaches a host that was unreachable before."""

    decision: Launch | Preempt

    @property
    def host(self) -> str:
        """The host that the decision reaches."""
        return self.decision.host


@dataclass(frozen=True, slots=True)
class Repeat:
    """A host receives a launch again."""

    launch: Launch

    @property
    def host(self) -> str:
        """The host that receives the launch."""
        return self.launch.host


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt that still runs is stopped; it has kept `kept` seconds of its work."""

    key: AttemptKey
    host: str
    kept: float


@dataclass(frozen=True, slots=True)
class Abandon:
    """The grace of an unresponsive host is over: its attempts are lost."""

    host: str


@dataclass(frozen=True, slots=True)
class Lose:
    """The output of a done task is lost, wherever it is."""

    phase: PhaseId
    task: int


Order = Deliver | Repeat | Stop | Abandon | Lose


def key_of(one: Launch | Preempt | TaskFinished | TaskFailed) -> AttemptKey:
    """The key of the attempt of a decision or event."""
    return one.phase, one.task, one.attempt
