"""The status of the gate at an instant: the slots of pools, the computations, why they wait.

`status_of` reads the gate once and returns frozen data for `slotwise.dask.status`, the page in
Dask's dashboard and its JSON. The data has names of computations and pools, and numbers; no
keys, values or code of users.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from itertools import islice
from typing import Any

from pydantic import TypeAdapter

from slotwise.core.cluster import ANY_KIND
from slotwise.core.decisions import Decision
from slotwise.core.events import Event, HostResized, JobArrived, TaskFinished
from slotwise.core.job import Job
from slotwise.core.jobs_in_progress import LimitReached
from slotwise.core.objective import Objective, Size
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState, path_to, whole
from slotwise.core.state import State
from slotwise.core.tolerances import SLOTS
from slotwise.core.units import size_text
from slotwise.dask.memory import WorkerMemory
from slotwise.dask.options import GateOptions
from slotwise.forecast.eta import Eta
from slotwise.insight.pool_limits import limit_reached, room_left
from slotwise.insight.report.ranges import span

MAX_ROWS = 30
"""The most running computations, and the most waiting ones, that are listed."""

MAX_SCANNED = 1_000
"""The most computations, in order of arrival, and parked tasks that are examined."""

MAX_WORKERS = 100
"""The most workers whose memory is listed."""


@dataclass(frozen=True, slots=True)
class ComputationStatus:
    """A computation that is not over.

    state     "running" if it holds slots, otherwise "waiting"
    seconds   since its arrival
    tasks     the number of its tasks; `done` of them are done, `runnable` could run at once
    running   the slots that it holds
    entitled  the slots that it should hold now
    reason    why it does not hold more slots; empty if it cannot use more
    starts    the range in which it starts, in seconds since the gate began; `ends`: in which it
              ends. None if that is over, or not forecast because no page of the gate was opened
    """

    name: str
    pool: str
    state: str
    seconds: float
    tasks: int
    done: int
    running: int
    runnable: int
    entitled: float
    reason: str
    starts: tuple[float | None, float | None] | None = None
    ends: tuple[float | None, float | None] | None = None


@dataclass(frozen=True, slots=True)
class GateStatus:
    """The gate at an instant, `now`, in seconds since it began.

    is_open       whether it has failed or was removed, so that Dask runs all tasks without it
    slots         the number of tasks that workers accept: their threads, and tasks ahead
    used          the slots that tasks hold; `held`: the number of tasks that the gate holds
    pools         the slots of each pool now; `samples`: in the last minutes
    computations  the first running and the first waiting ones; `more`: the number of others
    completed     the number of computations that are over and have run tasks
    value         the objective of these; `lower_bound`: a lower bound of it
    workers       the memory of the workers, if the gate limits it
    """

    is_open: bool
    scheduler: str
    objective: str
    now: float
    slots: int
    used: int
    held: int
    pools: dict[str, PoolShare]
    samples: tuple[PoolSample, ...]
    computations: tuple[ComputationStatus, ...]
    more: int
    completed: int
    value: float
    lower_bound: float
    workers: tuple[WorkerMemory, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> GateStatus:
        """The status from the result of `to_plain`."""
        return TypeAdapter(cls).validate_python(plain)

    def __str__(self) -> str:
        from slotwise.insight.report.grid import grid_lines

        lines = list(self._facts())
        for table in self._tables():
            lines += ["", *grid_lines(table)]
        return "\n".join([*lines, f"and {self.more} more"] if self.more else lines)

    def _repr_html_(self) -> str:
        from slotwise.insight.report.grid import framed_html, grid_html

        facts = "<br>".join(map(escape, self._facts()))
        more = f"<p>and {self.more} more</p>" if self.more else ""
        return framed_html([f"<p>{facts}</p>", *map(grid_html, self._tables()), more])

    def _facts(self) -> Iterator[str]:
        state = "open: Dask runs all tasks without it" if self.is_open else "at work"
        yield f"gate: {state}; scheduler {self.scheduler}, objective {self.objective}"
        yield f"slots: {self.used} of {self.slots} used; {self.held} tasks are held"
        yield (
            f"completed: {self.completed} computations,"
            f" value {self.value:.4g}, lower bound {self.lower_bound:.4g}"
        )

    def _tables(self) -> Iterator[dict[str, list[str]]]:
        shares, rows = self.pools.values(), self.computations
        yield {
            "pool": list(self.pools),
            "guaranteed": [f"{one.guaranteed:.4g}" for one in shares],
            "entitled": [f"{one.entitled:.4g}" for one in shares],
            "used": [str(one.used) for one in shares],
        }
        ends = [time_until(one.ends, self.now) for one in rows]
        if rows:
            yield {
                "computation": [one.name for one in rows],
                "pool": [one.pool for one in rows],
                "done": [f"{one.done}/{one.tasks}" for one in rows],
                "slots": [str(one.running) for one in rows],
                **({"ends in": ends} if any(ends) else {}),
                "reason": [one.reason for one in rows],
            }
        if self.workers:
            yield memory_table(self.workers)


def time_until(found: tuple[float | None, float | None] | None, now: float) -> str:
    """The seconds until an instant of which the range is known, in words."""
    left = () if found is None else [None if at is None else at - now for at in found]
    return span(*left) if left else ""


def memory_table(workers: Sequence[WorkerMemory]) -> dict[str, list[str]]:
    """The memory of workers as a table of sizes."""
    return {
        "worker": [one.worker for one in workers],
        "limit": [size_text(one.limit) if one.limit else "none" for one in workers],
        "process": [size_text(one.other) for one in workers],
        "results": [size_text(one.stored) for one in workers],
        "estimated for tasks": [size_text(one.estimated) for one in workers],
        "free": [size_text(int(one.free)) if one.limit else "" for one in workers],
        "tasks": [str(one.tasks) for one in workers],
    }


@dataclass(frozen=True, slots=True)
class GateView:
    """The data for `status_of`.

    `held` is the number of held tasks; `deferred` returns the number of runnable tasks of a job
    that are not offered to slotwise. `workers` and `waits` have the memory of the workers, and
    for each job why its tasks wait for memory, if the gate limits it. `etas` has the forecasts.
    """

    options: GateOptions
    state: State
    history: GateHistory
    now: float
    is_open: bool
    held: int
    deferred: Callable[[str], int]
    workers: Sequence[WorkerMemory] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    etas: Mapping[str, Eta] = field(default_factory=dict)


def status_of(gate: GateView, parked: Collection[str]) -> GateStatus:
    """The present status of the gate. O(pools + `MAX_SCANNED` computations).

    `parked` has the computations with tasks whose permitted workers are all busy.
    """
    state, history, options = gate.state, gate.history, gate.options
    running: list[ComputationStatus] = []
    waiting: list[ComputationStatus] = []
    count = 0
    for phases in state.jobs_left():
        count += 1
        if count <= MAX_SCANNED:
            rows = running if any(phase.running for phase in phases) else waiting
            if len(rows) < MAX_ROWS:
                rows.append(_computation(gate, phases, parked))
    outside = state.awaiting_admission
    waiting += [_awaiting(gate, name) for name in outside[: MAX_ROWS - len(waiting)]]
    shown = [_with_eta(one, gate.etas.get(one.name)) for one in (*running, *waiting)]
    capacity = state.capacity(ANY_KIND)
    return GateStatus(
        is_open=gate.is_open,
        scheduler=options.scheduler,
        objective=f"{options.objective.aggregate} of {options.objective.penalty}",
        now=gate.now,
        slots=capacity,
        used=capacity - sum(state.free(ANY_KIND).values()),
        held=gate.held,
        pools=pool_shares(state),
        samples=tuple(history.samples),
        computations=tuple(shown),
        more=count + len(outside) - len(running) - len(waiting),
        completed=history.completed,
        value=history.value,
        lower_bound=history.lower_bound,
        workers=tuple(gate.workers[:MAX_WORKERS]),
    )


def _with_eta(one: ComputationStatus, eta: Eta | None) -> ComputationStatus:
    if eta is None:
        return one
    starts = None if eta.start is None else eta.start.ends
    return replace(one, starts=starts, ends=eta.end.ends)


def _computation(
    gate: GateView, phases: Sequence[PhaseState], parked: Collection[str]
) -> ComputationStatus:
    job = phases[0].job
    running, runnable, entitled, done = (
        sum(getattr(phase, what) for phase in phases)
        for what in ("running", "pending", "allocated", "done")
    )
    tasks = sum(phase.phase.tasks.count - phase.dropped for phase in phases)
    return ComputationStatus(
        job.id,
        job.pool,
        "running" if running else "waiting",
        gate.now - job.arrival,
        tasks,
        done,
        running,
        runnable + gate.deferred(job.id),
        entitled,
        _reason(gate, phases, running, entitled, job.id in parked),
    )


def _awaiting(gate: GateView, name: str) -> ComputationStatus:
    """A computation that awaits admission to its pool."""
    phases = gate.state.phases_of(name)
    job = phases[0].job
    reason = " and ".join(map(_of_limit, gate.state.limits_reached(name)))
    tasks = sum(phase.phase.tasks.count for phase in phases)
    waited = gate.now - job.arrival
    return ComputationStatus(name, job.pool, "waiting", waited, tasks, 0, 0, 0, 0.0, reason)


def _of_limit(limit: LimitReached) -> str:
    key, whom = "jobs_max", ""
    if limit.user is not None:
        key, whom = "jobs_max_per_user", f" of user {limit.user}"
    if not limit.most:
        return f"pool {limit.pool} is closed{whom.replace(' of', ' for')} ({key} 0)"
    return f"pool {limit.pool} runs {len(limit.jobs)} computations{whom}, its {key}"


def _reason(
    gate: GateView, phases: Sequence[PhaseState], running: int, entitled: float, is_parked: bool
) -> str:
    """The first applicable reason why a computation does not hold more slots."""
    state = gate.state
    able = [phase for phase in phases if phase.pending]
    if not able:
        if is_parked:
            certain = "its tasks may run only on certain workers, which have no room"
            return gate.waits.get(phases[0].job.id, certain)
        return "" if running else "none of its tasks is runnable yet"
    if not state.capacity(ANY_KIND):
        return "no worker accepts tasks now"
    path = list(path_to(able[0].pool))
    for pool in path:
        if not pool.max_share:
            return f"pool {pool.name} is closed (its max share is 0)"
        if pool.is_full:
            return f"pool {pool.name} holds its max share of {pool.max_share:g}"
    if limit := limit_reached(able[0]):
        return f"pool {limit.pool} holds {room_left(limit)}"
    lacks = whole(entitled) - running
    if lacks > 0:
        return f"others still hold {lacks} of its slots; running tasks are not stopped"
    if entitled > SLOTS:
        return "it holds what it is entitled to"
    if state.is_stale:
        return "it is not part of the allocation yet"
    return _why_nothing(state, path, gate.options.scheduler)


def _why_nothing(state: State, path: Sequence[PoolState], scheduler: str) -> str:
    """Why a computation is entitled to no slots."""
    tops = [pool for pool in state.shares(ANY_KIND) if pool.depth == 1 and pool not in path]
    least = {pool.name: min(pool.min_share, pool.usable) for pool in tops}
    if whole(sum(least.values())) >= state.capacity(ANY_KIND):
        names = ", ".join(name for name, slots in least.items() if slots > 0)
        return f"the min shares of other pools take all slots: {names}"
    return f"{scheduler} gives the slots to others now"


# The history of the gate: the recent shares of pools, and the objective so far.

SAMPLE_SECONDS = 0.5
"""The least time between two samples."""

MAX_SAMPLES = 600
"""The number of samples that are kept, of at least five minutes."""

MAX_POOLS = 24
"""The number of pools whose samples are kept."""


@dataclass(frozen=True, slots=True)
class PoolShare:
    """The slots of a pool at an instant.

    guaranteed  its min share
    entitled    the slots that it should hold now: its allocation, but no more than it can use
    used        the slots that it holds
    """

    guaranteed: float
    entitled: float
    used: int


@dataclass(frozen=True, slots=True)
class PoolSample:
    """The slots of the cluster and of its pools at an instant, in seconds since the start."""

    at: float
    slots: int
    pools: dict[str, PoolShare]


@dataclass(slots=True)
class _Spent:
    """The work of a computation so far: of all its tasks, and of the longest, in seconds."""

    job: Job
    work: float = 0.0
    longest: float = 0.0


@dataclass(slots=True)
class GateHistory:
    """The recent shares of pools, and the cost of the completed computations.

    completed    the number of completed computations of which any task has run
    value        their objective; 0 without any
    lower_bound  of the objective of any schedule of the same work on the most slots so far: no
                 computation can end before it would with the whole cluster for itself

    A record for the loop. Memory: samples, and a few numbers of each computation that is alive.
    """

    objective: Objective
    samples: deque[PoolSample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    completed: int = 0
    value: float = 0.0
    lower_bound: float = 0.0
    _slots_most: int = 1
    _alive: dict[str, _Spent] = field(default_factory=dict)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Record the events of a turn."""
        for event in events:
            if isinstance(event, TaskFinished):
                spent = self._alive.get(event.phase.job)
                if spent is not None:
                    spent.work += event.seconds
                    spent.longest = max(spent.longest, event.seconds)
            elif isinstance(event, JobArrived):
                self._alive[event.job.id] = _Spent(event.job)
            elif isinstance(event, HostResized):
                self._slots_most = max(self._slots_most, *event.slots.values())

    def sample(self, state: State, now: float) -> None:
        """Record the state at the end of a turn."""
        for name in state.failed:
            self._alive.pop(name, None)
        for name, completion in state.completed.items():
            spent = self._alive.pop(name, None)
            if spent is not None and spent.work > 0:
                self._complete(spent, completion)
        if not self.samples or now >= self.samples[-1].at + SAMPLE_SECONDS:
            slots = state.capacity(ANY_KIND)
            self.samples.append(PoolSample(now, slots, pool_shares(state)))

    def _complete(self, spent: _Spent, completion: float) -> None:
        alone = max(spent.longest, spent.work / self._slots_most)
        cost = self.objective.cost(spent.job, Size(spent.work, alone))
        least = cost.at(spent.job.arrival + alone)
        # Without the initial 0 before the first one: a maximum, as of lateness, may be below 0.
        before = ([self.value], [self.lower_bound]) if self.completed else ([], [])
        self.value = self.objective.total([*before[0], cost.at(completion)])
        self.lower_bound = self.objective.total([*before[1], least])
        self.completed += 1


def pool_shares(state: State) -> dict[str, PoolShare]:
    """The shares of the first `MAX_POOLS` pools now, those of the configuration first."""
    now = {pool.name: pool for pool in state.shares(ANY_KIND)}
    names = dict.fromkeys([*state.pools, *now])
    return {name: _share(state, name, now.get(name)) for name in islice(names, MAX_POOLS)}


def _share(state: State, name: str, pool: PoolState | None) -> PoolShare:
    if pool is None:  # The pool has had no computation.
        return PoolShare(state.pools[name].slots_min.get(ANY_KIND, 0.0), 0.0, 0)
    return PoolShare(pool.min_share, pool.share, pool.held)
