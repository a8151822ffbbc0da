"""The local backend on a scripted machine: what replaces the operating system.

This is the process of each worker with its pipe, the clock, the poll that waits, the threads of
commits, and queues between threads. Tasks are run in the thread that polls. No other module of
golden logs knows the classes of slotwise below its public functions.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from golden.machine import CHANNELS, Machine, Poll
from golden.script import Does, Script
from slotwise import task
from slotwise.backends import executing
from slotwise.backends.local import backend, processes
from slotwise.backends.local.process import OWN_SIGNALS, GarbledError
from slotwise.backends.local.worker import (
    BYTES,
    DONE,
    ERROR,
    KEPT,
    STOPPED,
    TASK,
    TORN,
    Server,
    error_body,
)
from slotwise.jobs.execution import LostInputError, TaskResult, packed_report, read_report
from slotwise.sessions import loop_thread

PIDS = 1000
"""The process id of the first worker."""

READY_SECONDS = 1 / 16
"""How long a worker process takes to start."""

AGAIN_SECONDS = 1 / 4
"""After this time a task that has to wait for others is run again."""

WAIT, JOIN = threading.Condition.wait, threading.Thread.join


class SleepsError(BaseException):
    """Ends a task that would sleep."""


@dataclass
class Worker:
    """A worker process without a process, as `WorkerProcess` is for `Processes`.

    messages  what it has sent and the manager has not received: replies, and how it ended
    due       when it acts next
    """

    machine: Machine
    unready: int
    ready: bool = False
    busy: bool = False
    has_devices: bool = False
    account: None = None
    peak: int = 0
    tasks: int = 0
    keys: set[str] = field(default_factory=set)
    unsent: tuple[()] = ()
    was_killed: bool = False  # By SIGKILL, after which the kernel is asked for memory.

    def __post_init__(self) -> None:
        self.number = len(self.machine.workers)
        self.machine.workers.append(self)
        self.channel, self.pid = CHANNELS + self.number, PIDS + self.number
        self.output = MagicMock()  # No task prints.
        self.messages: deque[Any] = deque()
        self.due = self._ready_at = self.machine.now + READY_SECONDS
        self.is_stopped = self._has_ended = False
        self._code = 0
        self._server = _Server(memoryview(bytearray(56)).cast("d"))
        self._requests: deque[tuple[int, bytes]] = deque()  # All but the task.
        self._task = b""
        self._does: Does | None = None
        self._starts = 0.0
        self._left = inf  # While it is stopped, the time until it acts after that.
        self._asked, self._waited = 0, 0.0
        self._is_stopping = False

    # What the manager calls.

    def send(self, what: int, body: bytes | bytearray, *, waits: bool = False) -> bool:
        """Take a request."""
        if self._has_ended:
            return False
        if what != TASK:
            self._requests.append((what, bytes(body)))
        else:
            self.tasks += 1
            self._task = bytes(body)
            self._does = self.machine.next_task()
            self._starts = self.machine.now
            self._is_stopping, self._waited = False, 0.0
            self._act_in(self._does.seconds)
        return True

    def flush(self) -> bool:
        """All has been sent."""
        return not self._has_ended

    def receive(self) -> tuple[int, float, float, int, bytes] | None:
        """The next message; the first one says that the process is ready."""
        message = self.messages.popleft()
        if message is EOFError or message is GarbledError:
            raise message
        self.ready = True
        return message

    def request_stop(self, until: float) -> None:
        """Ask the task to stop."""
        if self._asked < self.tasks and self._does is not None and self._does.stop is not None:
            left = self._left if self.is_stopped else self.due - self.machine.now
            if self._does.stop[0] < left:
                self._is_stopping = True
                self._act_in(self._does.stop[0])
        self._asked = self.tasks

    def progress(self) -> None:
        """No task reports any."""

    def kill(self) -> None:
        """End it; it says nothing more."""
        self._has_ended, self.due = True, inf
        self.messages.clear()

    def exit_reason(self) -> str:
        """How it has ended, as of a process."""
        how = f"was killed by signal {-self._code}"
        if self._code >= 0:
            how = f"exited with code {self._code}"
        return f"worker process {self.pid} {how}"

    @property
    def ended_itself(self) -> bool:
        """Whether its own code has ended it."""
        return self._code >= 0 or -self._code in OWN_SIGNALS

    def is_reaped(self) -> bool:
        """It leaves no process."""
        return True

    def reap(self) -> None:
        """Nothing is left to wait for."""

    # What the script does with it.

    def be_stop(self) -> None:
        """It gets SIGSTOP."""
        self.is_stopped = True
        self._left, self.due = self.due - self.machine.now, inf

    def be_continue(self) -> None:
        """It gets SIGCONT, if it has not been killed meanwhile."""
        was_stopped, self.is_stopped = self.is_stopped, False
        if was_stopped and not self._has_ended:
            self._act_in(self._left)

    def be_kill(self) -> None:
        """It is killed from outside."""
        self._end(-signal.SIGKILL)

    def act(self) -> None:
        """Become ready, or end the task. No effect if it was stopped at this instant."""
        if self.due > self.machine.now:
            return
        self.due = inf
        if self._does is None:
            self.messages.append(None)
            return
        does, self._does = self._does, None
        if self._is_stopping:
            assert does.stop is not None
            kept = pickle.dumps(does.stop[1]) if does.stop[1] is not None else b""
            self._reply(TORN if does.stop[2:] else STOPPED, kept)
        elif does.how in ("exits", "killed"):
            self._end(does.what if does.how == "exits" else -does.what)
        elif does.how == "garbles":
            self.messages.append(GarbledError)
        elif (reply := self._result(does)) is None:
            self._does = does
            self._act_in(AGAIN_SECONDS)
        else:
            self._reply(*reply)

    def _act_in(self, seconds: float) -> None:
        """Act after a time; as far as it is stopped, after that."""
        if self.is_stopped:
            self._left = seconds
        else:
            self.due = self.machine.now + seconds

    def _end(self, code: int) -> None:
        self._code, self._has_ended, self.due = code, True, inf
        self.ready = self.ready or self._ready_at <= self.machine.now
        self.messages.append(EOFError)

    def _reply(self, what: int, body: bytes) -> None:
        self._requests = deque(one for one in self._requests if one[0] != KEPT)
        self.messages.append((what, self._starts, self.machine.now - self._starts, 0, body))

    def _result(self, does: Does) -> tuple[int, bytes] | None:
        """The type and the content of the reply; None if the task has to wait for others."""
        if does.how == "fails":
            return ERROR, error_body(None, does.what)
        if does.how == "lacks":
            phase, *outputs = does.what
            lost = LostInputError(phase, tuple(outputs), f"a file of {phase}")
            return ERROR, error_body(lost, "")
        self._server.answered(self._requests)
        key, arguments = pickle.loads(self._task)
        runner = self._server.runner(key)
        if runner is task.sleep:
            return DONE, pickle.dumps(None)
        if does.how == "returns" or hasattr(runner, "command"):
            _leave_output(runner, arguments)
            return BYTES, packed_report(TaskResult(*(does.what or (0, 0))))
        self.machine.has_slept = False
        what, body = self._server.answered(deque([(TASK, self._task)]))
        if self.machine.has_slept:
            self._waited += AGAIN_SECONDS
            return None
        if copying := does.what if does.how == "copies" else self._waited:
            body = packed_report(read_report(body)._replace(copying=float(copying)))
        return what, body


class _Server(Server):
    """The code of a worker process, called in the thread that polls."""

    def listen(self) -> None:
        """No signal comes."""

    def answered(self, requests: deque[tuple[int, bytes]]) -> tuple[int, bytes]:
        """Serve these requests; the reply to the last one."""
        replies: list[Any] = []
        link: Any = SimpleNamespace(
            read=lambda: requests.popleft() if requests else None,
            write=lambda what, _started, _seconds, body, _peak: replies.append((what, body)),
        )
        self.serve(link)
        return replies[-1] if replies else (DONE, b"")

    def runner(self, key: str) -> Any:
        """The runner of a key."""
        return pickle.loads(self._pickles[key])


def _leave_output(runner: Any, arguments: tuple[Any, ...]) -> None:
    """Write empty files for the output of a task whose function is not called."""
    if hasattr(runner, "command"):
        files = arguments[2]
    else:
        phase, task, attempt = arguments[:3]
        graph, layout = runner.staged.graph, runner.layout
        files = [
            layout.staged(layout.part(written, copy.copy), attempt)
            for copy in runner.staged.by_name[phase].groups[task]
            for written in graph.written
            if written.node == copy.node
        ]
    for file in files:
        Path(file).touch()


def _no_output(*_: object) -> MagicMock:
    """A reader of what tasks print, whose channel is never ready."""
    channel = os.eventfd(0)
    return MagicMock(channel=channel, close=lambda: os.close(channel))


@contextmanager
def scripted(script: Script) -> Iterator[Machine]:
    """Let the local backend run on a scripted machine; only in the main thread."""
    machine = Machine(script)

    def clock() -> float:
        return machine.now

    def sleep(seconds: float) -> None:
        """A task has to wait for others: it is run again later."""
        machine.has_slept = True
        raise SleepsError

    def is_stopped(pid: int) -> bool:
        return machine.workers[pid - PIDS].is_stopped

    class CommitThread(threading.Thread):
        """A commit that takes the time that the script says."""

        def start(self) -> None:
            machine.call_later(script.commit_seconds, self._start)

        def _start(self) -> None:
            if self.ident is None:
                super().start()

        def join(self, timeout: float | None = None) -> None:
            self._start()  # The backend is closing.
            super().join(timeout)

    def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
        with machine.waiting(condition):
            return WAIT(condition, timeout)

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        with machine.waiting(thread):
            JOIN(thread, timeout)

    replaced: Mapping[str, Any] = {
        "time.monotonic": clock,
        "time.perf_counter": clock,
        "time.time": clock,
        "time.sleep": sleep,
        "select.poll": lambda: Poll(machine),
        "threading.Condition.wait": wait,
        "threading.Thread.join": join,
    }
    with ExitStack() as stack:
        for name, by in replaced.items():
            stack.enter_context(patch(name, by))
        of_modules: list[tuple[Any, str, Any]] = [
            (processes, "WorkerProcess", lambda env, unready, *_: Worker(machine, unready)),
            (processes, "OutputReader", _no_output),
            (processes, "is_stopped", lambda pid, by_us: is_stopped(pid)),
            (
                processes,
                "CpuThrottle",
                lambda: MagicMock(is_held=lambda _, pid: is_stopped(pid)),
            ),
            # Those of this machine are no part of a log.
            (backend, "machine_resources", lambda needs_gpus: {}),
            (executing, "threading", SimpleNamespace(Thread=CommitThread)),
            (loop_thread, "SimpleQueue", queue.Queue),
        ]
        for module, attribute, by in of_modules:
            stack.enter_context(patch.object(module, attribute, by))
        # A shell may have started this process with SIGINT ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield machine
        finally:
            machine.is_over = True
            signal.signal(signal.SIGINT, before)
