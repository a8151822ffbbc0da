"""The process of a slot: reads tasks from its manager, runs them and sends back the results.

It runs as a script (see `process.py`) and imports no module of slotwise at its start, so that
an idle worker costs 10 ms and 10 MB. The modules of a task are imported when its runner is
first unpickled. Both directions carry frames: a fixed head, then a pickle of the length that
the head gives.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import pickle
import signal
import struct
import sys
import time
from _signal import getsignal as handler_of  # type: ignore[import-not-found]
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from slotwise.task import RunningAttempt


TOKEN_BYTES = 8
"""Length of the token at the start of each frame, a secret of the manager and the worker.

It detects user code that reads or writes the channel through descriptors that it did not open.
"""

REQUEST = struct.Struct(f"={TOKEN_BYTES}sBQ")
"""Head of a frame to the worker: token, type, length of the pickle."""
RUNNER, TASK, FORGET, KEPT, VARIABLES = range(5)

REPLY = struct.Struct(f"={TOKEN_BYTES}sBddQQ")
"""Head of a frame from the worker: token, type, start, seconds, peak, length of the pickle."""
DONE, ERROR, STOPPED, TORN, BYTES = range(5)
"""The body is a pickle after DONE, STOPPED and TORN, JSON after ERROR, and after BYTES a result
that is bytes itself. TORN: a hook stopped the task, perhaps inside an import, so its worker is
replaced."""

TYPED = {
    ("slotwise.jobs.execution", "LostInputError"),
    ("slotwise.jobs.execution", "LostAttemptError"),
    ("slotwise.core.errors", "InputChanged"),
    ("slotwise.core.errors", "NotRetriedError"),
}
"""The modules and names of the errors that are sent with their arguments, not as text."""

WORD_BYTES = 56
"""Size of the shared memory: seven doubles, of which the manager writes the first two.

The first is the number of the task that is asked to stop, counted from 1 for each worker. The
second is the instant at which it is killed, as `time.monotonic()`. The worker writes the
others: the number of the task that has reported progress, the amount done, and the total; and
the number of the task that has begun, and the bytes of memory that its processes use, or `OWN`.
"""

OWN = -1
"""Stands for the memory of the worker and its descendants, until a task reports another one."""


KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
"""The number of the system call `keyctl`."""

JOIN_SESSION_KEYRING = 1
"""An operation of it."""

PEAK_SECONDS = 0.002
"""The peak of a task that took less is not measured: that would take a hundredth of this time.

Such a task cannot fill much memory. What it fills counts for the next task that is measured.
"""


def main(channel: int, lifeline: int, page: int, token: bytes, home: str = "") -> None:
    """Serve until the manager closes the channel; the numbers are file descriptors.

    The token, sent alone before all frames, signals that the worker is ready. `home` is the
    folder of an account for its worker, if it may enter it.
    """
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)
    die_with_manager(lifeline)
    if home:
        leave_keyring()
        with suppress(OSError):
            os.chdir(home)
    word = memoryview(mmap.mmap(page, WORD_BYTES)).cast("d")
    os.close(page)
    server = Server(word)
    server.listen()
    reset_signals()  # The manager blocked SIGTERM before the fork.
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=server.leave)
    write_whole()
    # A killed worker cannot flush: its output must appear up to the last whole line.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    link = Link(channel, token)
    os.write(channel, token)
    try:
        server.serve(link)
    except SystemExit as leaving:
        # A normal exit would wait for threads left by a task, with the channel open.
        sys.stdout.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else leaving.code is not None)


def leave_keyring() -> None:
    """Give this process a session keyring of its own in the kernel, which is empty.

    Keys of who has started the server, such as tickets, are not for the code of users.
    """
    import ctypes

    number = KEYCTL.get(os.uname().machine)
    if number is not None:  # Where the kernel refuses it, there are no keyrings.
        ctypes.CDLL(None).syscall(number, JOIN_SESSION_KEYRING, None)


def die_with_manager(lifeline: int) -> None:
    """Make the kernel kill this process group when the manager's end of the lifeline closes.

    Only the manager holds the other end, and it never writes: the only event is its death, even
    by SIGKILL. Unlike the parent-death signal of prctl, this also reaches the children of user
    code, works during native code, and does not depend on the thread that started the worker.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        os.read(lifeline, 1)  # Returns only if the manager died before the lines above.
    except BlockingIOError:
        return
    os._exit(1)


def reset_signals() -> None:
    """Reset inherited signals that are ignored to their defaults, and unblock all signals.

    For instance, a parent that ignores SIGCHLD would hide the exit codes of our children.
    SIGHUP stays ignored, because nohup sets that, and so do the signals that Python ignores.
    """
    stays = {signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - stays:
        if handler_of(number) == signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(
                number, signal.default_int_handler if is_interrupt else signal.SIG_DFL
            )
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def block() -> None:
    """Block SIGTERM. During a fork, the child could take it instead of this process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def unblock() -> None:
    """Unblock SIGTERM; a pending one is delivered."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


class Link:
    """The worker's end of the channel. It is closed in children that user code forks."""

    def __init__(self, channel: int, token: bytes) -> None:
        self._channel = channel
        self._token = token
        self._reader: BinaryIO = open(channel, "rb", buffering=1 << 16, closefd=False)  # noqa: SIM115
        # Otherwise the manager would not see the end of a worker that has live children.
        os.register_at_fork(after_in_child=self._cut)

    def read(self) -> tuple[int, bytes] | None:
        """The next request and its pickle.

        None if the manager has disconnected, even within a frame, or if user code has read from
        the channel, so that the start of the next frame is unknown.
        """
        try:
            head = self._reader.read(REQUEST.size)
            if len(head) < REQUEST.size:
                return None
            token, what, length = REQUEST.unpack(head)
            if token != self._token:
                print(
                    "slotwise: a task has read from the channel of its worker", file=sys.stderr
                )
                return None
            body = self._reader.read(length)
        except ConnectionResetError:
            return None
        return (what, body) if len(body) == length else None

    def write(self, what: int, started: float, seconds: float, body: bytes, peak: int) -> None:
        """Send one reply; block until the manager has received it."""
        head = REPLY.pack(self._token, what, started, seconds, peak, len(body))
        if len(body) < 1 << 16:
            pieces = [memoryview(head + body)]
        else:
            pieces = [memoryview(head), memoryview(body)]  # Avoids copying a large result.
        for piece in pieces:
            while piece:
                piece = piece[os.write(self._channel, piece) :]

    def _cut(self) -> None:
        os.close(self._channel)
        self._channel = -1


class Server:
    """Serves the requests of the manager, and handles SIGTERM as a stop request to the task.

    The signal only wakes the worker up. The shared word holds the number of the task and the
    instant. A signal after the end of its task, or from another process, thus has no effect.
    """

    def __init__(self, word: memoryview[float]) -> None:
        self._word = word
        self._pickles: dict[str, bytes] = {}
        self._runners: dict[str, Callable[..., object]] = {}
        self._kept: bytes | None = None  # what an earlier attempt of the next task has kept
        self._path = list(sys.path)
        self._number = 0
        self._attempt: RunningAttempt | None = None
        self._reported = 0  # the peak that the code of the last task has measured
        self._meter = PeakMeter()

    def serve(self, link: Link) -> None:
        """Answer each task with one reply; an exception of user code is sent as a string."""
        while request := link.read():
            what, body = request
            if what == TASK:
                self._number += 1
                self.listen()
                self._reported, began = 0, time.monotonic()
                reply = self.answer(body)
                peak = self._reported
                if not peak and time.monotonic() - began >= PEAK_SECONDS:
                    peak = self._meter.take()
                link.write(*reply, peak)
                self._kept = None
                del reply
            elif what == RUNNER:
                path, key, runner = pickle.loads(body)
                # On another host, packages may be in other folders.
                sys.path[:] = [*path, *(place for place in self._path if place not in path)]
                self._pickles[key] = runner
            elif what == KEPT:
                self._kept = body
            elif what == VARIABLES:
                os.environ.update(pickle.loads(body))
            else:
                key = pickle.loads(body)
                self._pickles.pop(key, None)
                self._runners.pop(key, None)
            del request, body  # Frees a large argument before the next wait.

    def listen(self) -> None:
        """Make `on_signal` the handler, replacing one that user code may have left."""
        # Called for each task: signal.getsignal would take a tenth of the time of a small one.
        if handler_of(signal.SIGTERM) != self.on_signal:
            signal.signal(signal.SIGTERM, self.on_signal)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM. May raise Stopped, but only within the code of the task.

        If the frame is that of `_run`, the task's function has returned or has not begun.
        """
        if self._attempt is None or frame is None or frame.f_code is Server._run.__code__:
            return
        self._attempt.on_signal()

    def leave(self) -> None:
        """Make SIGTERM end a child that user code forked, like any other process."""
        if handler_of(signal.SIGTERM) == self.on_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        unblock()

    def answer(self, body: bytes) -> tuple[int, float, float, bytes]:
        """Run one pickled task: type of reply, start, seconds, pickle of result or error."""
        started = seconds = 0.0
        trouble = "the arguments of the task cannot be read in a worker process"
        try:
            key, arguments = pickle.loads(body)
            trouble = "the function of the task cannot be loaded in a worker process"
            if key not in self._runners:
                self._runners[key] = pickle.loads(self._pickles[key])
            run = self._runners[key]
            trouble = ""
            started = time.monotonic()
            try:
                what, value = self._run(run, arguments)
            finally:
                seconds = time.monotonic() - started
            if what != DONE and value is None:
                return what, started, seconds, b""
            if what == DONE and type(value) is bytes:
                return BYTES, started, seconds, value
            role = "a result" if what == DONE else "what is kept"
            trouble = (
                f"{role}, of type {type(value).__name__}, cannot be sent between processes"
            )
            return what, started, seconds, pickled(value)
        except SystemExit:
            raise
        except BaseException as error:  # Those of asyncio do not all derive from Exception.
            text = f"{trouble}: {summary(error)}" if trouble else text_of(error)
            return ERROR, started, seconds, error_body(error, text)

    def _run(
        self, run: Callable[..., object], arguments: tuple[object, ...]
    ) -> tuple[int, object]:
        """Call the task's function: the type of reply, and the result or the kept value."""
        import slotwise.core.tracebacks  # noqa: F401  # The import path is not known earlier.
        from slotwise import task

        kept, self._kept = self._kept, None
        self._attempt = attempt = task.begin(
            self._until(), kept, self._report, self._report_memory
        )
        del kept  # Frees the pickle once it is unpickled.
        try:
            self._report_memory(OWN)
            return DONE, run(*arguments)
        except BaseException as error:
            stopped = attempt.stopped
            if stopped is None or isinstance(error, SystemExit):
                raise
            if error is not stopped:
                print(
                    "slotwise: a task that stopped then failed:",
                    text_of(error),
                    file=sys.stderr,
                )
            stopped.__traceback__ = None  # Its frames keep the task's objects alive.
            return TORN if attempt.torn else STOPPED, stopped.value
        finally:
            self._attempt, self._reported = None, attempt.peak
            task.end()
            flush()

    def _until(self) -> Callable[[], float | None]:
        """A function that returns when the next task is killed, or None without a request."""
        word, number = self._word, self._number
        return lambda: word[1] if word[0] == number else None

    def _report(self, done: float, total: float) -> None:
        """Write the progress of the current task to the shared memory."""
        self._word[3], self._word[4] = done, total
        self._word[2] = self._number

    def _report_memory(self, size: int) -> None:
        """Write the memory of the processes of the current task to the shared memory."""
        self._word[6] = size
        self._word[5] = self._number


class PeakMeter:
    """Measures the peak of the resident memory of this process, from one task to the next."""

    def __init__(self, folder: str = "/proc/self") -> None:
        """`folder` has the files of this process."""
        self._folder = folder
        self._known = 0  # the peak that can still be seen although its task is over

    def take(self) -> int:
        """The peak in bytes since the last call, or 0 if it is not known.

        It is not known where the kernel's peak cannot be reset and has not grown. Costs about
        20 microseconds.
        """
        try:
            with open(f"{self._folder}/status", "rb", buffering=0) as file:
                status = file.read(4096)
            peak = int(status[status.index(b"VmHWM:") + 6 :].split(None, 1)[0]) << 10
        except (OSError, ValueError):
            return 0
        if peak <= self._known:
            return 0
        try:
            with open(f"{self._folder}/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")
        except OSError:
            self._known = peak
        return peak


FULL_SECONDS = 0.001
"""Seconds until a write to a full pipe that does not block is tried again."""


class WholeFile(io.FileIO):
    """A file without a buffer that writes all it gets, also where signals cut writes short."""

    def write(self, data: Any) -> int:
        """Write all of it."""
        left = whole = memoryview(data).cast("B")
        while left:
            written: int | None = super().write(left)
            if written is None:  # Some program has made the pipe one that does not block.
                time.sleep(FULL_SECONDS)
            left = left[written or 0 :]
        return len(whole)


def write_whole() -> None:
    """Let stdout and stderr lose nothing where PYTHONUNBUFFERED is set.

    Without a buffer, Python writes once and drops what that did not take, such as the rest of
    a long text in which the process was stopped to let others run.
    """
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if isinstance(stream.buffer, io.RawIOBase):
            file = WholeFile(stream.fileno(), "w", closefd=False)
            form = {"encoding": stream.encoding, "errors": stream.errors}
            whole = io.TextIOWrapper(file, **form, write_through=True)
            setattr(sys, name, whole)
            setattr(sys, f"__{name}__", whole)


def flush() -> None:
    """Write what a task has printed without a line break, so that no other task gets it.

    Without such output it makes no system call.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # It was closed or replaced.
            stream.flush()


def pickled(value: Any) -> bytes:
    """Pickle a value by plain pickle, which is fast, or by cloudpickle if needed.

    Plain pickle stores classes of `__main__` by name, which is a different module in the other
    process.
    """
    try:
        plain = pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    else:
        if b"__main__" not in plain:
            return plain
    from slotwise.jobs.pickling import pickled_by_value

    return pickled_by_value(value)


def error_body(error: BaseException | None, text: str) -> bytes:
    """The body after ERROR, in JSON: "" and the text; for `TYPED`, the name and arguments."""
    import json

    kind, arguments = type(error), (text,)
    if (kind.__module__, kind.__name__) not in TYPED:
        return json.dumps(["", text]).encode()
    if error is not None and kind.__name__ != "InputChanged":
        arguments = error.args
    return json.dumps([kind.__name__, *arguments], default=str).encode()


def summary(error: BaseException) -> str:
    """The type and message of an error on one line, even if its `__str__` fails."""
    import traceback

    formatted = traceback.TracebackException(type(error), error, None)
    formatted.__notes__ = None
    return list(formatted.format_exception_only())[-1].strip()


def text_of(error: BaseException) -> str:
    """The formatted traceback of the error of a task."""
    from slotwise.core.tracebacks import format_traceback  # Imported before any task.

    return format_traceback(error)


if __name__ == "__main__":
    channel, lifeline, page = map(int, sys.argv[1:4])
    main(channel, lifeline, page, bytes.fromhex(sys.argv[4]), *sys.argv[5:])
