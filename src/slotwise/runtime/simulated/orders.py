"""What the simulated world does later and does not tell just so: entries of its heap."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.model.decision import Launch
from slotwise.model.event import TaskFailed, TaskFinished
from slotwise.model.job import PhaseId

AttemptKey = tuple[PhaseId, int, int]


@dataclass(frozen=True, slots=True)
class Begin:
    """The order to begin an attempt reaches a host that could not be reached before."""

    launch: Launch

    @property
    def host(self) -> str:
        """Where."""
        return self.launch.host


@dataclass(frozen=True, slots=True)
class BeginAgain(Begin):
    """The same order for an attempt of which the host was told before."""


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


Order = Begin | Stop | Abandon


def key_of(one: Launch | TaskFinished | TaskFailed) -> AttemptKey:
    """The attempt that it is about."""
    return one.phase, one.task, one.attempt
