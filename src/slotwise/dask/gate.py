"""The gate: a plugin of Dask's scheduler that controls which tasks may run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from slotwise.backends.agents.lease import is_lease
from slotwise.core.cluster import ANY_KIND
from slotwise.core.decisions import GiveUp, Launch, Preempt
from slotwise.core.errors import InputError
from slotwise.core.events import HostResized, JobsClosed, PoolsChanged
from slotwise.core.log import LogFile
from slotwise.core.loop import Record, all_of, initial_state, turn
from slotwise.core.objective import Objective
from slotwise.dask.checking import check
from slotwise.dask.computations import Computations, End, Key, KeyInfo, Standing, Submitter
from slotwise.dask.forecasts import GateLoop
from slotwise.dask.holding import Needed, Places, Restricted, TaskHolds
from slotwise.dask.measuring import TOPIC
from slotwise.dask.memory import MemoryGroup, TaskMemory, send_meter
from slotwise.dask.options import HOST, GateOptions, due_after, header_of, submitter_of
from slotwise.dask.serving import Demanded, fails_open, serve
from slotwise.dask.status import MAX_SCANNED, GateHistory, GateStatus, GateView, status_of
from slotwise.policy.scheduler import make_scheduler

if TYPE_CHECKING:
    from slotwise.sessions.forecasting import Forecasts

CHECK_SECONDS = 1.0
"""The interval at which the watchdog compares held tasks with free threads."""

UNKNOWN_SECONDS = 0.5
"""The assumed length of a task before any was measured, as in Dask."""

NESTED_SECONDS = 0.1
"""How long the graph of a task is held while that task occupies its thread."""

POOLS_MORE = 100
"""The number of pools without jobs that are kept, in addition to as many as have jobs."""

STUCK_SECONDS = 10.0
"""The time with free threads and held tasks that no limit explains, until the gate opens."""


class Gate(SchedulerPlugin):
    """Holds each runnable task until slotwise launches it.

    Tasks of actors and leases of agents are not held, nor are tasks of computations that a task
    submits while it occupies a thread, because it may wait for them. After an error, all tasks
    run as without the gate.
    """

    name = "slotwise"
    idempotent = False

    def __init__(self, options: GateOptions) -> None:
        self.options = options
        self.is_open = True  # Until `start`.

    async def start(self, scheduler: Any) -> None:
        """Start the gate; called by Dask when it registers the plugin or starts."""
        self._scheduler = scheduler
        self._stack = ExitStack()
        self._holding = TaskHolds(scheduler)
        self._restricted = Restricted()
        self._places = Places({})
        self._memory: TaskMemory | None = None
        if self.options.memory:
            has_limits = any(pool.resources_max for pool in self.options.pools)
            limits_of = self._memory_limits if has_limits else None
            self._memory = TaskMemory(scheduler, self._job_of, limits_of)
        self._is_held: Callable[[str], bool] = lambda job: False
        earlier = scheduler.plugins.get(self.name)
        replaces = isinstance(earlier, Gate) and earlier is not self
        if replaces and earlier.options.log == self.options.log:
            earlier.open()  # Closes its log, which this gate writes.
        self._begin()
        if replaces:
            scheduler.plugins.pop(self.name).open()  # Dask would warn of a second plugin.
        self._holding.on_secession(self._seceded)
        self._holding.on_worker_status(self._workers_changed)
        self._holding.note_submitters()
        self.is_open = False
        scheduler.loop.call_later(CHECK_SECONDS, self._watch)
        serve(scheduler)
        if self._memory is not None:
            await send_meter(scheduler)

    def _begin(self) -> None:
        options, header = self.options, header_of(self.options)
        self._began = time.monotonic()
        self._state = initial_state(header)
        self._slotwise = make_scheduler(
            **header.scheduler, objective=Objective(**header.objective)
        )
        self.history = GateHistory(options.objective)
        self._records: list[Record] = [self.history]
        if options.log is not None:
            self._records.append(self._stack.enter_context(LogFile(options.log, header)))
        self._record = all_of(self._records)
        self._forecasts: Forecasts | None = None
        self._computations = Computations(
            self._describe, self._standing, due_after(options.objective)
        )
        self._needed = Needed(self._computations, self._holding)
        self._slots = 0
        self._pools_most = len(options.pools) + POOLS_MORE
        self._launches: list[Launch] = []
        self._is_awake = False
        self._wakes_at: float | None = None
        self._mean_seconds = UNKNOWN_SECONDS  # of tasks; recent ones count more
        self._stuck_since: float | None = None
        self._begun_before = 0  # launches at the last check of the watchdog

    # The hooks of Dask.

    @fails_open
    def update_graph(
        self, scheduler: Any, *, client: str, tasks: Sequence[Key], annotations: Any, **_: Any
    ) -> None:
        """Record a graph that a client has sent; its tasks have not begun to wait."""
        if all(map(is_lease, tasks)):
            return
        parent = self._holding.submitting_task
        if parent is not None:
            submitter = self._nest(parent, tasks)
        else:
            given = annotations.get("slotwise") or {}
            annotation = next(iter(given.values()), None) or {}
            priority = self._holding.wished_priority(tasks)
            address = self._holding.address_of(client)
            submitter = submitter_of(self.options, client, annotation, address, priority)
        if submitter is not None:
            self._computations.graph(submitter, tasks)
            self._wake()

    @fails_open
    def transition(self, key: Key, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Handle the transition of a task to another state."""
        computations = self._computations
        if start == "processing":
            self._end(key, finish, kwargs)
        if finish == "waiting":
            if self._holding.hold(key):
                computations.wanted(key)
        elif finish == "forgotten":
            self._holding.forget(key)
            self._restricted.forget(key)
            computations.forgotten(key)
        else:
            computations.changed(key)
        is_freed = start == "memory" and self._waits_for_memory
        if is_freed or not computations.is_settled(key, start, finish):
            self._wake()

    @fails_open
    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Handle a new worker."""
        self._workers_changed()

    @fails_open
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Handle a worker that has left."""
        self._workers_changed()

    @fails_open
    def log_event(self, topic: str, msg: Any) -> None:
        """Learn from the report of a worker about the memory of a task."""
        if topic == TOPIC and self._memory is not None and isinstance(msg, dict):
            self._memory.learn(msg)
            if self._waits_for_memory:
                self._wake()

    async def close(self) -> None:
        """Finish the log and open the gate; called by Dask when the scheduler closes."""
        self._end_log()
        self.open()

    @fails_open
    def _end_log(self) -> None:
        """Log that no more jobs arrive, if all are over; otherwise leave the log incomplete."""
        events = self._computations.events(self.now, self._slots)
        if not self._computations.alive:
            events.append(JobsClosed(self.now))
            turn(self._slotwise, self, self._state, self._record, events)

    def open(self) -> None:
        """Let all tasks run from now on, as without the gate."""
        if not self.is_open:
            self.is_open = True
            self._holding.release_all(f"slotwise-open-{time.time()}")
            if self._forecasts is not None:  # Its thread may wait for this one.
                threading.Thread(target=self._forecasts.close, daemon=True).start()
            with suppress(InputError):  # A failure to write the log was reported earlier.
                self._stack.close()

    def validate(self) -> None:
        """Assert that the tables agree with Dask; after each turn if Dask has `validate`."""
        check(self._scheduler, self._holding, self._computations, self._state, self._restricted)

    # A turn.

    def _end(self, key: Key, finish: str, details: Mapping[str, Any]) -> None:
        """Record the end of a task that has left its worker."""
        seconds = None
        task = self._computations.tasks.get(key)
        if finish == "memory" and task is not None:
            computed = sum(
                one["stop"] - one["start"]
                for one in details.get("startstops") or ()
                if one["action"] == "compute"
            )
            # The clock of a worker may be changed while a task runs.
            seconds = min(max(0.0, computed), self.now - task.began)
            self._mean_seconds += 0.1 * (seconds - self._mean_seconds)
        reason = str(details.get("exception_text") or "it failed") if finish == "erred" else ""
        self._computations.ended(End(key, seconds, reason))

    def _wake(self) -> None:
        """Schedule a turn after the current callback of Dask."""
        if not self._is_awake:
            self._is_awake = True
            self._scheduler.loop.add_callback(self._turn)

    @fails_open
    def _turn(self) -> None:
        self._is_awake = False
        if self._was_removed():
            return  # Dask has not called its hooks since then.
        room = self._holding.room(self.options.ahead, self._mean_seconds)
        self._is_held = self._held_jobs()
        self._places = self._places_of(room)
        for key in self._restricted.changed(self._places, self._is_held):
            self._computations.changed(key)
        slots = self._computations.running + sum(room.values())
        events = self._computations.events(self.now, slots)
        if len(self._state.pools) > self._pools_most:
            events.append(self._forget_pools())
        if slots != self._slots:
            self._slots = slots
            events.insert(0, HostResized(self.now, HOST, {ANY_KIND: slots}))
        turn(self._slotwise, self, self._state, self._record, events)
        self.history.sample(self._state, self.now)
        launches, self._launches = self._launches, []
        self._release(launches)
        if self._restricted.changed(self._places, self._held_jobs()):
            self._wake()  # A pool has reached its max share, or fallen below it.
        self._set_alarm()
        if self._scheduler.validate:
            self.validate()

    def _places_of(self, room: dict[str, int]) -> Places:
        if self._memory is None:
            return Places(room)
        parked = self._restricted.waiting(self._is_held)
        return self._memory.places(room, _sized(parked), self.now)

    def _job_of(self, key: Key) -> str:
        task = self._computations.tasks.get(key)
        return "" if task is None else task.phase.job

    def _memory_limits(self, job: str) -> dict[str, int]:
        """The pools of a job that limit memory, with the most that they may hold."""
        phases = self._state.phases_of(job) if job in self._computations.alive else ()
        limits = [limit for phase in phases[:1] for limit in phase.resource_limits]
        return {limit.pool: limit.most for limit in limits}

    @property
    def _waits_for_memory(self) -> bool:
        """Whether tasks wait that may fit once results are freed or more is known."""
        return self._memory is not None and len(self._restricted) > 0

    def _group(self, key: Key) -> frozenset[str] | MemoryGroup | None:
        """The group of a held task: the workers that it may use, and what it needs of memory.

        None if it may use all workers and needs no memory, or if it is not held.
        """
        if key not in self._holding:
            return None
        workers = self._holding.allowed(key)
        if self._memory is None:
            return workers
        return MemoryGroup(workers, self._memory.need(key), self._job_of(key))

    def _release(self, launches: Sequence[Launch]) -> None:
        """Run tasks on workers with room, first those that may use the fewest workers.

        A task waits again if it may use no worker with room.
        """
        keys = [self._computations.launched(launch, self.now) for launch in launches]
        groups = {key: self._group(key) for key in keys}
        allowed = {key: _workers_of(group) for key, group in groups.items()}
        for key in sorted(keys, key=lambda one: inf if (w := allowed[one]) is None else len(w)):
            places = self._places.of(groups[key])
            if places and self._holding.release(key, places, f"slotwise-{time.time()}"):
                self._restricted.forget(key)
                worker = self._scheduler.tasks[key].processing_on
                if worker is not None:
                    self._places.take(worker.address, groups[key])
            else:
                self._computations.ended(End(key, None))
                self._wake()

    def _describe(self, key: Key) -> KeyInfo:
        """The properties of a key; for an unknown prefix, the mean length of recent tasks."""
        info = self._holding.describe(key)
        return info if info.seconds is not None else info._replace(seconds=self._mean_seconds)

    def _standing(self, key: Key) -> Standing:
        """The status of a key; it is blocked while no worker that it may use has room."""
        standing = self._holding.standing(key)
        group = self._group(key) if standing == "runnable" else None
        if group is None:
            self._restricted.forget(key)
            return standing
        task = self._computations.tasks.get(key)
        job = "" if task is None else task.phase.job
        if not self._restricted.offer(key, group, self._places, job, self._is_held):
            return "blocked"
        return standing if _workers_of(group) is None else "bound"

    def _held_jobs(self) -> Callable[[str], bool]:
        """A predicate: the pools of a job let none of its tasks begin now."""
        outside, phases_of = frozenset(self._state.awaiting_admission), self._state.phases_of

        @cache
        def is_held(job: str) -> bool:
            return job in outside or any(phase.is_at_limit for phase in phases_of(job)[:1])

        return is_held

    @fails_open
    def _workers_changed(self) -> None:
        """Recheck all tasks that may not use every worker."""
        self._recheck(self._restricted.take_all())

    def _recheck(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._computations.changed(key)
        self._wake()

    def _forget_pools(self) -> PoolsChanged:
        """Forget the pools that are neither configured nor have jobs, to bound their number."""
        alive = {one.submitter.pool for one in self._computations.alive.values()}
        self._pools_most = 2 * (len(self.options.pools) + len(alive)) + POOLS_MORE
        return PoolsChanged(self.now, tuple(self.options.pools))

    @fails_open
    def _seceded(self, key: Key) -> None:
        """Record a task that has seceded: without a thread, it has ended for slotwise."""
        task = self._computations.tasks.get(key)
        if task is not None:
            self._computations.ended(End(key, self.now - task.began))
            self._wake()

    def _nest(self, parent: Key, keys: Sequence[Key]) -> Submitter | None:
        """The submitter of a graph that a running task has sent; None if it is not held.

        The task may wait for the results. If it occupies a thread meanwhile, the graph must not
        wait for the slot of its own pool.
        """
        task = self._computations.tasks.get(parent)
        if task is None:
            self._exempt(keys)
            return None
        self._scheduler.loop.call_later(NESTED_SECONDS, self._free_nested, parent, keys)
        return self._computations.alive[task.phase.job].submitter

    @fails_open
    def _free_nested(self, parent: Key, keys: Sequence[Key]) -> None:
        """Exempt a nested graph if its task occupies a thread, or if it awaits admission."""
        task, outside = self._computations.tasks.get(parent), self._state.awaiting_admission
        is_busy = task is not None and task.status == "running"
        if is_busy or self._computations.jobs_of(keys).intersection(outside):
            self._exempt(keys)

    def _exempt(self, keys: Sequence[Key]) -> None:
        """Hold these tasks no longer."""
        self._holding.exempt(keys, f"slotwise-nested-{time.time()}")
        self._recheck(keys)

    def _set_alarm(self) -> None:
        """Schedule a turn at the next wake-up that the scheduler needs."""
        at = self._state.next_wakeup()
        if at is not None and at != self._wakes_at:
            self._wakes_at = at
            self._scheduler.loop.call_later(max(0.0, at - self.now), self._wake)

    @fails_open
    def _watch(self) -> None:
        """Open the gate if it was removed, or if no limit explains that tasks are held."""
        if self._was_removed():
            return
        self._scheduler.loop.call_later(CHECK_SECONDS, self._watch)
        self._recheck(self._restricted.outdated(self._group))
        self._exempt(self._needed.keys(self._state.awaiting_admission))
        if self._waits_for_memory:
            self._wake()  # What workers store, and who has waited long.
        if not self._is_stuck():
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = self.now
        elif self.now - self._stuck_since > STUCK_SECONDS:
            raise RuntimeError("tasks are held although threads are free")

    def _was_removed(self) -> bool:
        """Whether the plugin was removed, for which Dask has no hook; if so, open the gate."""
        if self._scheduler.plugins.get(self.name) is self:
            return False
        self._end_log()
        self.open()
        return True

    def _is_stuck(self) -> bool:
        """Whether threads are free for tasks that no limit holds, or that are overlooked.

        O(held tasks) while threads are free and no task begins.
        """
        if not self._places.room:
            return False
        if self._state.free(ANY_KIND) and any(
            phase.may_launch for phase in self._state.backlogged(ANY_KIND)
        ):
            return True
        begun, self._begun_before = self._begun_before, self._computations.launches
        return begun == self._computations.launches and any(
            self._computations.overlooks(key)
            for key in self._holding
            if self._holding.standing(key) == "runnable"
        )

    @property
    def forecasts(self) -> Forecasts:
        """When computations end, on the clock of `now`; begun by the first page that asks."""
        if self._forecasts is None:
            from slotwise.sessions.forecasting import Forecasts

            loop = self._scheduler.loop.asyncio_loop
            about = self._state, self.options, self._records
            asked = GateLoop(loop, *about, lambda: self.is_open, lambda: self.now)
            self._forecasts = Forecasts(asked)
        return self._forecasts

    def status(self, *, forecasts: bool = False) -> GateStatus:
        """The present status; `forecasts` begins them, and later statuses have them."""
        etas = self.forecasts.etas() if forecasts or self._forecasts is not None else {}
        held, state = len(self._holding), self._state
        deferred = self._computations.deferred_of
        memory = self._memory
        waiting = [] if memory is None else self._restricted.waiting(self._held_jobs())
        view = GateView(
            self.options,
            state,
            self.history,
            self.now,
            self.is_open,
            held,
            deferred,
            [] if memory is None else list(memory.workers().values()),
            {} if memory is None else {g.job: memory.why(g) for g in _sized(waiting)},
            etas,
        )
        parked = islice(self._restricted.parked(), MAX_SCANNED)
        return status_of(view, self._computations.jobs_of(parked))

    def demanded(self, waiting: Any) -> Demanded:
        """The tasks among those that wait in Dask for which more workers could be useful."""
        return Demanded(waiting, self._state, self._computations, self._restricted.parked())

    # The backend of the loop.

    @property
    def now(self) -> float:
        """Seconds since the gate began."""
        return time.monotonic() - self._began

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Run a task after the turn. Tasks are never stopped, since Dask cannot do that."""
        if isinstance(decision, Launch):
            self._launches.append(decision)


def _sized(groups: Iterable[object]) -> list[MemoryGroup]:
    """The groups with a need of memory, the others left out."""
    return [group for group in groups if isinstance(group, MemoryGroup)]


def _workers_of(group: frozenset[str] | MemoryGroup | None) -> frozenset[str] | None:
    """The workers that the tasks of a group may use; None for all of them."""
    return group.workers if isinstance(group, MemoryGroup) else group
