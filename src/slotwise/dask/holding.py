"""Holding tasks in Dask's scheduler, and letting them run: all that reaches into Dask.

A task is held by a resource that no worker has: once it is runnable, Dask finds no worker for
it and puts it into the state "no-worker". To let it run, the resource is taken away and the
transition to "processing" is asked for; Dask chooses among the workers that have room.

What is used of `distributed` beyond the documented hooks of `SchedulerPlugin`, tested with the
versions in docs/dask.md:

scheduler.tasks, .running, .workers, .validate           documented attributes of the scheduler
TaskState.state, .priority, .prefix, .actor, .run_spec   documented attributes of a task
TaskState.resource_restrictions, .worker_restrictions, .host_restrictions, .loose_restrictions
                                                         documented; these are written
WorkerState.nthreads, .processing, .long_running, .address   documented attributes of a worker
Scheduler.valid_workers(ts)                              a method without an underscore
Scheduler.transitions(recommendations, stimulus_id)      a method without an underscore
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from slotwise.dask.computations import Key, KeyInfo, Standing

HELD = "slotwise-held"
"""A resource that no worker has."""

STANDINGS: dict[str, Standing] = {
    "waiting": "blocked",
    "no-worker": "runnable",
    "queued": "running",
    "processing": "running",
    "memory": "done",
}
"""What a state of Dask means; all others: the key need not be computed."""


class Holding:
    """The tasks of a Dask scheduler that are held."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        # The resources that each held task needs by its user's wish.
        self._held: dict[Key, Any] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def hold(self, key: Key) -> bool:
        """Hold a task that begins to wait; False for one that is never held."""
        task = self._scheduler.tasks[key]
        if task.actor:
            return False
        if key not in self._held:
            self._held[key] = task.resource_restrictions
            task.resource_restrictions = {**(task.resource_restrictions or {}), HELD: 1}
        return True

    def forget(self, key: Key) -> None:
        """A task is not known to Dask any more."""
        self._held.pop(key, None)

    def standing(self, key: Key) -> Standing:
        """What Dask knows of a key."""
        task = self._scheduler.tasks.get(key)
        return "gone" if task is None else STANDINGS.get(task.state, "gone")

    def describe(self, key: Key) -> KeyInfo:
        """The prefix, learned duration and priority of a key."""
        task = self._scheduler.tasks[key]
        seconds = task.prefix.duration_average
        return KeyInfo(task.prefix.name, seconds if seconds >= 0 else None, task.priority)

    def allowed(self, key: Key) -> frozenset[str] | None:
        """The addresses of the workers on which a held task may run; None: on all of them."""
        task = self._scheduler.tasks[key]
        resources = self._held[key]
        if not (resources or task.worker_restrictions or task.host_restrictions):
            return None
        held, task.resource_restrictions = task.resource_restrictions, resources
        try:
            workers = self._scheduler.valid_workers(task)
        finally:
            task.resource_restrictions = held
        if workers is None or (not workers and task.loose_restrictions):
            return None
        return frozenset(worker.address for worker in workers)

    def release(self, key: Key, addresses: Collection[str], stimulus_id: str) -> bool:
        """Let a runnable task run on one of these workers; whether Dask has found one."""
        task = self._scheduler.tasks[key]
        before = task.worker_restrictions, task.host_restrictions, task.loose_restrictions
        task.resource_restrictions = self._held.pop(key)
        task.worker_restrictions, task.host_restrictions = set(addresses), None
        task.loose_restrictions = False
        try:
            self._scheduler.transitions({key: "processing"}, stimulus_id=stimulus_id)
        finally:
            task.worker_restrictions, task.host_restrictions = before[:2]
            task.loose_restrictions = before[2]
        if task.state == "no-worker":
            self.hold(key)
            return False
        return True

    def release_all(self, stimulus_id: str) -> None:
        """Let every task run, as Dask does without holding."""
        held, self._held = self._held, {}
        runnable = {}
        for key, resources in held.items():
            task = self._scheduler.tasks.get(key)
            if task is not None:
                task.resource_restrictions = resources
                if task.state == "no-worker":
                    runnable[key] = "processing"
        # By priority; the last one of the dictionary is taken first.
        order = sorted(runnable, key=lambda key: self._scheduler.tasks[key].priority)
        self._scheduler.transitions(
            {key: "processing" for key in reversed(order)}, stimulus_id=stimulus_id
        )

    def room(self, ahead: int | None, seconds: float) -> dict[str, int]:
        """The number of tasks that each worker takes now, for those that take some.

        A worker takes tasks for its threads and `ahead` more; None: as many as hide the delay
        between the end of a task and the start of the next, for tasks of this length.
        """
        found = {}
        for worker in self._scheduler.running:
            more = ahead_of(worker.nthreads, seconds) if ahead is None else ahead
            busy = len(worker.processing) - len(worker.long_running)
            if worker.nthreads + more > busy:
                found[worker.address] = worker.nthreads + more - busy
        return found

    def seceded(self) -> Iterable[Key]:
        """The keys of tasks that run without occupying a thread."""
        for worker in self._scheduler.workers.values():
            for task in worker.long_running:
                yield task.key


DELAY_SECONDS = 0.005
"""About the time from the end of a task until the worker has the next one."""


def ahead_of(threads: int, seconds: float) -> int:
    """How many tasks a worker should have beyond its threads, for tasks of this length.

    During the delay of a message each thread ends `DELAY_SECONDS / seconds` tasks, for which
    others should be there. Tasks that wait at a worker cannot give way to other computations,
    so that there are at most as many as threads, and none where they would gain little.
    """
    if seconds <= 0:
        return threads
    wanted = threads * DELAY_SECONDS / seconds
    return min(threads, int(wanted + 0.5)) if wanted < threads else threads
