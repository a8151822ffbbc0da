"""Reads what worker processes print, and passes it to their attempts and to the terminal.

Stdout and stderr of a worker are pipes. What an attempt has printed is read before its reply is
handled, so that each byte belongs to the attempt in whose time it was written. That costs no
system call: in a `poll` of all workers, the pipes of all of them count as one channel, which
comes last. If a reply is found before, so is everything that was printed before it.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import FileIO
from typing import cast

from slotwise.backends.attempt_logs import ERR, OUT, STREAMS, Printing

READ_BYTES = 1 << 16
"""Bytes read in one call: all that a pipe holds."""

WRITE_BYTES = 4096
"""Bytes that a pipe takes without blocking if `poll` says that it takes any."""

UNSENT_BYTES_MAX = 1 << 20
"""Bytes that wait for a terminal that is stopped, before everything waits for it."""

Attend = Callable[[int, int, Callable[[int], None]], None]
"""See `Processes.attend`."""


def pipe() -> tuple[FileIO, FileIO]:
    """The ends of a pipe, for reading without blocking and for writing."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    return FileIO(read_end), FileIO(write_end, "w")


@dataclass(slots=True, eq=False)
class WorkerOutput:
    """The pipes of a worker by stream, and the attempt to which their contents belong."""

    pipes: dict[str, FileIO]
    attempt: Printing | None = None

    def end_attempt(self) -> None:
        """Note that the attempt has ended, and that all of its output was read."""
        if self.attempt is not None:
            self.attempt.close()
            self.attempt = None


class OutputReader:
    """Reads the pipes of workers; `channel` is ready for reading if one of them is.

    The output of an attempt that is shown, and what is printed outside of attempts, is written
    to the descriptor `stdout`, or to that of stderr.
    """

    def __init__(self, stdout: int, attend: Attend) -> None:
        self._epoll = select.epoll()
        self.channel = self._epoll.fileno()
        self._workers: dict[int, tuple[str, WorkerOutput]] = {}  # by descriptor
        error = Terminal(2, attend)
        self._terminals = {OUT: error if stdout == 2 else Terminal(stdout, attend), ERR: error}

    def add(self, worker: WorkerOutput) -> None:
        """Read the pipes of a worker, until it and all its children have ended."""
        for stream in STREAMS:
            descriptor = worker.pipes[stream].fileno()
            self._workers[descriptor] = stream, worker
            self._epoll.register(descriptor, select.EPOLLIN)

    def read_ready(self) -> None:
        """Read the pipes that are ready."""
        for descriptor, _ in self._epoll.poll(0):
            self._read(descriptor)

    def read(self, workers: Iterable[WorkerOutput]) -> None:
        """Read all that is in the pipes of some workers."""
        for worker in workers:
            for file in worker.pipes.values():
                if not file.closed:
                    self._read(file.fileno())

    def close(self) -> None:
        """Read what is left in all pipes, after the end of the workers."""
        self.read([worker for _, worker in self._workers.values()])
        for descriptor in list(self._workers):
            self._end(descriptor)
        self._epoll.close()
        for terminal in self._terminals.values():
            terminal.close()

    def _read(self, descriptor: int) -> None:
        stream, worker = self._workers[descriptor]
        data = cast("bytes | None", worker.pipes[stream].read(READ_BYTES))
        if data:
            if worker.attempt is None or worker.attempt.is_shown:
                self._terminals[stream].write(data)
            if worker.attempt is not None:
                worker.attempt.write(stream, data)
        elif data is not None:
            self._end(descriptor)

    def _end(self, descriptor: int) -> None:
        """Close a pipe to which no process can write any more."""
        stream, worker = self._workers.pop(descriptor)
        self._epoll.unregister(descriptor)
        worker.pipes[stream].close()
        if worker.attempt is not None:
            worker.attempt.close()


class Terminal:
    """A descriptor of the caller, to which output is written without blocking while possible.

    If it takes nothing, for example because a user has stopped it, up to `UNSENT_BYTES_MAX`
    wait for it. After that, writing blocks. Output is dropped if it cannot be written.
    """

    def __init__(self, descriptor: int, attend: Attend) -> None:
        self._descriptor, self._attend = descriptor, attend
        self._unsent = bytearray()
        self._is_attended = False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, data: bytes) -> None:
        """Write some bytes, now or later."""
        self._unsent += data
        self._write_ready(select.POLLOUT)
        self._block(UNSENT_BYTES_MAX)

    def close(self) -> None:
        """Write all that is left."""
        self._block(0)

    def _block(self, most: int) -> None:
        while len(self._unsent) > most:
            self._poll.poll()
            self._write_some()

    def _write_ready(self, event: int) -> None:
        while self._unsent and self._poll.poll(0):
            self._write_some()
        if self._is_attended != bool(self._unsent):
            self._is_attended = bool(self._unsent)
            events = select.POLLOUT if self._unsent else 0
            self._attend(self._descriptor, events, self._write_ready)

    def _write_some(self) -> None:
        try:
            written = os.write(self._descriptor, self._unsent[:WRITE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # Its reader has closed it, or its disk is full.
            written = len(self._unsent)
        del self._unsent[:written]
