"""Holds and releases tasks in Dask's scheduler: all code that uses internals of Dask.

A task is held by a resource that no worker has. Once it is runnable, Dask finds no worker for
it and puts it into the state "no-worker". To release it, the resource is removed and the
transition to "processing" is requested; Dask chooses among the workers that have room.

The parts of `distributed` that are used beyond the documented hooks of `SchedulerPlugin`,
tested with versions 2024.5.0 and 2026.8.0:

Scheduler.tasks, .running, .plugins                      documented attributes of the scheduler
TaskState.state, .prefix, .actor, .processing_on, .waiting_on
                                                         documented attributes of a task
TaskState.priority, .resource_restrictions, .worker_restrictions, .host_restrictions,
.loose_restrictions                                      documented; these are written
WorkerState.nthreads, .processing, .long_running, .address   documented attributes of a worker
Scheduler.valid_workers(ts)                              a method without an underscore
Scheduler.transitions(recommendations, stimulus_id)      a method without an underscore
Scheduler.stream_handlers["update-graph"], ["long-running"], ["worker-status-change"]
                                                         wrapped: Dask's own extensions add
                                                         handlers to this dictionary
Scheduler.client_comms                                   for the address of a client

For the memory of workers (`memory.py`, `measuring.py`), if the gate limits it:

Scheduler.workers, WorkerState.memory_limit, .nbytes, .metrics, .name
TaskState.annotations, .suspicious                       documented attributes
Scheduler.register_worker_plugin                         a method without an underscore
Worker.log_event, SchedulerPlugin.log_event              documented, for the reports of workers

For adaptive clusters (`serving.py`), which otherwise grow for all tasks that are held:

Scheduler.adaptive_target, .handlers["adaptive_target"]  wrapped
Scheduler.unrunnable                                     the tasks in the state "no-worker"

To refuse wrong options (`preload.py`) of a scheduler in the process of a user:

Scheduler.close                                          wrapped once

To show the gate (`serving.py`, `dashboard.py`), without which it works:

Scheduler.handlers                                       Dask's extensions add handlers to it
Scheduler.log_event                                      a documented method
Scheduler.http_application                               for a page and JSON by HTTP
Scheduler.extensions, .address                           an extension has `teardown`
distributed.dashboard.core.BokehApplication              a function without an underscore
distributed.dashboard.scheduler.template_variables       the same; entries are added to its menu
distributed.dashboard.components.scheduler.env, .BOKEH_THEME   the style of Dask's pages
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from itertools import chain, islice
from math import ceil, inf
from typing import Any, NamedTuple

from slotwise.backends.agents.lease import is_lease
from slotwise.core.errors import as_name
from slotwise.dask.computations import Computations, Key, KeyInfo, Standing

_SUBMITTING: ContextVar[Key | None] = ContextVar("slotwise_submitting", default=None)

HELD = "slotwise-held"
"""A resource that no worker has."""

STANDINGS: dict[str, Standing] = {
    "waiting": "blocked",
    "no-worker": "runnable",
    "queued": "running",
    "processing": "running",
    "memory": "done",
}
"""The status of a key for each state in Dask; in other states it need not be computed."""


class _Wish(NamedTuple):
    """The resources that a task needs, and whether its restrictions are loose."""

    resources: dict[str, float] | None
    is_loose: bool


class TaskHolds:
    """The tasks of a Dask scheduler that are held."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._held: dict[Key, _Wish] = {}  # the restrictions by the user of each held task
        self.exempted: set[Key] = set()  # keys in Dask that are never held
        self._released = 0  # the number of releases
        self._handlers: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def hold(self, key: Key) -> bool:
        """Hold a task that begins to wait; False for a task that is never held.

        distributed 2026.8 gives no priority to a large argument of `map`, and fails to run it.
        """
        task = self._scheduler.tasks[key]
        if task.actor or not task.priority or key in self.exempted or is_lease(key):
            return False
        if key not in self._held:
            wish = self._held[key] = _Wish(task.resource_restrictions, task.loose_restrictions)
            task.resource_restrictions = {**(wish.resources or {}), HELD: 1}
            task.loose_restrictions = False  # Otherwise Dask would ignore the resource.
        return True

    def exempt(self, keys: Iterable[Key], stimulus_id: str) -> None:
        """Release these tasks, and do not hold them again until Dask forgets them."""
        known = [key for key in keys if key in self._scheduler.tasks]
        self.exempted.update(known)
        self._let_run(
            {key: self._held.pop(key) for key in known if key in self._held}, stimulus_id
        )

    def forget(self, key: Key) -> None:
        """Forget a task that Dask has forgotten."""
        self._held.pop(key, None)
        self.exempted.discard(key)

    def standing(self, key: Key) -> Standing:
        """The status of a key in Dask."""
        task = self._scheduler.tasks.get(key)
        if task is None or key in self.exempted:
            return "unneeded"
        return STANDINGS.get(task.state, "unneeded")

    def waits_for(self, key: Key) -> list[Key]:
        """The dependencies of a task that have no result."""
        task = self._scheduler.tasks.get(key)
        return [other.key for other in task.waiting_on or ()] if task else []

    def describe(self, key: Key) -> KeyInfo:
        """The prefix, learned duration and priority of a key."""
        task = self._scheduler.tasks[key]
        seconds = task.prefix.duration_average
        prefix = as_name(task.prefix.name)
        return KeyInfo(prefix, seconds if seconds >= 0 else None, task.priority)

    def address_of(self, client: str) -> str:
        """The address of a client; empty if it is unknown."""
        comm = self._scheduler.client_comms.get(client)
        return str(getattr(getattr(comm, "comm", None), "peer_address", ""))

    def wished_priority(self, keys: Iterable[Key]) -> float:
        """The highest `priority` that a user gave to one of these keys, 0 by default."""
        tasks = [self._scheduler.tasks.get(key) for key in keys]
        return -min((task.priority[0] for task in tasks if task and task.priority), default=0)

    def allowed(self, key: Key) -> frozenset[str] | None:
        """The addresses of the workers on which a held task may run; None for all of them."""
        task = self._scheduler.tasks[key]
        wish = self._held[key]
        if not (wish.resources or task.worker_restrictions or task.host_restrictions):
            return None
        held, task.resource_restrictions = task.resource_restrictions, wish.resources
        try:
            workers = self._scheduler.valid_workers(task)
        finally:
            task.resource_restrictions = held
        if workers is None or (not workers and wish.is_loose):
            return None
        return frozenset(worker.address for worker in workers)

    def release(self, key: Key, addresses: Collection[str], stimulus_id: str) -> bool:
        """Run a runnable task on one of these workers; return whether Dask has found one.

        Tasks are sent with priorities by which a worker begins them in the order of their
        release. With the priorities of Dask, a task that waits at a worker would be overtaken
        by all tasks of an earlier graph that are released later. Tasks that run without the
        gate, for which others may wait, begin first.
        """
        task = self._scheduler.tasks[key]
        before, wish = (task.worker_restrictions, task.host_restrictions), self._held.pop(key)
        priority, self._released = task.priority, self._released + 1
        task.resource_restrictions = wish.resources
        task.worker_restrictions, task.host_restrictions = set(addresses), None
        task.priority = (0, inf, self._released)
        try:
            self._scheduler.transitions({key: "processing"}, stimulus_id=stimulus_id)
        finally:
            task.worker_restrictions, task.host_restrictions = before
            task.priority = priority
            task.loose_restrictions = wish.is_loose
        if task.state == "no-worker":
            self.hold(key)
            return False
        return True

    def release_all(self, stimulus_id: str) -> None:
        """Release all tasks, and remove the handlers from Dask."""
        for operation, handler in self._handlers.items():
            self._scheduler.stream_handlers[operation] = handler
        self._handlers.clear()
        held, self._held = self._held, {}
        self._let_run(held, stimulus_id)

    def _let_run(self, held: Mapping[Key, _Wish], stimulus_id: str) -> None:
        """Remove the resource from these tasks, and run those that are runnable."""
        runnable = {}
        for key, wish in held.items():
            task = self._scheduler.tasks.get(key)
            if task is not None:
                task.resource_restrictions = wish.resources
                task.loose_restrictions = wish.is_loose
                if task.state == "no-worker":
                    runnable[key] = "processing"
        # By priority; Dask takes the last entry of the dictionary first.
        order = sorted(runnable, key=lambda key: self._scheduler.tasks[key].priority)
        self._scheduler.transitions(
            dict.fromkeys(reversed(order), "processing"), stimulus_id=stimulus_id
        )

    def room(self, ahead: int | None, seconds: float) -> dict[str, int]:
        """The number of tasks that each worker accepts now, for workers that accept any.

        A worker accepts tasks for its threads and `ahead` more; None: as many as hide the delay
        between the end of a task and the start of the next, for tasks of `seconds`.
        """
        found = {}
        for worker in self._scheduler.running:
            more = ahead_of(worker.nthreads, seconds) if ahead is None else ahead
            busy = len(worker.processing) - len(worker.long_running)
            if worker.nthreads + more > busy:
                found[worker.address] = worker.nthreads + more - busy
        return found

    def on_secession(self, callback: Callable[[Key], None]) -> None:
        """Call `callback` with the key of each task that secedes from its thread."""
        self._after("long-running", lambda details: callback(details["key"]))

    def on_worker_status(self, callback: Callable[[], None]) -> None:
        """Call `callback` when a worker is paused, continued, or becomes ready."""
        self._after("worker-status-change", lambda details: callback())

    def _after(self, operation: str, callback: Callable[[Mapping[str, Any]], None]) -> None:
        handlers = self._scheduler.stream_handlers
        handler = self._handlers[operation] = handlers[operation]

        def handle(**details: Any) -> None:
            handler(**details)
            callback(details)

        handlers[operation] = handle

    def note_submitters(self) -> None:
        """Let `submitting_task` return the task that has sent a graph."""
        handlers = self._scheduler.stream_handlers
        handler = self._handlers["update-graph"] = handlers["update-graph"]

        async def handle(**details: Any) -> None:
            token = _SUBMITTING.set(details.get("submitting_task"))
            try:
                await handler(**details)
            finally:
                _SUBMITTING.reset(token)

        handlers["update-graph"] = handle

    @property
    def submitting_task(self) -> Key | None:
        """The key of the task that has sent the graph of the current `update_graph`."""
        return _SUBMITTING.get()


DELAY_SECONDS = 0.01
"""The approximate time from the end of a task until its worker has the next one."""

MAX_LOSS = 0.02
"""The part of a thread's time that may be lost to this delay."""


def ahead_of(threads: int, seconds: float) -> int:
    """The number of tasks that a worker should have beyond its threads, for tasks of `seconds`.

    During the delay each thread ends `DELAY_SECONDS / seconds` tasks, which others should
    replace. A task that waits at a worker cannot give way to other computations. The number is
    therefore 0 if at most `MAX_LOSS` would be gained, and at most the number of threads.
    """
    if seconds <= DELAY_SECONDS:
        return threads
    part = DELAY_SECONDS / seconds
    return 0 if part <= MAX_LOSS else ceil(threads * part)


Workers = frozenset[str]
"""The addresses of the workers that a task may use."""


class Places:
    """The workers with room for tasks, which are grouped by the workers that they may use.

    room  the number of tasks that each worker accepts, for workers that accept any
    """

    def __init__(self, room: dict[str, int]) -> None:
        self.room = room

    def of(self, group: Any) -> set[str]:
        """The workers with room for a task of a group; None: it may use all workers."""
        return set(self.room) if group is None else self.room.keys() & group

    def count(self, group: Any) -> int:
        """How many tasks of a group have room now, if no others begin."""
        return sum(self.room[address] for address in self.of(group))

    def take(self, address: str, group: Any) -> None:
        """Count a task that begins."""
        if address in self.room:
            self.room[address] -= 1
            if not self.room[address]:
                del self.room[address]


IsHeld = Callable[[str], bool]
"""A predicate: the pools of a job let none of its tasks begin now."""


class Restricted:
    """The runnable tasks that only certain workers may run; each is offered or parked.

    A group has those that may use the same workers, and with limits of memory, those of a job
    that need the same. At most as many of a group are offered slots as have room (`Places`).
    None of a job is offered that its pools hold, at a max share or in the queue for admission:
    it could not use the room. For slotwise, parked tasks are blocked, because it does not know
    that a slot is on a worker that they may not use.
    """

    def __init__(self) -> None:
        self._offered: dict[Hashable, dict[Key, str]] = {}  # with the job of each
        self._parked: dict[Hashable, dict[str, OrderedDict[Key, None]]] = {}  # by job
        self._of: dict[Key, tuple[Hashable, str]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def is_parked(self, key: Key) -> bool:
        """Whether a task waits for a worker that it may use."""
        group, job = self._of.get(key, (None, ""))
        return group is not None and key in self._parked.get(group, {}).get(job, ())

    def parked(self) -> Iterator[Key]:
        """The tasks that wait for workers that they may use."""
        return chain.from_iterable(
            keys for by_job in self._parked.values() for keys in by_job.values()
        )

    def offer(
        self, key: Key, group: Hashable, places: Places, job: str, is_held: IsHeld
    ) -> bool:
        """Offer slots to a task of a group; return False if it is parked."""
        is_first = self._of.get(key) == (group, job) and not self.is_parked(key)
        self.forget(key)
        self._of[key] = group, job
        offered = self._offered.get(group, ())
        is_offered = not is_held(job) and len(offered) < places.count(group)
        if is_offered:
            self._offered.setdefault(group, {})[key] = job
        else:
            parked = self._parked.setdefault(group, {}).setdefault(job, OrderedDict())
            parked[key] = None
            if is_first:  # It keeps its place before those that were not offered.
                parked.move_to_end(key, last=False)
        return is_offered

    def forget(self, key: Key) -> None:
        """Forget a task that runs, or need not run."""
        group, job = self._of.pop(key, (None, ""))
        if group is None:
            return
        by_job = self._parked.get(group, {})
        if key in by_job.get(job, ()):
            del by_job[job][key]
            if not by_job[job]:
                del by_job[job]
            if not by_job:
                del self._parked[group]
        else:
            del self._offered[group][key]
            if not self._offered[group]:
                del self._offered[group]

    def changed(self, places: Places, is_held: IsHeld) -> list[Key]:
        """The tasks to offer now, and those that can be offered no longer.

        O(groups * their jobs + tasks that are offered or returned).
        """
        found: list[Key] = []
        for group in {**self._offered, **self._parked}:
            offered = self._offered.get(group, {})
            held = [key for key, job in offered.items() if is_held(job)]
            more = places.count(group) - len(offered) + len(held)
            if more < 0:
                found += offered
                continue
            found += held
            for job, keys in self._parked.get(group, {}).items():
                if more and not is_held(job):
                    added = list(islice(keys, more))
                    found += added
                    more -= len(added)
        return found

    def outdated(self, group_of: Callable[[Key], Hashable]) -> list[Key]:
        """The tasks that may use other workers now, as after a change of resources.

        One task stands for all that may use the same workers. O(groups).
        """
        found: list[Key] = []
        for group, offered in self._offered.items():
            if group_of(next(iter(offered))) != group:
                found += offered
        for group, by_job in self._parked.items():
            if group_of(next(iter(next(iter(by_job.values()))))) != group:
                found += chain.from_iterable(by_job.values())
        return found

    def waiting(self, is_held: IsHeld) -> list[Hashable]:
        """The groups with parked tasks of jobs that no pool holds. O(groups * their jobs)."""
        return [
            group for group, by_job in self._parked.items() if not all(map(is_held, by_job))
        ]

    def take_all(self) -> list[Key]:
        """Remove and return all tasks."""
        found = list(self._of)
        for table in (self._offered, self._parked, self._of):
            table.clear()
        return found


PART = 0.01
"""The part of the time that the search of `Needed` may take."""


class Needed:
    """Tasks that must not wait until their computation is admitted to its pool.

    A pool runs at most `jobs_max` computations; further ones await admission. Running
    computations may need tasks of these: lost results are computed again as a new computation,
    and graphs share keys. If such tasks awaited admission, both computations would wait
    forever. Keys that run without the gate must not wait for them either.
    """

    def __init__(self, computations: Computations, holding: TaskHolds) -> None:
        self._computations, self._holding = computations, holding
        self._next_search = 0.0

    def keys(self, outside: Collection[str]) -> list[Key]:
        """The keys of these tasks; `outside` has the jobs that await admission.

        O(blocked tasks and their dependencies). After a long search, it returns none until the
        search has taken at most `PART` of the time.
        """
        began = time.monotonic()
        if not outside or began < self._next_search:
            return []
        tasks = self._computations.tasks
        left = [*self._holding.exempted]
        left += [
            key
            for key, task in tasks.items()
            if task.status == "blocked" and task.phase.job not in outside
        ]
        seen, needed = set(left), []
        while left:
            for key in self._holding.waits_for(left.pop()):
                if key not in seen:
                    seen.add(key)
                    left.append(key)
                    if key in tasks and tasks[key].phase.job in outside:
                        needed.append(key)
        ended = time.monotonic()
        self._next_search = ended + (ended - began) / PART
        return needed
