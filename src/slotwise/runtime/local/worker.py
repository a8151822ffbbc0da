"""The process behind a slot: reads tasks from its manager, runs them, writes back what came.

It is run as a script (see `workers.py`) and imports none of our packages: one that only waits
costs 10 ms and 10 MB. What a task needs is imported when its runner is first unpickled.
Both directions carry frames: a fixed head, then as many bytes of pickle as the head says.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import signal
import struct
import sys
import time
from _signal import getsignal as handler_of  # type: ignore[import-not-found]
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from slotwise.task import Attempt

TOKEN_BYTES = 8
"""Each frame begins with a token that only the manager and the worker know: user code may write
to the channel, or read from it, if it takes file descriptors that it did not open."""

REQUEST = struct.Struct(f"={TOKEN_BYTES}sBQ")
"""Head of a frame to the worker: the token, what it is, length of the pickle."""
RUNNER, TASK, FORGET, KEPT = range(4)

REPLY = struct.Struct(f"={TOKEN_BYTES}sBddQ")
"""Head of a frame from the worker: token, what it is, start, seconds, length of the pickle."""
DONE, ERROR, STOPPED, TORN = range(4)
"""Torn is a task that a hook has stopped: an import, say, may be half done; its worker goes."""

WORD_BYTES = 16
"""Two doubles in memory shared with the manager, which alone writes: who is told, until when.

The first is the number of the task that is told to stop, counted from 1 for each worker; the
second is the instant at which it is killed, as `time.monotonic()`.
"""


def main(channel: int, lifeline: int, page: int, token: bytes) -> None:
    """Serves until the manager closes the channel; the numbers are file descriptors.

    The token, sent alone before all frames, says that the worker has started.
    """
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)
    die_with_manager(lifeline)
    word = memoryview(mmap.mmap(page, WORD_BYTES, prot=mmap.PROT_READ)).cast("d")
    os.close(page)
    server = Server(word)
    server.listen()
    unblock()  # The manager has blocked it.
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=server.leave)
    # A killed worker cannot flush: what it printed is to be seen up to the last whole line.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    link = Link(channel, token)
    os.write(channel, token)
    try:
        server.serve(link)
    except SystemExit as leaving:
        # An ordinary exit would wait for threads that a task left, with the channel open.
        sys.stdout.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else leaving.code is not None)


def die_with_manager(lifeline: int) -> None:
    """Has the kernel kill this process group once the manager's end of the lifeline is closed.

    The manager alone holds the other end and never writes, so the only news is its death,
    even by SIGKILL. Unlike the parent-death signal of prctl this reaches the children of user
    code too, works in the midst of native code, and cares not which thread started us.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        os.read(lifeline, 1)  # Returns only if the manager died before the lines above.
    except BlockingIOError:
        return
    os._exit(1)


def block() -> None:
    """Lets SIGTERM wait. While a process forks, it would be lost to the child."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def unblock() -> None:
    """Takes SIGTERM again, and what has come meanwhile."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


class Link:
    """The worker's end of the channel. A child that user code forks off loses it."""

    def __init__(self, channel: int, token: bytes) -> None:
        self._channel = channel
        self._token = token
        self._reader: BinaryIO = open(channel, "rb", buffering=1 << 16, closefd=False)  # noqa: SIM115
        # Else the manager would not see the end of a worker whose children live on.
        os.register_at_fork(after_in_child=self._cut)

    def read(self) -> tuple[int, bytes] | None:
        """The next request and its pickle.

        None if the manager has gone, even in mid-frame, or if user code has read from the
        channel, so that nobody knows where the next frame begins.
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

    def write(self, what: int, started: float, seconds: float, body: bytes) -> None:
        """Sends one reply; blocks until the manager has taken it."""
        head = REPLY.pack(self._token, what, started, seconds, len(body))
        if len(body) < 1 << 16:
            pieces = [memoryview(head + body)]
        else:
            pieces = [memoryview(head), memoryview(body)]  # Copies no large result once more.
        for piece in pieces:
            while piece:
                piece = piece[os.write(self._channel, piece) :]

    def _cut(self) -> None:
        os.close(self._channel)
        self._channel = -1


class Server:
    """Does what is asked of the worker, and hears SIGTERM: the task that runs is told to stop.

    The signal only wakes up; whom it means, and until when, stands in the shared word. So a
    signal that comes after its task has ended, or from elsewhere, means nobody.
    """

    def __init__(self, word: memoryview[float]) -> None:
        self._word = word
        self._pickles: dict[str, bytes] = {}
        self._runners: dict[str, Callable[..., object]] = {}
        self._kept: bytes | None = None  # what an earlier attempt of the next task has kept
        self._number = 0
        self._attempt: Attempt | None = None

    def serve(self, link: Link) -> None:
        """Answers each task with one reply; whatever user code raises becomes its text."""
        while request := link.read():
            what, body = request
            if what == TASK:
                self._number += 1
                self.listen()
                link.write(*self.answer(body))
                self._kept = None
            elif what == RUNNER:
                sys.path[:], key, runner = pickle.loads(body)
                self._pickles[key] = runner
            elif what == KEPT:
                self._kept = body
            else:
                key = pickle.loads(body)
                self._pickles.pop(key, None)
                self._runners.pop(key, None)
            del request, body  # A large argument is not kept while waiting for the next.

    def listen(self) -> None:
        """Makes `hear` the handler, in the place of one that user code may have left."""
        # Asked for each task: signal.getsignal would take a tenth of the time of a small one.
        if handler_of(signal.SIGTERM) != self.hear:
            signal.signal(signal.SIGTERM, self.hear)

    def hear(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGTERM. May raise Stopped, but only within the code of the task.

        Where the frame is ours, the task's function has returned, or not even begun.
        """
        if self._attempt is None or frame is None or frame.f_code is Server._run.__code__:
            return
        self._attempt.hear()

    def leave(self) -> None:
        """Makes SIGTERM end a child that user code has forked off, like any other process."""
        if handler_of(signal.SIGTERM) == self.hear:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        unblock()

    def answer(self, body: bytes) -> tuple[int, float, float, bytes]:
        """Runs one pickled task: kind of reply, start, seconds, pickle of result or text."""
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
            role = "a result" if what == DONE else "what is kept"
            trouble = (
                f"{role}, of type {type(value).__name__}, cannot be sent between processes"
            )
            return what, started, seconds, pickled(value)
        except SystemExit:
            raise
        except (
            BaseException
        ) as error:  # Also what asyncio and test frameworks raise beside Exception.
            text = f"{trouble}: {summary(error)}" if trouble else story(error)
            return ERROR, started, seconds, pickle.dumps(text)

    def _run(
        self, run: Callable[..., object], arguments: tuple[object, ...]
    ) -> tuple[int, object]:
        """Calls the task's function: what came of it, and its result or what it has kept."""
        from slotwise import task  # Where it can be imported from was not known earlier.

        kept, self._kept = self._kept, None
        self._attempt = attempt = task.begin(self._until(), kept)
        del kept  # Once it is unpickled, it takes no memory twice.
        try:
            return DONE, run(*arguments)
        except BaseException as error:
            stopped = attempt.stopped
            if stopped is None or isinstance(error, SystemExit):
                raise
            if error is not stopped:
                print(
                    "slotwise: a task that stopped then failed:", story(error), file=sys.stderr
                )
            stopped.__traceback__ = None  # Its frames hold all that the task held.
            return TORN if attempt.torn else STOPPED, stopped.value
        finally:
            self._attempt = None
            task.end()

    def _until(self) -> Callable[[], float | None]:
        """Says until when the task that now begins may run, once it has been told to stop."""
        word, number = self._word, self._number
        return lambda: word[1] if word[0] == number else None


def pickled(value: Any) -> bytes:
    """The pickle of a value: plain and fast, by cloudpickle where that alone can do it.

    Plain pickle names classes of `__main__`, which is another module in the other process.
    """
    try:
        plain = pickle.dumps(value, protocol=5)
    except Exception:
        pass
    else:
        if b"__main__" not in plain:
            return plain
    import cloudpickle

    by_value: bytes = cloudpickle.dumps(value, protocol=5)
    return by_value


def summary(error: BaseException) -> str:
    """Kind and message of an error on one line, whatever its `__str__` does."""
    import traceback

    return traceback.format_exception_only(error)[-1].strip()


def story(error: BaseException) -> str:
    """The traceback as text, from the first frame of user code on if it has any.

    Before it stands which input was being read, if the error was told. Messages of our own are
    enough without a traceback.
    """
    if type(error).__module__ == "slotwise.model.errors":
        return str(error)
    import traceback

    trace = error.__traceback__.tb_next if error.__traceback__ else None
    error.__traceback__ = without_ours(trace) or trace
    where = vars(error).get("slotwise_where", "")  # See slotwise.program.formats.places.
    text = "".join(traceback.format_exception(error)).strip()
    return f"{where}: {text}" if where else text


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins outside the slotwise package."""
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
    while trace and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    channel, lifeline, page = map(int, sys.argv[1:4])
    main(channel, lifeline, page, bytes.fromhex(sys.argv[4]))
