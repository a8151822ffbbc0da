"""A scripted machine: the real local backend, but with no clock and no worker processes.

A script has what the worker processes do (`Does`), in the order in which tasks are sent to
them, and what happens at given instants (`At`). This module is the only one that knows the
classes of slotwise below its public functions. It replaces what the backend has of the
operating system: the process of each worker with its pipe, the clock, the poll that waits, and
the threads of commits. Tasks are run in the thread that polls.

Time stands still while any thread of slotwise works. So a log depends on nothing else.
"""

from __future__ import annotations

import pickle
import queue
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from math import ceil, inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from slotwise import task
from slotwise.programs.lost_input import LostInputError
from slotwise.programs.task_result import TaskResult
from slotwise.runtime import commits
from slotwise.runtime.local import processes
from slotwise.runtime.local.process import OWN_SIGNALS, GarbledError
from slotwise.runtime.local.worker import DONE, ERROR, STOPPED, TASK, TORN, Server
from slotwise.sessions import loop_thread

TICK = 1 / 1024
"""The resolution of the clock: sums of instants are exact."""

START = 4096.0
"""What the clock shows at the beginning."""

READY_SECONDS = 1 / 16
"""How long a worker process takes to start."""

AGAIN_SECONDS = 1 / 4
"""After this time a task that has to wait for others is run again."""

CHANNELS, PIDS = 1 << 20, 1000
"""The first numbers of channels, which are no file descriptors, and of processes."""


OWN = "stop", "continue", "kill", "interrupt", "write"
"""What happens to the machine; all else is done by a user."""


class SleepsError(BaseException):
    """Ends a task that would sleep."""


@dataclass(frozen=True)
class Does:
    """What a worker process does with one task.

    how   "done": the function of the task is called; or "returns", "copies", "fails", "lacks",
          "exits", "killed", "garbles"
    what  what it returns: a value, or the records and bytes of a `TaskResult`; the seconds for
          which a task that is done has copied; the text of the failure; phase, task and attempt
          of the output that it lacks; the exit code; the signal
    stop  the seconds from a stop request to its end, and the value that it keeps; None: it does
          not stop. With a third value, a hook stops it
    """

    seconds: float
    how: str = "done"
    what: Any = None
    stop: tuple[Any, ...] | None = None


class At:
    """Something that happens at an instant, in seconds from the beginning.

    do    something that happens to the machine (`OWN`), with the numbers of worker processes in
          the order of their starts, or the path of a file. Else a user of a session calls this
          method of it, or "x.name", one of the result x. A user who still waits for a result
          does so after that
    to    the name of the result; "@x" as an argument stands for the result x
    """

    def __init__(self, at: float, do: str, *args: Any, to: str = "", **options: Any) -> None:
        self.at, self.do, self.args, self.to, self.options = at, do, args, to, options


@dataclass(frozen=True)
class Script:
    """What happens: tasks in the order in which they are sent, instants, seconds of commits.

    After the last of the tasks come the `others` again and again.
    """

    tasks: Sequence[Does] = ()
    at: Sequence[At] = ()
    others: Sequence[Does] = (Does(1.0),)
    commit_seconds: float = 0.25


class Machine:
    """Plays a script; `now` is the instant, and the thread that made it is the user."""

    def __init__(self, script: Script) -> None:
        self.now = START
        self._does = iter([*script.tasks])
        self._others = cycle(script.others)
        self._at = deque(sorted(script.at, key=lambda one: one.at))
        self._commit_seconds = script.commit_seconds
        self._user = threading.current_thread()
        self._others_before = {*threading.enumerate()} - {self._user}
        self._waits: dict[threading.Thread, Any] = {}
        self._orders: queue.Queue[At] = queue.Queue()
        self._results: dict[str, Any] = {}
        self._is_interrupted = self.has_slept = self.is_over = False
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self.workers: list[Worker] = []

    def next_task(self) -> Does:
        """What the worker that gets the next task does."""
        return next(self._does, None) or next(self._others)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function when this time is over."""
        self._later.append((self.now + seconds, len(self._later), function))

    # The user of a session.

    def use(self, session: Any) -> None:
        """Do in this thread what the script has for users, at the instants that it gives."""
        left = sum(not self._is_own(one) for one in self._at)
        for _ in range(left):
            order = self._orders.get()
            target: Any = session
            *of, name = order.do.split(".")
            if of:
                target = self._results[of[0]]
            given = [self._named(one) for one in order.args]
            options = {name: self._named(one) for name, one in order.options.items()}
            function = getattr(target, name)
            found = function(*given, **options)
            if order.to:
                self._results[order.to] = found

    def _named(self, given: Any) -> Any:
        is_name = isinstance(given, str) and given.startswith("@")
        return self._results[given[1:]] if is_name else given

    def _is_own(self, one: At) -> bool:
        return one.do in OWN

    # The thread that polls.

    def wait(self, seconds: float, ready: Callable[[], list[Any]]) -> list[Any]:
        """Let time pass until something is ready, or for this time; what is ready."""
        end = self.now + ceil(seconds / TICK) * TICK if seconds < inf else inf
        while True:
            self._rest()
            assert not self.is_over, "the user has failed"
            if found := ready():
                self._is_interrupted = False
                return found
            if self._is_interrupted:  # The user has not noticed it yet.
                SLEEP(0.0001)
                continue
            due = [(at, 0, number, call) for at, number, call in self._later]
            due += [(START + one.at, 1, 0, self._next) for one in [*self._at][:1]]
            due += [(w.due, 2, w.number, w.act) for w in self.workers if w.due < inf]
            at = min((one[0] for one in due), default=inf)
            if max(at, self.now) > end:
                self.now = end
                return []
            assert at < inf, "the script is over, and nothing else will happen"
            self.now = max(at, self.now)
            now = self.now
            self._later = [one for one in self._later if one[0] > now]
            for instant, _, _, act in sorted(due, key=lambda one: one[:3]):
                if instant <= now:
                    act()
                    self._rest()

    def _next(self) -> None:
        """Do the next thing in the script."""
        one = self._at.popleft()
        if one.do == "interrupt":
            self._is_interrupted = threading.current_thread() is not self._user
            signal.raise_signal(signal.SIGINT)
        elif one.do == "write":
            Path(*one.args).write_text("")
        elif self._is_own(one):
            for number in one.args:
                getattr(self.workers[number], f"be_{one.do}")()
        else:
            self._orders.put(one)

    def _rest(self) -> None:
        """Wait until all threads of slotwise, and the user, wait for something to happen."""
        me = threading.current_thread()
        while not self.is_over and not all(
            self._waits_now(thread)
            for thread in threading.enumerate()
            if thread is not me and thread not in self._others_before
        ):
            SLEEP(0.0001)

    def _waits_now(self, thread: threading.Thread) -> bool:
        found = self._waits.get(thread)
        if isinstance(found, threading.Thread):
            return found.is_alive()
        return found is not None and bool(found._waiters)  # Empty once it is notified.

    @contextmanager
    def waiting(self, what: Any) -> Iterator[None]:
        """This thread waits for a condition or a thread."""
        me = threading.current_thread()
        before = self._waits.get(me)
        self._waits[me] = what
        try:
            yield
        finally:
            self._waits[me] = before


SLEEP, POLL = time.sleep, select.poll
WAIT, JOIN = threading.Condition.wait, threading.Thread.join


class Poll:
    """`select.poll`, in which time passes as the machine says."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._real = machine, POLL()
        self._scripted: dict[int, int] = {}

    def register(self, channel: int, events: int = select.POLLIN) -> None:
        """Wait for a channel, too."""
        if channel < CHANNELS:
            self._real.register(channel, events)
        else:
            self._scripted[channel] = events

    def unregister(self, channel: int) -> None:
        """Wait for a channel no more."""
        if channel < CHANNELS:
            self._real.unregister(channel)
        else:
            del self._scripted[channel]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        """The channels that are ready, those of workers in the order of their starts."""
        seconds = inf if milliseconds is None else milliseconds / 1000
        return self._machine.wait(seconds, self._ready)

    def _ready(self) -> list[tuple[int, int]]:
        real = [(channel, event) for channel, event in self._real.poll(0)]
        workers = self._machine.workers
        readable = [c for c in self._scripted if workers[c - CHANNELS].messages]
        return real + [(channel, select.POLLIN) for channel in sorted(readable)]


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
    tasks: int = 0
    keys: set[str] = field(default_factory=set)
    unsent: tuple[()] = ()

    def __post_init__(self) -> None:
        self.number = len(self.machine.workers)
        self.machine.workers.append(self)
        self.channel, self.pid = CHANNELS + self.number, PIDS + self.number
        self.messages: deque[Any] = deque()
        self.due = self._ready_at = self.machine.now + READY_SECONDS
        self.is_stopped = self._has_ended = False
        self._code = 0
        self._server = _Server(memoryview(bytearray(40)).cast("d"))
        self._requests: deque[tuple[int, bytes]] = deque()  # All but the task.
        self._task = b""
        self._does: Does | None = None
        self._starts: float | None = None
        self._left = inf  # While it is stopped, the time until it acts after that.
        self._asked, self._waited = 0, 0.0
        self._is_stopping = False

    # What the manager calls.

    def send(self, what: int, body: bytes | bytearray) -> bool:
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

    def receive(self) -> tuple[int, float, float, bytes] | None:
        """The next message; the first one says that the process is ready."""
        message = self.messages.popleft()
        if message is EOFError or message is GarbledError:
            raise message
        self.ready = True
        return message

    def tell(self, until: float) -> None:
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

    def last_words(self) -> str:
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
        assert self._starts is not None
        self.messages.append((what, self._starts, self.machine.now - self._starts, body))

    def _result(self, does: Does) -> tuple[int, bytes] | None:
        """The type and the content of the reply; None if the task has to wait for others."""
        if does.how == "fails":
            return ERROR, pickle.dumps(does.what)
        if does.how == "lacks":
            phase, *outputs = does.what
            lost = LostInputError(phase, tuple(outputs), f"a file of {phase}")
            return ERROR, pickle.dumps(lost)
        self._server.answered(self._requests)
        key, arguments = pickle.loads(self._task)
        runner = self._server.runner(key)
        if runner is task.sleep:
            return DONE, pickle.dumps(None)
        if does.how == "returns" or hasattr(runner, "command"):
            _leave_output(runner, arguments)
            return DONE, pickle.dumps(does.what and TaskResult(*does.what))
        self.machine.has_slept = False
        what, body = self._server.answered(deque([(TASK, self._task)]))
        if self.machine.has_slept:
            self._waited += AGAIN_SECONDS
            return None
        if copying := does.what if does.how == "copies" else self._waited:
            body = pickle.dumps(pickle.loads(body)._replace(copying=copying))
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
            write=lambda what, started, seconds, body: replies.append((what, body)),
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


@contextmanager
def scripted(script: Script) -> Iterator[Machine]:
    """Let the local backend run on a scripted machine."""
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
            (processes, "is_stopped", lambda pid, by_us: is_stopped(pid)),
            (processes, "Pacer", lambda: MagicMock(is_held=lambda _, pid: is_stopped(pid))),
            (commits, "threading", SimpleNamespace(Thread=CommitThread)),
            (loop_thread, "SimpleQueue", queue.Queue),
        ]
        for module, attribute, by in of_modules:
            stack.enter_context(patch.object(module, attribute, by))
        try:
            yield machine
        finally:
            machine.is_over = True
