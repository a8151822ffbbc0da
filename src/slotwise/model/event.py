"""Events that a backend reports. Times are seconds on the clock of arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from slotwise.model.cluster import Host
from slotwise.model.job import Job, PhaseId
from slotwise.model.light import fast_frozen
from slotwise.model.pool import Pool


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
class JobChanged:
    """A user changed the priority, weight, pool or deadline of a job; all four are given.

    It has no effect on a job that is over. Tasks that run continue, also if they exceed the max
    share of the new pool: nothing is started there until it is below it.
    """

    at: float
    job: str
    priority: str
    weight: float
    pool: str
    deadline: float | None

    def applied_to(self, job: Job) -> Job:
        """The job with the new values. InputError for a value that no job can have."""
        return replace(
            job,
            priority=self.priority,
            weight=self.weight,
            pool=self.pool,
            deadline=self.deadline,
        )


@dataclass(frozen=True, slots=True)
class TasksAdded:
    """A phase that grows got this number of further tasks, numbered after the earlier ones."""

    at: float
    phase: PhaseId
    count: int


@dataclass(frozen=True, slots=True)
class PhaseClosed:
    """A phase that grows will get no more tasks: it is done when those that it has are done."""

    at: float
    phase: PhaseId


@dataclass(frozen=True, slots=True)
class TasksRunnable:
    """Blocked tasks of a gated phase may run from now on."""

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TasksBlocked:
    """Pending tasks of a gated phase may not run any more, until they are runnable again.

    It has no effect on tasks that run or are done.
    """

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TasksDropped:
    """Tasks of a gated phase are not needed any more: they count as done, without work.

    The attempts of those that run go on until they end.
    """

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolsChanged:
    """A user replaced the pools, with their weights and shares; jobs keep theirs by name."""

    at: float
    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class ObjectiveChanged:
    """A user replaced the objective: the name of the penalty, and "sum" or "max"."""

    at: float
    penalty: str
    aggregate: Literal["sum", "max"]


@fast_frozen
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
    """An attempt failed: its own code failed, or (`lost`) its slot died.

    If it `lacks_input`, it has found output of other tasks lost that it reads, and this was
    reported as OutputLost. It does not count as a failure of the task, nor as a loss. If it is
    `final`, a further attempt cannot succeed: the job fails.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    reason: str
    lost: bool = False
    lacks_input: bool = False
    final: bool = False


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

    They are to be done again. Nothing is lost of a job that is over. The reason may be empty.
    """

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]
    reason: str = ""


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
class HostResized:
    """A host has other numbers of slots from now on, of the kinds that it had.

    What runs there goes on. If that is more than its slots, none of them is free until enough
    has ended.
    """

    at: float
    host: str
    slots: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LaunchDropped:
    """A host received a launch of an attempt that it had begun before, or that was over.

    It ignored the launch: messages may arrive late or twice. The end of the attempt is reported
    as if the launch had come once. A new attempt that cannot begin is a TaskFailed (`lost`).
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

TasksChanged = TasksRunnable | TasksBlocked | TasksDropped
"""A change of the tasks of a gated phase."""

Request = (
    JobsClosed
    | JobCancelled
    | JobChanged
    | TasksAdded
    | PhaseClosed
    | PoolsChanged
    | ObjectiveChanged
)
"""What users ask for while a run goes on, besides jobs."""

Event = (
    JobArrived
    | Request
    | TaskEnded
    | OutputLost
    | TasksChanged
    | HostLost
    | HostJoined
    | HostChange
    | HostResized
    | LaunchDropped
)
"""All events that a backend may report."""
