"""The manager's side of one worker process: starting it, talking to it, ending it."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from slotwise.runtime.local import worker
from slotwise.runtime.local.worker import REPLY, REQUEST, TASK, TOKEN_BYTES, WORD_BYTES

COMMAND = (
    sys.executable,
    "-P",  # The folder of the script must not hide modules of the user.
    *("-X", "faulthandler"),  # A crash in native code says on stderr where it was.
    worker.__file__,
)
"""Starts a worker by its file: as a module it would import our package before any task."""

CHUNK = 1 << 16
"""Bytes received in one call; requests below this size are sent in one."""


class GarbledError(Exception):
    """What came over the channel was not sent by our side of the worker."""


class WorkerProcess:
    """One worker process: its life, its channel, its lifeline; nothing here waits long."""

    def __init__(self, environment: Mapping[str, str], unready: int) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        lifeline, ours = os.pipe()
        self._lifeline = open(ours, "wb", buffering=0)  # noqa: SIM115
        page, self._word = _shared_word()
        passed = theirs.fileno(), lifeline, page
        self._token = os.urandom(TOKEN_BYTES)
        # A worker is born deaf to SIGTERM: it hears once it can do so without dying of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            self._process = subprocess.Popen(
                [*COMMAND, *map(str, passed), self._token.hex()],
                env=environment,
                pass_fds=passed,
                start_new_session=True,  # A group to kill; and Ctrl-C is for the manager alone.
                stdin=subprocess.DEVNULL,
                stdout=2,  # What user code prints must not mix with our own output.
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            os.close(lifeline)
            os.close(page)
        self.channel = self._socket.fileno()
        self.pid = self._process.pid
        self.unready = unready
        self.ready = False
        self.busy = False
        self.tasks = 0
        self.keys: set[str] = set()
        self.unsent: deque[memoryview] = deque()
        self._killed = False
        self._begun = b""
        self._head: list[Any] | None = None
        self._body: bytes | bytearray = b""
        self._missing = memoryview(b"")

    def send(self, what: int, body: bytes | bytearray) -> bool:
        """Sends a request, or as much of it as goes without waiting; False if it is dead."""
        self.tasks += what == TASK
        head = REQUEST.pack(self._token, what, len(body))
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

        GarbledError if user code has written to the channel; MemoryError if there is no room
        for the reply. Nothing can be received any more then.

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
        if not self.ready and len(data) >= TOKEN_BYTES:
            self.ready, data = self._is_ours(data), data[TOKEN_BYTES:]
        self._is_ours(data)
        if len(data) < REPLY.size:
            self._begun = data
            return len(chunk)
        _, *self._head, length = REPLY.unpack_from(data)
        self._begun, self._body = b"", data[REPLY.size :]
        if len(self._body) < length:
            # The rest of a large body is received in place, and copied no more.
            first, self._body = self._body, bytearray(length)
            self._body[: len(first)] = first
            self._missing = memoryview(self._body)[len(first) :]
        return len(chunk)

    def _is_ours(self, data: bytes) -> bool:
        """True of data that begins with the token, or with a part of it; else GarbledError."""
        if self._token.startswith(data[:TOKEN_BYTES]):
            return True
        raise GarbledError

    def _take_more(self) -> int:
        got = self._socket.recv_into(self._missing)
        self._missing = self._missing[got:]
        return got

    def tell(self, until: float) -> None:
        """Tells the task that was sent last to stop; it is to be killed at that instant.

        Who is told again learns of the new instant, but is not woken up a second time. If the
        task has just ended, nobody is told.
        """
        was_asked_to_stop = self._word[0] == self.tasks
        self._word[1] = until
        self._word[0] = self.tasks
        if not was_asked_to_stop:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process and all of its group by SIGKILL, and drops what is under way."""
        if self._killed:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._killed = True  # Once only: later the number may be that of another process.
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


def _shared_word() -> tuple[int, memoryview[float]]:
    """Memory to share with a worker: a file descriptor to hand on, and our view of it."""
    page = os.memfd_create("slotwise")
    os.truncate(page, WORD_BYTES)
    return page, memoryview(mmap.mmap(page, WORD_BYTES)).cast("d")
