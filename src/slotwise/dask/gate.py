"""The gate: a plugin of Dask's scheduler that says how many tasks of which computation run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

from distributed.diagnostics.plugin import SchedulerPlugin

from slotwise.dask.computations import (
    Computations,
    End,
    Key,
    KeyInfo,
    Standing,
    Submitter,
)
from slotwise.dask.header import HOST, header_of
from slotwise.dask.history import GateHistory
from slotwise.dask.holding import HeldTasks
from slotwise.dask.options import GateOptions, client_name, due_after
from slotwise.dask.parked import Parked
from slotwise.dask.serving import serve
from slotwise.dask.status import LOOK_MOST, GateStatus, GateView, status_of
from slotwise.model.cluster import ANY_KIND
from slotwise.model.decision import Decision, GiveUp, Launch, Preempt
from slotwise.model.errors import InputError
from slotwise.model.event import Event, HostResized
from slotwise.objective.objective import Objective
from slotwise.record.log_file import LogFile
from slotwise.runtime.initial import initial_state
from slotwise.runtime.loop import turn
from slotwise.scheduler import make_scheduler

logger = logging.getLogger("slotwise.dask")

CHECK_SECONDS = 1.0
"""How often the watchdog compares what is held with what is free."""

UNKNOWN_SECONDS = 0.5
"""The length of a task before any was measured, as Dask assumes it."""

NESTED_SECONDS = 0.1
"""How long the graph of a task is held while that task occupies its thread."""

STUCK_SECONDS = 10.0
"""After this time with free threads and held tasks that no limit explains, the gate opens."""

M = TypeVar("M", bound=Callable[..., None])


def fails_open(method: M) -> M:
    """An error in a method opens the gate: Dask goes on as without it."""

    @wraps(method)
    def guarded(self: Gate, *args: Any, **kwargs: Any) -> None:
        if self.is_open:
            return
        try:
            method(self, *args, **kwargs)
        except Exception:
            logger.exception("the gate has failed; all tasks run as without it")
            self.open()

    return guarded  # type: ignore[return-value]


class Gate(SchedulerPlugin):
    """Holds each runnable task until slotwise lets it run.

    Tasks of actors are not held, nor those of computations that a task submits while it
    occupies a thread: it may wait for them. After an error all tasks run as without it.
    """

    name = "slotwise"
    idempotent = False

    def __init__(self, options: GateOptions) -> None:
        self.options = options
        self.is_open = True  # Until `start`.

    async def start(self, scheduler: Any) -> None:
        """Begin; called by Dask when the plugin is registered or the scheduler starts."""
        self._scheduler = scheduler
        self._stack = ExitStack()
        self._holding = HeldTasks(scheduler)
        self._parked = Parked()
        self._room_now: dict[str, int] = {}
        earlier = scheduler.plugins.get(self.name)
        if isinstance(earlier, Gate) and earlier.options.log == self.options.log:
            earlier.open()  # It must close its log.
        self._begin()
        if isinstance(earlier, Gate):
            earlier.open()
        self._holding.tell_of_secession(self._seceded)
        self._holding.tell_of_status(self._workers_changed)
        self._holding.note_submitters()
        self.is_open = False
        self._loop = scheduler.loop
        self._loop.call_later(CHECK_SECONDS, self._watch)
        serve(scheduler)

    def _begin(self) -> None:
        options, header = self.options, header_of(self.options)
        self._began = time.monotonic()
        self._state = initial_state(header)
        self._slotwise = make_scheduler(
            **header.scheduler, objective=Objective(**header.objective)
        )
        self.history = GateHistory(options.objective)
        self._records: list[Callable[..., None]] = [self.history]
        if options.log is not None:
            self._records.append(self._stack.enter_context(LogFile(options.log, header)))
        self._computations = Computations(
            self._describe, self._standing, due_after(options.objective)
        )
        self._slots = 0
        self._launches: list[Launch] = []
        self._is_awake = False
        self._wakes_at: float | None = None
        self._mean_seconds = UNKNOWN_SECONDS  # of tasks; recent ones count more
        self._stuck_since: float | None = None

    # The hooks of Dask.

    @fails_open
    def update_graph(
        self,
        scheduler: Any,
        *,
        client: str,
        keys: Any,
        tasks: Sequence[Key],
        annotations: Any,
        **kwargs: Any,
    ) -> None:
        """A client sent a graph; its tasks have not begun to wait."""
        parent = self._holding.submitting_task
        if parent is not None:
            submitter = self._nest(parent, tasks)
        else:
            given = annotations.get("slotwise") or {}
            submitter = self._submitter(client, next(iter(given.values()), None) or {})
            wished = self._holding.wished_priority(tasks)
            if wished and submitter.priority == "normal":
                level = "very_high" if wished > 0 else "very_low"
                submitter = replace(submitter, priority=level)
        if submitter is not None:
            self._computations.graph(submitter, tasks)
            self._wake()

    @fails_open
    def transition(self, key: Key, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task has changed its state."""
        computations = self._computations
        if start == "processing":
            self._end(key, finish, kwargs)
        if finish == "waiting":
            if self._holding.hold(key):
                computations.wanted(key)
        elif finish == "forgotten":
            self._holding.forget(key)
            computations.forgotten(key)
        else:
            computations.changed(key)
        self._wake()

    @fails_open
    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker has come."""
        self._workers_changed()

    @fails_open
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """A worker has left."""
        self._workers_changed()

    async def close(self) -> None:
        """The scheduler closes."""
        self.open()

    def open(self) -> None:
        """Let everything run from now on, as without the gate."""
        if not self.is_open:
            self.is_open = True
            self._holding.release_all(f"slotwise-open-{time.time()}")
            self._stack.close()

    # A turn.

    def _end(self, key: Key, finish: str, details: Mapping[str, Any]) -> None:
        """A task has left its worker."""
        seconds = None
        if finish == "memory":
            seconds = sum(
                one["stop"] - one["start"]
                for one in details.get("startstops") or ()
                if one["action"] == "compute"
            )
            self._mean_seconds += 0.1 * (seconds - self._mean_seconds)
        reason = ""
        if finish == "erred":
            reason = str(details.get("exception_text") or "it failed")
        self._computations.ended(End(key, seconds, reason))

    def _wake(self) -> None:
        """Take a turn when Dask has done what it is doing."""
        if not self._is_awake:
            self._is_awake = True
            self._loop.add_callback(self._turn)

    @fails_open
    def _turn(self) -> None:
        self._is_awake = False
        room = self._holding.room(self.options.ahead, self._mean_seconds)
        self._room_now = room
        for key in self._parked.take_fitting(room):
            self._computations.changed(key)
        events = self._computations.events(self.now)
        slots = self._computations.running + sum(room.values())
        if slots != self._slots:
            self._slots = slots
            events.insert(0, HostResized(self.now, HOST, {ANY_KIND: slots}))
        turn(self._slotwise, self, self._state, self._record, events)
        self.history.look(self._state, self.now)
        launches, self._launches = self._launches, []
        for launch in launches:
            self._release(launch, room)
        self._set_alarm()

    def _record(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        for record in self._records:
            record(now, events, decisions)

    def _allowed(self, key: Key) -> frozenset[str] | None:
        """The workers that a task may use; None: all of them, or the task is not held."""
        return self._holding.allowed(key) if key in self._holding else None

    def _release(self, launch: Launch, room: dict[str, int]) -> None:
        """Let a task run on a worker with room; it waits again if it may use none of these."""
        key = self._computations.launched(launch, self.now)
        allowed = self._holding.allowed(key)
        places = set(room) if allowed is None else room.keys() & allowed
        if places and self._holding.release(key, places, f"slotwise-{time.time()}"):
            worker = self._scheduler.tasks[key].processing_on
            address = worker and worker.address
            if address in room:
                room[address] -= 1
                if not room[address]:
                    del room[address]
        else:
            self._computations.ended(End(key, None))
            self._wake()

    def _describe(self, key: Key) -> KeyInfo:
        """What is known of a key. One of an unknown prefix is like the tasks of late."""
        info = self._holding.describe(key)
        return info if info.seconds is not None else info._replace(seconds=self._mean_seconds)

    def _standing(self, key: Key) -> Standing:
        """What is known of a key; it is blocked while no worker that it may use has room."""
        standing = self._holding.standing(key)
        if standing == "runnable":
            allowed = self._allowed(key)
            if allowed is not None and not allowed & self._room_now.keys():
                self._parked.add(key, allowed)
                return "blocked"
        return standing

    @fails_open
    def _workers_changed(self) -> None:
        """Look again at all tasks that may not use every worker."""
        self._look_again(self._parked.take_all())

    def _look_again(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._computations.changed(key)
        self._wake()

    @fails_open
    def _seceded(self, key: Key) -> None:
        """A task has seceded: it does not occupy a thread, so it has ended for slotwise."""
        task = self._computations.tasks.get(key)
        if task is not None:
            self._computations.ended(End(key, self.now - task.began))
            self._wake()

    def _nest(self, parent: Key, keys: Sequence[Key]) -> Submitter | None:
        """Who has sent a graph of a task that runs; None if the graph is not held.

        The task may wait for the results. If it occupies a thread meanwhile, the graph must not
        wait for the slot of its own pool.
        """
        task = self._computations.tasks.get(parent)
        if task is None:
            self._holding.exempt(keys, f"slotwise-nested-{time.time()}")
            return None
        if task.status == "running":
            self._loop.call_later(NESTED_SECONDS, self._free_nested, parent, keys)
        return self._computations.alive[task.phase.job].submitter

    @fails_open
    def _free_nested(self, parent: Key, keys: Sequence[Key]) -> None:
        """Let the graph of a task run that still occupies its thread."""
        task = self._computations.tasks.get(parent)
        if task is not None and task.status == "running":
            self._holding.exempt(keys, f"slotwise-nested-{time.time()}")
            for key in keys:
                self._computations.changed(key)
            self._wake()

    def _set_alarm(self) -> None:
        """Take a turn at the instant at which the scheduler must be asked again."""
        at = self._state.next_wakeup()
        if at is not None and at != self._wakes_at:
            self._wakes_at = at
            self._loop.call_later(max(0.0, at - self.now), self._wake)

    @fails_open
    def _watch(self) -> None:
        """Open the gate if it was removed, or if nothing explains that tasks are held.

        Dask does not tell a plugin that it is removed.
        """
        if self._scheduler.plugins.get(self.name) is not self:
            self.open()
            return
        self._loop.call_later(CHECK_SECONDS, self._watch)
        self._look_again(self._parked.take_outdated(self._allowed))
        if not self._is_stuck():
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = self.now
        elif self.now - self._stuck_since > STUCK_SECONDS:
            raise RuntimeError("tasks are held although threads are free")

    def _is_stuck(self) -> bool:
        """Whether threads are free for tasks that no limit holds, or that are not known.

        O(tasks that are held) while threads are free.
        """
        if not self._room_now:
            return False
        if self._state.free(ANY_KIND) and any(
            phase.may_launch for phase in self._state.backlogged(ANY_KIND)
        ):
            return True
        return any(
            not self._computations.knows(key)
            for key in self._holding
            if self._holding.standing(key) == "runnable"
        )

    def _submitter(self, client: str, annotation: Any) -> Submitter:
        """Who sends a graph, for its job. A wrong annotation counts as none, with a warning."""
        address = self._address(client)
        try:
            return self.options.submitter(client, annotation, address)
        except InputError as error:
            logger.warning("client %s: %s; it is ignored", client, error)
        try:
            return self.options.submitter(client, {}, address)
        except InputError:
            return Submitter(client_name(client))

    def _address(self, client: str) -> str:
        comm = self._scheduler.client_comms.get(client)
        return str(getattr(getattr(comm, "comm", None), "peer_address", ""))

    def status(self) -> GateStatus:
        """What it does now."""
        parked = iter(self._parked)
        held = len(self._holding)
        return status_of(
            GateView(self.options, self._state, self.history, self.now, self.is_open, held),
            self._computations.jobs_of(islice(parked, LOOK_MOST)),
        )

    # The backend of the loop.

    @property
    def now(self) -> float:
        """Seconds since the gate began."""
        return time.monotonic() - self._began

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Let a task run after the turn. Tasks are never stopped: Dask cannot do that."""
        if isinstance(decision, Launch):
            self._launches.append(decision)
