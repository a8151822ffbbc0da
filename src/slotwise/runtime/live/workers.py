"""The slots of this machine: one worker process each, kept for many tasks, killable at once.

One thread, no fork, no re-import of the user's main module: see
docs/decisions/0002-worker-processes.md for why this and not a ready-made pool.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import cloudpickle

from slotwise.model.errors import SlotwiseError
from slotwise.runtime.live import worker as process

DEFAULTS = {
    # A slot is one core: without this every worker's numpy would start a thread for each core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    # User code that spreads keys by hash() must agree in all workers and in every run.
    "PYTHONHASHSEED": "0",
}
"""Environment of the workers where neither the caller nor the manager's environment says."""

CHUNK = 1 << 16
"""Bytes received in one call; requests below this size are sent in one."""

STARTS_MAX = 3
"""So many workers of one slot in a row may die before they are ready; then it is hopeless."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the task in a slot. Times in seconds; `started` as `time.monotonic()`.

    `value` is the result of a task that is done, the traceback of one that ended in an error,
    or a sentence about the end of the worker process with which a task was lost (its times
    are 0).
    """

    slot: int
    status: Literal["done", "error", "lost"]
    value: object
    started: float = 0.0
    seconds: float = 0.0


class Workers:
    """As many worker processes as there are slots; each runs one task at a time.

    A worker that dies, whoever killed it, is replaced at once. The processes end with `close`,
    and by the kernel's hand when the manager dies, even by SIGKILL; so do the processes that
    user code starts, unless they leave their process group.
    """

    def __init__(self, slots: int, *, environment: Mapping[str, str] | None = None) -> None:
        assert slots >= 1
        self._environment = DEFAULTS | os.environ | dict(environment or {})
        self._runners: dict[str, bytes] = {}
        self._early: list[Outcome] = []
        self._dying: list[_Worker] = []
        self._poll = select.poll()
        self._by_channel: dict[int, int] = {}
        self._workers: list[_Worker] = []
        for slot in range(slots):
            self._workers.append(self._new_worker(slot))

    def start(
        self, slot: int, key: str, runner: Callable[..., object], arguments: tuple[object, ...]
    ) -> None:
        """Begins `runner(*arguments)` in a free slot; returns before it has begun.

        The runner is pickled once for each key and sent once to each worker; a later runner
        of the same key is not looked at. Whatever goes wrong is told by an outcome.
        """
        assert not self._workers[slot].busy
        try:
            if key not in self._runners:
                # The path is sent along: what the user can import here, the worker can too.
                self._runners[key] = pickle.dumps((sys.path, key, cloudpickle.dumps(runner)))
            task = _pickled((key, arguments))
        except Exception as error:
            text = f"the task cannot be sent to a worker process: {process.summary(error)}"
            self._early.append(Outcome(slot, "error", text))
            return
        if not self._send(slot, key, task):
            # The worker died while it was idle, so nothing is lost.
            self._replace(slot)
            self._send(slot, key, task)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Blocks until some tasks have ended, or `timeout` seconds; none means forever.

        Cost of a call: one system call, and one for each task that has ended.
        """
        until = None if timeout is None else time.monotonic() + timeout
        outcomes, self._early = self._early, []
        if self._dying:
            self._dying = [worker for worker in self._dying if not worker.is_reaped()]
        while True:
            left = 0.0 if outcomes else None if until is None else until - time.monotonic()
            for channel, event in self._poll.poll(_milliseconds(left)):
                if outcome := self._serve(self._by_channel[channel], event):
                    outcomes.append(outcome)
            if outcomes or (until is not None and time.monotonic() >= until):
                return outcomes

    def kill(self, slot: int) -> None:
        """Stops the task in a slot by SIGKILL to all its processes; no outcome will tell of it.

        The slot is free on return: a task can be started before the new worker is ready.
        """
        self._early = [outcome for outcome in self._early if outcome.slot != slot]
        self._replace(slot)

    def forget(self, key: str) -> None:
        """Drops the runner of a key here and in all workers: its job is over."""
        if self._runners.pop(key, None) is None:
            return
        for worker in self._workers:
            if key in worker.keys:
                worker.keys.remove(key)
                worker.send(process.FORGET, pickle.dumps(key))
                self._watch(worker)

    def pids(self) -> tuple[int, ...]:
        """The process of each slot, now."""
        return tuple(worker.pid for worker in self._workers)

    def close(self) -> None:
        """Kills all workers and what user code started in them, and waits for their end."""
        ending = self._dying + self._workers
        for worker in ending:
            worker.kill()
        for worker in ending:
            worker.reap()
        self._dying, self._workers, self._early = [], [], []
        self._by_channel = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, slot: int, key: str, task: bytes) -> bool:
        """Hands a task to the worker of a slot; False if that is dead."""
        worker = self._workers[slot]
        worker.busy = True
        if key not in worker.keys:
            worker.keys.add(key)
            worker.send(process.RUNNER, self._runners[key])
        alive = worker.send(process.TASK, task)
        if worker.unsent:
            self._watch(worker)
        return alive

    def _serve(self, slot: int, event: int) -> Outcome | None:
        """Takes what a worker is ready for: more of a request, or (a part of) its reply."""
        worker = self._workers[slot]
        if event & select.POLLOUT:
            worker.flush()
            self._watch(worker)
        if not event & ~select.POLLOUT:
            return None
        try:
            reply = worker.receive()
        except EOFError:
            return self._bury(slot)
        if reply is None:
            return None
        worker.busy = False
        what, started, seconds, body = reply
        try:
            value = pickle.loads(body)
        except Exception as error:
            text = f"the result of the task cannot be read: {process.summary(error)}"
            return Outcome(slot, "error", text, started, seconds)
        status: Literal["done", "error"] = "done" if what == process.DONE else "error"
        return Outcome(slot, status, value, started, seconds)

    def _bury(self, slot: int) -> Outcome | None:
        """Replaces a worker that died; the outcome tells of the task lost with it, if any."""
        worker = self._workers[slot]
        sentence = worker.last_words()
        unready = 0 if worker.ready else worker.unready + 1
        if unready >= STARTS_MAX:
            raise SlotwiseError(
                f"worker processes cannot start: {unready} in a row ended before they were"
                f" ready, the last one thus: {sentence}; see stderr for what they say"
            )
        self._replace(slot, unready)
        return Outcome(slot, "lost", sentence) if worker.busy else None

    def _replace(self, slot: int, unready: int = 0) -> None:
        """Kills the worker of a slot, if it lives, and starts another without waiting."""
        worker = self._workers[slot]
        self._poll.unregister(worker.channel)
        del self._by_channel[worker.channel]
        worker.kill()
        self._dying.append(worker)
        self._workers[slot] = self._new_worker(slot, unready)

    def _new_worker(self, slot: int, unready: int = 0) -> _Worker:
        worker = _Worker(self._environment, unready)
        self._by_channel[worker.channel] = slot
        self._watch(worker)
        return worker

    def _watch(self, worker: _Worker) -> None:
        wanted = select.POLLIN | select.POLLOUT if worker.unsent else select.POLLIN
        self._poll.register(worker.channel, wanted)


class _Worker:
    """One process and the manager's ends of its channel and its lifeline."""

    def __init__(self, environment: Mapping[str, str], unready: int) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        lifeline, ours = os.pipe()
        self._lifeline = open(ours, "wb", buffering=0)  # noqa: SIM115
        passed = theirs.fileno(), lifeline
        try:
            self._process = subprocess.Popen(
                # -P: the folder of the script must not hide modules of the user.
                [
                    sys.executable,
                    "-P",
                    "-X",
                    "faulthandler",
                    process.__file__,
                    *map(str, passed),
                ],
                env=environment,
                pass_fds=passed,
                start_new_session=True,  # A group to kill; and Ctrl-C is for the manager alone.
                stdin=subprocess.DEVNULL,
                stdout=2,  # What user code prints must not mix with our own output.
            )
        finally:
            theirs.close()
            os.close(lifeline)
        self.channel = self._socket.fileno()
        self.pid = self._process.pid
        self.unready = unready
        self.ready = False
        self.busy = False
        self.keys: set[str] = set()
        self.unsent: deque[memoryview] = deque()
        self._killed = False
        self._begun = b""
        self._head: list[Any] | None = None
        self._body: bytes | bytearray = b""
        self._missing = memoryview(b"")

    def send(self, what: int, body: bytes) -> bool:
        """Sends a request, or as much of it as goes without waiting; False if it is dead."""
        head = process.REQUEST.pack(what, len(body))
        if len(body) < CHUNK:
            self.unsent.append(memoryview(head + body))
        else:
            self.unsent += memoryview(head), memoryview(body)  # Copies nothing large.
        return self.flush()

    def flush(self) -> bool:
        """Sends what is left of requests as far as it goes without waiting; False if dead."""
        try:
            while self.unsent:
                sent = self._socket.send(self.unsent[0])
                if sent < len(self.unsent[0]):
                    self.unsent[0] = self.unsent[0][sent:]
                else:
                    self.unsent.popleft()
        except BlockingIOError:
            pass
        except ConnectionError:
            self.unsent.clear()
            return False
        return True

    def receive(self) -> tuple[int, float, float, bytes | bytearray] | None:
        """The reply, if it is now whole; one system call. EOFError if the process has gone.

        There is never more than one reply under way, since there is never more than one task.
        """
        try:
            got = self._take_more() if self._missing else self._take_new()
        except BlockingIOError:
            return None
        except ConnectionError:
            got = 0
        if not got:
            raise EOFError
        if self._head is None or self._missing:
            return None
        reply = (*self._head, self._body)
        self._head, self._body = None, b""
        return reply

    def _take_new(self) -> int:
        chunk = self._socket.recv(CHUNK)
        data = self._begun + chunk
        if data and not self.ready:
            assert data[:1] == process.READY
            self.ready, data = True, data[1:]
        if len(data) < process.REPLY.size:
            self._begun = data
            return len(chunk)
        *self._head, length = process.REPLY.unpack_from(data)
        self._begun, self._body = b"", data[process.REPLY.size :]
        if len(self._body) < length:
            # The rest of a large body is received in place, and copied no more.
            first, self._body = self._body, bytearray(length)
            self._body[: len(first)] = first
            self._missing = memoryview(self._body)[len(first) :]
        return len(chunk)

    def _take_more(self) -> int:
        got = self._socket.recv_into(self._missing)
        self._missing = self._missing[got:]
        return got

    def kill(self) -> None:
        """Ends the process and all of its group by SIGKILL, and drops what is under way."""
        if self._killed:
            return
        self._killed = True  # Once only: later the number may be that of another process.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._socket.close()
        self._lifeline.close()
        self.unsent.clear()

    def last_words(self) -> str:
        """Says how a process ended whose channel is closed."""
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return f"worker process {self.pid} closed its channel to the manager"
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"worker process {self.pid} {how}"

    def is_reaped(self) -> bool:
        """Whether its end has been seen; takes the exit code if it is there."""
        return self._process.poll() is not None

    def reap(self) -> None:
        """Waits for the end of a killed process."""
        self._process.wait()


def _pickled(value: object) -> bytes:
    """The pickle of a value; modules the user wants to have sent by value are sent so."""
    if cloudpickle.list_registry_pickle_by_value():
        by_value: bytes = cloudpickle.dumps(value, protocol=5)
        return by_value
    return process.pickled(value)


def _milliseconds(seconds: float | None) -> float | None:
    """A timeout as poll takes it: it knows neither infinity nor more than 24 days."""
    return None if seconds is None else min(max(seconds, 0.0), 86_400.0) * 1000
