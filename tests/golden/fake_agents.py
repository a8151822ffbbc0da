"""Fake workers of a Dask cluster with agents beside them, which do what a script says.

The messages are real: an agent gets them as bytes, and its answers are bytes, too.
"""

from __future__ import annotations

import pickle
import select
import socket
from array import array
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

from distributed import Client, Security

from golden.scripted_time import TICK, ScriptedTime
from slotwise.backends.agents.slots import AgentHost
from slotwise.backends.local.processes import STATUSES
from slotwise.backends.local.worker import Server, error_body
from slotwise.jobs.execution import LostInputError
from slotwise.jobs.hosts.auth import RefusedError
from slotwise.jobs.hosts.messages import MessageStream

Script = Mapping[str, Any]
"""See `agents.py`."""

BEAT_SECONDS = 1.0

BODIES: Mapping[str, Callable[[Any], object]] = {
    "done": pickle.dumps,
    "error": lambda value: error_body(None, value),
    "lacks": lambda value: error_body(LostInputError(*value), ""),
}
"""How agents send the values of answers; others are sent as they are."""


class FakeAgent:
    """An agent at its end of a connection: takes orders, and answers as the script says."""

    def __init__(self, fake: FakeCluster, connected: socket.socket) -> None:
        self._fake = fake
        self._stream = MessageStream(connected)
        self._runs: dict[int, tuple[int, str]] = {}  # by slot, the attempt and its job
        self._server = Server(memoryview(array("d", [0.0] * 7)))
        self._server._number = 1
        self.is_silent = self.is_over = False
        self.stopped: list[int] = []
        self._beat()

    def take(self) -> None:
        """Take the orders that have come."""
        if self.is_over:
            return
        try:
            for what, *details in self._stream.receive():
                getattr(self, f"_{what}")(*details)
        except EOFError:
            self.close()

    def send(self, *message: object) -> None:
        """Send a message, unless the agent is silent or has gone."""
        if not (self.is_silent or self.is_over):
            self._stream.send(list(message))
            self._stream.flush()

    def close(self) -> None:
        """End the connection."""
        if not self.is_over:
            self.is_over = True
            self._stream.close()

    def die(self, slot: int, status: str, why: str) -> None:
        """The worker process of a slot ends, and with it its task."""
        if slot in self._runs:
            self._answer(slot, self._runs[slot][0], status, why, 0.0)

    def _beat(self) -> None:
        if self.is_over:
            return
        running = sorted(self._runs.items())
        self.send("beat", self.stopped, [[slot, one, 0.5, 1.0] for slot, (one, _) in running])
        self._fake.clock.after(BEAT_SECONDS, self._beat)

    def _answer(
        self, slot: int, attempt: int, status: str, value: object, seconds: float
    ) -> None:
        if self._runs.get(slot, (0, ""))[0] != attempt:
            return
        if self.is_silent or slot in self.stopped:  # It answers when it goes on.
            again = partial(self._answer, slot, attempt, status, value, seconds)
            self._fake.clock.after(BEAT_SECONDS, again)
            return
        del self._runs[slot]
        self.send("answer", slot, attempt, status, value, seconds, 0)

    def _learn(self, key: str, runner: bytes) -> None:
        _, _, self._server._pickles[key] = pickle.loads(runner)

    def _start(
        self, slot: int, attempt: int, key: str, task: bytes, kept: bytes, *options: object
    ) -> None:
        self._runs[slot] = attempt, key
        seconds, status, value = self._fake.outcome(key)
        if status == "runs":  # The code of the task, at once.
            what, _, _, body = self._server.answer(task)
            status, value = STATUSES[what], body
        else:
            value = BODIES.get(status, lambda sent: sent)(value)
            status = "error" if status == "lacks" else status
        if seconds is not None:
            answer = partial(self._answer, slot, attempt, status, value, seconds)
            self._fake.clock.after(seconds, answer)

    def _tell(self, slot: int, attempt: int, seconds: float) -> None:
        after, kept = self._fake.script.get("stops", {}).get(self._runs[slot][1], (None, ""))
        if after is not None:
            answer = partial(self._answer, slot, attempt, "stopped", kept.encode(), after)
            self._fake.clock.after(after, answer)

    def _kill(self, slot: int) -> None:
        self._runs.pop(slot, None)
        self.stopped = [one for one in self.stopped if one != slot]

    def _forget(self, key: str) -> None:
        del self._server._pickles[key]

    def _clean(self, folder: str) -> None:
        """Nothing is there."""

    def _end(self) -> None:
        self.close()


class FakeClient(Client):
    """A client of Dask without a cluster, whose workers are those of the script."""

    status = "running"
    asynchronous = False
    security = Security()
    loop = SimpleNamespace(asyncio_loop=None)

    def __init__(self, fake: FakeCluster) -> None:
        self._fake, self.scheduler = fake, fake

    def __del__(self) -> None:
        """There is nothing to close."""

    def sync(self, function: Any, *args: Any, **_: Any) -> Any:
        """The result of a coroutine that does not wait."""
        try:
            function(*args).send(None)
        except StopIteration as found:
            return found.value
        raise AssertionError("it waits")

    async def run(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Nothing needs to be run in a worker."""
        return {}

    def submit(self, *_: Any, workers: list[str], **__: Any) -> Any:
        """A part of a lease, which Dask may refuse."""
        (worker,) = workers
        if self._fake.workers[worker].get("refuses_leases"):
            raise RuntimeError("Dask takes no task")
        return SimpleNamespace(release=lambda: None)


class FakeCluster:
    """The workers of Dask, their agents, and the clock."""

    address = "tcp://10.0.0.1:8786"

    def __init__(self, script: Script) -> None:
        self.script, self.clock = script, ScriptedTime()
        self.client = FakeClient(self)
        self.workers: dict[str, dict[str, Any]] = {}  # by address, those that Dask knows
        self.agents: dict[str, FakeAgent] = {}  # by name, the last one
        self._outcomes: dict[str, int] = {}
        self._answers: dict[str, int] = {}
        self._all = {
            f"tcp://{name}:1": {"name": name, **w} for name, w in script["workers"].items()
        }
        for address, worker in self._all.items():
            if "joins" in worker:
                self.clock.at(worker["joins"], partial(self._join, address))
            else:
                self._join(address)

    async def identity(self) -> dict[str, Any]:
        """What the scheduler says of its workers."""
        return {"workers": dict(self.workers)}

    def outcome(self, job: str) -> tuple[float | None, str, Any]:
        """What becomes of the next task of a job that is started."""
        number = self._outcomes[job] = self._outcomes.get(job, -1) + 1
        given = self.script["outcomes"][job]
        seconds, status, *value = given[number % len(given)]
        return seconds, status, value[0] if value else None

    def answer(self, asked: tuple[str, str], loop: object) -> Future[AgentHost]:
        """Ask a worker for its agent: the answer comes when the script says so."""
        address, name = asked
        future: Future[AgentHost] = Future()
        number = self._answers[name] = self._answers.get(name, -1) + 1
        answers = self._all[address].get("answers", [[0.0, ""]])
        seconds, refusal = answers[min(number, len(answers) - 1)]

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if refusal == "left":
                future.set_exception(OSError("it has left"))
            elif refusal:
                future.set_exception(RefusedError(f"host {name!r}: {refusal}"))
            else:
                slots = min(self._all[address]["slots"], self.script.get("dask_slots", 99))
                future.set_result(self._connect(name, slots))

        self.clock.after(seconds, answer)
        return future

    def wait(self, futures: Iterable[Future[AgentHost]], seconds: float) -> None:
        """Let time pass until all of them have answered."""
        until, asked = self.clock.now + seconds, list(futures)
        while not all(one.done() for one in asked) and self.clock.step(until):
            pass

    def make_poll(self) -> ScriptedPoll:
        """What stands for `select.poll`."""
        return ScriptedPoll(self)

    def do(self, what: str, host: str, *details: Any) -> None:
        """Let something happen to a host, or to the scheduler of Dask."""
        if what == "ends":
            self.client.status = host
            return
        agent, address = self.agents[host], f"tcp://{host}:1"
        if what in ("silent", "speaks"):
            agent.is_silent = what == "silent"
        elif what == "stopped":
            (agent.stopped,) = details
        elif what == "fails":
            agent.send("failed", *details)
        elif what == "answers":
            agent.send("answer", *details)
        elif what == "dies":
            agent.die(*details)
        elif what == "leaves":
            del self.workers[address]
            agent.close()
        else:
            assert what == "disconnects"
            agent.close()

    def _join(self, address: str) -> None:
        self.workers[address] = self._all[address]

    def _connect(self, name: str, slots: int) -> AgentHost:
        ours, theirs = socket.socketpair()
        self.agents[name] = FakeAgent(self, theirs)
        address, places = f"{name}:41000", (name, f"machine-of-{name}")
        stream = MessageStream(ours)
        return AgentHost(name, slots, stream, address, places, last_message_at=self.clock.now)


class ScriptedPoll:
    """A poll that lets the script go on instead of waiting."""

    def __init__(self, fake: FakeCluster) -> None:
        self._fake, self._real = fake, select.poll()
        self.register, self.modify = self._real.register, self._real.modify
        self.unregister = self._real.unregister

    def poll(self, milliseconds: float | None) -> list[tuple[int, int]]:
        """What is ready, after as much of the script as it takes."""
        clock, wait = self._fake.clock, (milliseconds or 0.0) / 1000
        until = clock.now + max(wait, TICK if wait else 0.0)
        while True:
            for agent in list(self._fake.agents.values()):
                agent.take()
            if ready := self._real.poll(0):
                return ready
            if not clock.step(float("inf") if milliseconds is None else until):
                return []
