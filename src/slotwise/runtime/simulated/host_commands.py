"""What the simulated world does later and does not tell just so: entries of its heap."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.model.decision import Launch, Preempt
from slotwise.model.event import TaskFailed, TaskFinished
from slotwise.model.job import PhaseId

AttemptKey = tuple[PhaseId, int, int]


@dataclass(frozen=True, slots=True)
class Deliver:
    """A decision reaches a host that could not be reached before."""

    decision: Launch | Preempt

    @property
    def host(self) -> str:
        """Where."""
        return self.decision.host


@dataclass(frozen=True, slots=True)
class Repeat:
    """A host is told again to begin an attempt."""

    launch: Launch

    @property
    def host(self) -> str:
        """Where."""
        return self.launch.host


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt that still runs then is stopped, and has kept so much of its work."""

    key: AttemptKey
    host: str
    kept: float


@dataclass(frozen=True, slots=True)
class Abandon:
    """The grace of a silent host is over: what runs there is lost."""

    host: str


Order = Deliver | Repeat | Stop | Abandon


def key_of(one: Launch | Preempt | TaskFinished | TaskFailed) -> AttemptKey:
    """The attempt that it is about."""
    return one.phase, one.task, one.attempt
