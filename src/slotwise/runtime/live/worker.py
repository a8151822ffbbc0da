"""The process behind a slot: reads tasks from its manager, runs them, writes back what came.

It is run as a script (see `workers.py`) and imports none of our packages: one that only waits
costs 10 ms and 10 MB. What a task needs is imported when its runner is first unpickled.
Both directions carry frames: a fixed head, then as many bytes of pickle as the head says.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, BinaryIO

REQUEST = struct.Struct("=BQ")
"""Head of a frame to the worker: what it is, length of the pickle."""
RUNNER, TASK, FORGET = range(3)

REPLY = struct.Struct("=BddQ")
"""Head of a frame from the worker: what it is, start, seconds, length of the pickle."""
DONE, ERROR = range(2)

READY = b"r"
"""The first byte from a worker, before all frames: it has started."""


def main(channel: int, lifeline: int) -> None:
    """Serves until the manager closes the channel; both arguments are file descriptors."""
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)
    die_with_manager(lifeline)
    # A killed worker cannot flush: what it printed is to be seen up to the last whole line.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    link = Link(channel)
    os.write(channel, READY)
    try:
        serve(link)
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


class Link:
    """The worker's end of the channel. A child that user code forks off loses it."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._reader: BinaryIO = open(channel, "rb", buffering=1 << 16, closefd=False)  # noqa: SIM115
        # Else the manager would not see the end of a worker whose children live on.
        os.register_at_fork(after_in_child=self._cut)

    def read(self) -> tuple[int, bytes] | None:
        """The next request and its pickle; None if the manager has gone, even in mid-frame."""
        try:
            head = self._reader.read(REQUEST.size)
            if len(head) < REQUEST.size:
                return None
            what, length = REQUEST.unpack(head)
            body = self._reader.read(length)
        except ConnectionResetError:
            return None
        return (what, body) if len(body) == length else None

    def write(self, what: int, started: float, seconds: float, body: bytes) -> None:
        """Sends one reply; blocks until the manager has taken it."""
        head = REPLY.pack(what, started, seconds, len(body))
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


def serve(link: Link) -> None:
    """Answers each task with one reply; whatever user code raises becomes its text."""
    pickles: dict[str, bytes] = {}
    runners: dict[str, Callable[..., object]] = {}
    while request := link.read():
        what, body = request
        if what == TASK:
            link.write(*answer(body, pickles, runners))
        elif what == RUNNER:
            sys.path[:], key, runner = pickle.loads(body)
            pickles[key] = runner
        else:
            key = pickle.loads(body)
            pickles.pop(key, None)
            runners.pop(key, None)
        del request, body  # A large argument is not kept while waiting for the next.


def answer(
    task: bytes, pickles: dict[str, bytes], runners: dict[str, Callable[..., object]]
) -> tuple[int, float, float, bytes]:
    """Runs one pickled task: kind of reply, start, seconds, pickle of the result or text."""
    started = seconds = 0.0
    trouble = "the arguments of the task cannot be read in a worker process"
    try:
        key, arguments = pickle.loads(task)
        trouble = "the function of the task cannot be loaded in a worker process"
        if key not in runners:
            runners[key] = pickle.loads(pickles[key])
        run = runners[key]
        trouble = ""
        started = time.monotonic()
        try:
            result = run(*arguments)
        finally:
            seconds = time.monotonic() - started
        trouble = f"a result of type {type(result).__name__} cannot be sent between processes"
        return DONE, started, seconds, pickled(result)
    except SystemExit:
        raise
    except (
        BaseException
    ) as error:  # Also what asyncio and test frameworks raise beside Exception.
        text = f"{trouble}: {summary(error)}" if trouble else story(error)
        return ERROR, started, seconds, pickle.dumps(text)


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
    """The traceback as text, from the first frame of user code on if it has any."""
    import traceback

    trace = error.__traceback__.tb_next if error.__traceback__ else None
    error.__traceback__ = without_ours(trace) or trace
    return "".join(traceback.format_exception(error)).strip()


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins outside the slotwise package."""
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
    while trace and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
