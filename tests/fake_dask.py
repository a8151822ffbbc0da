"""A Dask scheduler without workers and messages, as far as the gate uses it."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from slotwise.dask import Gate, GateOptions


@dataclass(eq=False)
class FakeTask:
    """A task of the fake scheduler."""

    key: str
    prefix: SimpleNamespace
    priority: tuple[int, ...]
    state: str = "released"
    actor: bool = False
    resource_restrictions: Any = None
    worker_restrictions: Any = None
    host_restrictions: Any = None
    loose_restrictions: bool = False
    processing_on: Any = None


class FakeGate(Gate):
    """A gate with the clock of its scheduler."""

    @property
    def now(self) -> float:
        """Seconds that have passed for the test."""
        return float(self._scheduler.now)


@dataclass(eq=False)
class FakeDask:
    """Tasks without dependencies on workers that end them when the test says so.

    Time passes only while `finish` lets tasks end, and when the test moves the clock.
    """

    options: dict[str, Any]
    workers: int = 4
    now: float = 0.0
    tasks: dict[Hashable, FakeTask] = field(default_factory=dict)
    plugins: dict[str, Any] = field(default_factory=dict)
    client_comms: dict[str, Any] = field(default_factory=dict)
    handlers: dict[str, Any] = field(default_factory=dict)
    adaptive_target: Any = None
    log_event: Any = field(default=lambda topic, message: None)
    http_application: Any = field(
        default_factory=lambda: SimpleNamespace(
            applications=[], add_handlers=lambda *args: None
        )
    )
    validate: bool = False

    def __post_init__(self) -> None:
        self.running = [
            SimpleNamespace(address=f"w{n}", nthreads=1, processing=set(), long_running=set())
            for n in range(self.workers)
        ]
        self.stream_handlers: dict[str, Any] = dict.fromkeys(
            ("worker-status-change", "long-running", "update-graph")
        )
        self._calls: list[Callable[[], None]] = []
        self.loop = SimpleNamespace(
            add_callback=self._calls.append, call_later=lambda seconds, call, *args: None
        )
        self.gate = FakeGate(GateOptions.of_mapping({"ahead": 0, **self.options}))
        self.plugins["slotwise"] = self.gate
        asyncio.run(self.gate.start(self))

    def submit(self, client: str, names: Iterable[str], **annotation: Any) -> None:
        """A client sends a graph of these keys, which are runnable at once."""
        keys = list(names)
        for number, key in enumerate(keys):
            prefix = SimpleNamespace(name=key.split("-")[0], duration_average=-1)
            self.tasks[key] = FakeTask(key, prefix, (number,))
        self.gate.update_graph(
            self,
            client=client,
            keys=keys,
            tasks=keys,
            annotations={"slotwise": dict.fromkeys(keys, annotation)} if annotation else {},
            priority={},
            stimulus_id="",
        )
        for key in keys:
            self.move(key, "waiting")
            self.move(key, "no-worker")

    def move(self, key: Any, finish: str, **details: Any) -> None:
        """A task changes its state."""
        task = self.tasks[key]
        start, task.state = task.state, finish
        if start == "processing":
            task.processing_on.processing.remove(task)
            task.processing_on = None
        if finish == "forgotten":
            del self.tasks[key]
        self.gate.transition(key, start, finish, **details)

    def transitions(self, recommendations: Mapping[Any, str], stimulus_id: str) -> None:
        """Send tasks to workers that they may use."""
        for key in recommendations:
            task = self.tasks[key]
            allowed = task.worker_restrictions
            worker = next(w for w in self.running if allowed is None or w.address in allowed)
            task.processing_on = worker
            worker.processing.add(task)
            self.move(key, "processing")

    def lose(self) -> None:
        """A worker leaves; its tasks wait again."""
        worker = self.running.pop()
        for task in list(worker.processing):
            for state in ("released", "waiting", "no-worker"):
                self.move(task.key, state)
        self.turns()

    def turns(self) -> None:
        """Let the gate take its turns."""
        while self._calls:
            call = self._calls.pop(0)
            call()

    def finish(self, seconds: float = 1.0) -> None:
        """All tasks that run end after this time, and their results are forgotten."""
        self.now += seconds
        for worker in self.running:
            for task in list(worker.processing):
                times = [{"action": "compute", "start": 0.0, "stop": seconds}]
                self.move(task.key, "memory", startstops=times)
                self.move(task.key, "forgotten")
        assert not self.gate.is_open, "the gate has not failed"
        self.gate._wake()  # Nothing is called later here.
        self.turns()


def objects(gate: Gate, *left_out: Any) -> Counter[str]:
    """The objects that the gate keeps alive, counted by type, without those left out."""
    seen = {id(one) for one in (gate._scheduler, gate._scheduler.loop, *left_out)}
    outside = (type, ModuleType, FunctionType, MethodType)
    found: Counter[str] = Counter()
    todo: list[Any] = [gate]
    while todo:
        one = todo.pop()
        for other in gc.get_referents(one):
            if id(other) not in seen and not isinstance(other, outside):
                seen.add(id(other))
                found[type(other).__name__] += 1
                todo.append(other)
    return found
