"""A fake scheduler of Dask, whose workers and clients do what a script of `gate.py` says.

It has what the gate uses of Dask, listed in `slotwise/dask/holding.py`, and rules of its own
that are as simple as possible: logs do not depend on the version of `distributed`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from golden.scripted_time import ScriptedTime

Script = Mapping[str, Any]
"""See `gate.py`."""

Key = Hashable

WAITING = ("waiting", "no-worker", "processing")


@dataclass(eq=False)
class DaskTask:
    """A task of the scheduler; the fields above `deps` are those of Dask."""

    key: Key
    prefix: SimpleNamespace
    priority: tuple[float, ...]
    state: str = "released"
    actor: bool = False
    resource_restrictions: dict[str, float] | None = None
    worker_restrictions: set[str] | None = None
    host_restrictions: set[str] | None = None
    loose_restrictions: bool = False
    processing_on: DaskWorker | None = None
    waiting_on: dict[DaskTask, None] = field(default_factory=dict)
    deps: list[DaskTask] = field(default_factory=list)
    users: list[DaskTask] = field(default_factory=list)
    wanted_by: list[str] = field(default_factory=list)
    kept_on: DaskWorker | None = None
    run: int = 0


@dataclass(eq=False)
class DaskWorker:
    """A worker, which begins its tasks in the order of their priorities."""

    address: str
    nthreads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    processing: dict[DaskTask, None] = field(default_factory=dict)
    long_running: set[DaskTask] = field(default_factory=set)
    begun: set[DaskTask] = field(default_factory=set)

    def next_task(self) -> DaskTask | None:
        """The task that it can begin now."""
        if len(self.begun - self.long_running) >= self.nthreads:
            return None
        left = [task for task in self.processing if task not in self.begun]
        return min(left, key=lambda task: task.priority, default=None)


class FakeScheduler:
    """A scheduler of Dask whose workers and clients do what a script says."""

    validate = True

    def __init__(self, script: Script) -> None:
        self.script, self.clock = script, ScriptedTime()
        self.tasks: dict[Key, DaskTask] = {}
        self.workers: dict[str, DaskWorker] = {}
        self.running: dict[DaskWorker, None] = {}
        self.unrunnable: dict[DaskTask, None] = {}
        self.plugins: dict[str, Any] = {}
        self.handlers: dict[str, Any] = {}
        self.client_comms: dict[str, Any] = {}
        self.stream_handlers: dict[str, Any] = {
            "update-graph": self._graph,
            "long-running": self._long_running,
            "worker-status-change": self._status,
        }
        self.http_application = SimpleNamespace(applications=[], add_handlers=lambda *_: None)
        self.loop = SimpleNamespace(
            add_callback=lambda call: self.clock.after(0.0, call),
            call_later=lambda seconds, call, *given: self.clock.after(
                seconds, partial(call, *given)
            ),
        )
        self._prefixes: dict[str, SimpleNamespace] = {}
        self._runs: dict[str, int] = {}
        self._graphs = 0
        self.said: list[Any] = []
        self.set_metadata = lambda keys, value: None
        for address, more in script.get("workers", {"w0": {}, "w1": {}}).items():
            self._add(address, **more)
        for client, address in script.get("addresses", {}).items():
            self.client_comms[client] = SimpleNamespace(
                comm=SimpleNamespace(peer_address=address)
            )

    # What the gate calls.

    def valid_workers(self, task: DaskTask) -> set[DaskWorker] | None:
        """The workers that a task may use; None: all."""
        needs = task.resource_restrictions or {}
        places, hosts = task.worker_restrictions, task.host_restrictions
        if not needs and places is None and hosts is None:
            return None
        return {
            worker
            for worker in self.running
            if (places is None and hosts is None)
            or worker.address in (places or ())
            or worker.address in (hosts or ())
            if all(worker.resources.get(name, 0) >= count for name, count in needs.items())
        }

    def transitions(self, recommendations: Mapping[Key, str], stimulus_id: str) -> None:
        """Let tasks run, the last one first."""
        for key, finish in reversed(recommendations.items()):
            assert finish == "processing"
            if self.tasks[key].state == "no-worker":
                self._place(self.tasks[key])

    def adaptive_target(self, target_duration: Any = None) -> int:
        """How many workers an adaptive cluster should have."""
        return len(self.workers) + len(list(self.unrunnable))

    # What happens.

    def do(self, what: str, *given: Any, **more: Any) -> None:
        """What a script says."""
        if what == "graph":
            finished(self.stream_handlers["update-graph"](client=given[0], **given[1]))
        elif what in ("pause", "resume"):
            self.stream_handlers["worker-status-change"](status=what, worker=given[0])
        elif what == "secede":
            if self.tasks[given[0]].state == "processing":
                self.stream_handlers["long-running"](key=given[0])
        elif what == "target":
            self.said.append([self.clock.now, "target", self.handlers["adaptive_target"]()])
        elif what == "status":
            self.said.append([self.clock.now, "status", self.handlers["slotwise_status"]()])
        elif what == "unplug":
            del self.plugins["slotwise"]
        elif what == "break":  # A key that nobody knows.
            self.plugins["slotwise"].transition("nothing", "released", "waiting")
        elif what == "resources":
            self.workers[given[0]].resources = given[1]
            self._schedule_unrunnable()
        else:
            getattr(self, f"_{what}")(*given, **more)

    def _add(self, address: str, **more: Any) -> None:
        worker = self.workers[address] = DaskWorker(address, **more)
        self.running[worker] = None
        self._hook("add_worker", address)
        self._schedule_unrunnable()

    def _lose(self, address: str) -> None:
        """A worker leaves with its tasks and results."""
        worker = self.workers.pop(address)
        self.running.pop(worker, None)
        for task in list(worker.processing):
            self._again(task)
        for task in list(self.tasks.values()):
            if task.kept_on is worker and task.state == "memory":
                self._lost_result(task)
        self._hook("remove_worker", address)
        self._begin_wanted()

    def _retire(self, address: str) -> None:
        """A worker leaves; its results are copied to another, its tasks begin again."""
        worker, (other, *_) = (
            self.workers[address],
            [one for one in self.running if one.address != address],
        )
        for task in self.tasks.values():
            if task.kept_on is worker:
                task.kept_on = other
        self._lose(address)

    def _restart(self) -> None:
        """All clients lose their futures, and all workers begin again."""
        for client in {one: None for task in self.tasks.values() for one in task.wanted_by}:
            self._release(client, list(self.tasks))
        for address, worker in list(self.workers.items()):
            self._lose(address)
            self._add(address, nthreads=worker.nthreads, resources=worker.resources)

    def _release(self, client: str, keys: Iterable[Key]) -> None:
        """A client wants the results of these keys no more, as when it cancels its futures."""
        for key in keys:
            task = self.tasks.get(key)
            if task is not None and client in task.wanted_by:
                task.wanted_by.remove(client)
        self._drop_unneeded()

    async def _graph(
        self,
        client: str,
        keys: Mapping[Key, Any],
        wanted: Iterable[Key] | None = None,
        annotation: Mapping[str, Any] | None = None,
        priority: float = 0,
        submitting_task: Key | None = None,
    ) -> None:
        """A client sends a graph: for each key its dependencies, or all that it states."""
        self._graphs += 1
        new = []
        for number, (key, given) in enumerate(keys.items()):
            if key in self.tasks:
                continue
            stated = dict(given) if isinstance(given, Mapping) else {"deps": given}
            deps = [self.tasks[dep] for dep in stated.pop("deps", ())]
            prefix = key[0] if isinstance(key, tuple) else str(key).split("-")[0]
            shared = self._prefixes.setdefault(
                prefix, SimpleNamespace(name=prefix, duration_average=-1)
            )
            rank = (-stated.pop("priority", priority), self._graphs, number)
            task = self.tasks[key] = DaskTask(key, shared, rank, deps=deps, **stated)
            new.append(task)
            for dep in deps:
                dep.users.append(task)
        for key in keys if wanted is None else wanted:
            self.tasks[key].wanted_by.append(client)
        notes = {} if annotation is None else {"slotwise": dict.fromkeys(keys, annotation)}
        given_keys = list(keys)
        self._hook("update_graph", client=client, tasks=given_keys, annotations=notes)
        for task in new:
            self._begin(task)
        for key in keys:
            if self.tasks[key].state == "released":
                self._begin(self.tasks[key])

    def _long_running(self, key: Key, **_: Any) -> None:
        task = self.tasks[key]
        if (worker := task.processing_on) is not None:
            worker.long_running.add(task)
            self._fill(worker)

    def _status(self, status: str, worker: str) -> None:
        one = self.workers[worker]
        if status == "pause":
            self.running.pop(one, None)
        else:
            self.running[one] = None
            self._fill(one)
            self._schedule_unrunnable()

    # How tasks go on.

    def _begin(self, task: DaskTask) -> None:
        """A task that is released is to be computed."""
        for dep in task.deps:
            if dep.state in ("released", "forgotten"):
                self._begin(dep)
        if task.state != "released":
            return
        if any(dep.state == "erred" for dep in task.deps):
            self._move(task, "erred")
            return
        task.waiting_on = {dep: None for dep in task.deps if dep.state != "memory"}
        self._move(task, "waiting")
        self._go_on(task)

    def _go_on(self, task: DaskTask) -> None:
        if task.state == "waiting" and not task.waiting_on:
            self._place(task)

    def _place(self, task: DaskTask) -> None:
        """Send a task to the least busy of the workers that it may use."""
        valid = self.valid_workers(task)
        if valid is None or (not valid and task.loose_restrictions):
            valid = set(self.running)
        if not valid:
            if task.state == "waiting":
                self._move(task, "no-worker")
            return
        worker = min(valid, key=lambda one: (len(one.processing) / one.nthreads, one.address))
        task.processing_on = worker
        worker.processing[task] = None
        self._move(task, "processing")
        self._fill(worker)

    def _fill(self, worker: DaskWorker) -> None:
        while (task := worker.next_task()) is not None:
            worker.begun.add(task)
            task.run += 1
            name = task.prefix.name
            number = self._runs[name] = self._runs.get(name, -1) + 1
            outcomes = self.script["outcomes"].get(name, [[1.0, "memory"]])
            seconds, outcome = outcomes[number % len(outcomes)]
            if seconds is not None:
                end = partial(self._end, task, task.run, outcome, seconds)
                self.clock.after(seconds, end)

    def _end(self, task: DaskTask, run: int, outcome: str, seconds: float) -> None:
        if task.state != "processing" or task.run != run:
            return
        assert task.processing_on is not None
        if outcome == "memory":
            before = task.prefix.duration_average
            task.prefix.duration_average = seconds if before < 0 else (before + seconds) / 2
            task.kept_on = task.processing_on
            times = [{"action": "compute", "start": 0.0, "stop": seconds}]
            self._move(task, "memory", startstops=times)
            for user in task.users:
                user.waiting_on.pop(task, None)
                self._go_on(user)
            self._drop_unneeded()
        elif outcome == "retry":
            self._again(task)
            self._begin_wanted()
        else:
            self._err(task, outcome)

    def _err(self, task: DaskTask, why: str) -> None:
        if task.state in WAITING:
            self._move(task, "erred", exception_text=why)
        for user in task.users:
            if user.state in WAITING:
                self._err(user, why)

    def _again(self, task: DaskTask) -> None:
        """A task that waits or runs is computed from the beginning."""
        self._move(task, "released")
        self._begin(task)

    def _lost_result(self, task: DaskTask) -> None:
        self._move(task, "released")
        for user in task.users:
            if user.state in ("no-worker", "processing"):
                self._move(user, "released")
            elif user.state == "waiting":
                user.waiting_on[task] = None

    def _begin_wanted(self) -> None:
        """Compute what is released although it is needed."""
        for task in list(self.tasks.values()):
            if task.state == "released" and self._is_needed(task):
                self._begin(task)

    def _is_needed(self, task: DaskTask) -> bool:
        users = (user for user in task.users if user.state != "forgotten")
        return bool(task.wanted_by) or any(
            user.state in WAITING or (user.state == "released" and self._is_needed(user))
            for user in users
        )

    def _drop_unneeded(self) -> None:
        """Release what nobody needs, and forget it once no other task depends on it."""
        for task in reversed(list(self.tasks.values())):
            if self._is_needed(task):
                continue
            if task.state != "released":
                self._move(task, "released")
            if not any(user.state != "forgotten" for user in task.users):
                self._move(task, "forgotten")

    def _schedule_unrunnable(self) -> None:
        for task in sorted(self.unrunnable, key=lambda one: one.priority):
            valid = self.valid_workers(task)
            if valid is None or valid:
                self._place(task)

    def _move(self, task: DaskTask, finish: str, **details: Any) -> None:
        """A task changes its state, and the gate is told."""
        start, task.state = task.state, finish
        if start == "no-worker":
            del self.unrunnable[task]
        worker = task.processing_on
        if start == "processing" and worker is not None:
            task.processing_on = None
            del worker.processing[task]
            worker.long_running.discard(task)
            worker.begun.discard(task)
        if finish == "no-worker":
            self.unrunnable[task] = None
        if finish == "forgotten":
            del self.tasks[task.key]
        for plugin in list(self.plugins.values()):
            plugin.transition(task.key, start, finish, **details)
        if start == "processing" and worker in self.running:
            self._fill(worker)

    def _hook(self, name: str, *given: Any, **more: Any) -> None:
        for plugin in list(self.plugins.values()):
            getattr(plugin, name)(self, *given, **more)


def finished(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
