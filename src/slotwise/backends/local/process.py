"""The manager's side of one worker process: its start, messages and end."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from math import inf, isfinite
from typing import Any

from slotwise.backends.attempt_logs import ERR, OUT
from slotwise.backends.local import worker
from slotwise.backends.local.output import WorkerOutput, pipe
from slotwise.backends.local.worker import (
    BYTES,
    DONE,
    OWN,
    REPLY,
    REQUEST,
    TASK,
    TOKEN_BYTES,
    WORD_BYTES,
)
from slotwise.jobs.accounts import Account
from slotwise.jobs.commands import HASH_SEED
from slotwise.jobs.endings import UNKNOWN_CODE, descendants, send_to_own, signalled
from slotwise.jobs.memory import tree_memory

OWN_OPTIONS = (
    "-P",  # The script's folder must not hide modules of the user.
    *("-X", "faulthandler"),  # Shows the place of a crash in native code on stderr.
)

OWN_SIGNALS = frozenset(
    (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS)
)
"""The signals that a process gets because of faults in its own code."""

CHUNK = 1 << 16
"""Bytes received in one call; requests below this size are sent in one call."""

PIECES = 64
"""The most parts of requests that are sent in one call."""


SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""Shared memory with these keeps its size."""

SIZE_MAX = 1 << 60
"""No process has used as many bytes."""

ACCOUNT_BYTES_MAX = 2 << 30
"""The most bytes of a result of another account, which could use up the memory of root."""

END_SECONDS = 1.0
"""How long a worker may take to exit after it has closed its channel."""


def interpreter_options() -> tuple[str, ...]:
    """The options of this interpreter, for workers on any host.

    These are the options that multiprocessing gives to spawned processes, and all of -X. They
    include the settings by environment variables such as PYTHONOPTIMIZE.
    """
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    options = [option for option in flags if option not in ("-I", "-P")]
    if sys.flags.isolated:
        options += ["-E", "-s"]
    stated = [n if value is True else f"{n}={value}" for n, value in sys._xoptions.items()]
    if (digits := sys.flags.int_max_str_digits) >= 0:
        stated.append(f"int_max_str_digits={digits}")
    for option in dict.fromkeys(stated):
        if option not in options:
            options += ["-X", option]
    return tuple(options)


class GarbledError(Exception):
    """The channel has data that was not written by slotwise's code in the worker."""


class WorkerProcess:
    """One worker process with its channel and its lifeline. Only `reap` may block for long."""

    def __init__(
        self,
        environment: Mapping[str, str],
        unready: int,
        options: Sequence[str] = (),
        account: Account | None = None,
    ) -> None:
        """`options` are those of its interpreter. What it prints is in `output`.

        With an `account`, it starts as that, in the home of the account if it may enter it.
        OSError if that is not possible.

        With -E, only PYTHONHASHSEED is kept of the variables of Python, because the hashes of
        strings must be equal in all workers.
        """
        if "-E" in options:
            environment = {
                name: value
                for name, value in environment.items()
                if name == HASH_SEED or not name.startswith("PYTHON")
            }
        command = [sys.executable, *OWN_OPTIONS, *(o for o in options if o != "-E")]
        self._token = os.urandom(TOKEN_BYTES)
        # What is the worker's is closed here in any case, the rest if it cannot be started.
        with ExitStack() as theirs, ExitStack() as own:
            out, to_out = pipe()
            own.enter_context(out), theirs.enter_context(to_out)
            err, to_err = pipe()
            own.enter_context(err), theirs.enter_context(to_err)
            self.output = WorkerOutput({OUT: out, ERR: err})
            self._socket, channel = socket.socketpair()
            own.enter_context(self._socket), theirs.enter_context(channel)
            self._socket.setblocking(False)
            lifeline, ours = os.pipe()
            theirs.callback(os.close, lifeline)
            self._lifeline = own.enter_context(open(ours, "wb", buffering=0))
            page, self._word = _shared_word()
            theirs.callback(os.close, page)
            own.callback(self._word.release)
            passed = channel.fileno(), lifeline, page
            words = [*map(str, passed), self._token.hex()]
            is_other: dict[str, Any] = {}
            if account is not None:
                user, group, groups = account.uid, account.gid, account.groups
                is_other = {"user": user, "group": group, "extra_groups": groups, "cwd": "/"}
                words.append(account.home)
            # A worker starts with SIGTERM blocked until it has a handler, which it would need.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            theirs.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
            self._process = subprocess.Popen(
                # By its path: as a module, it would import the package before any task.
                [*command, worker.__file__, *words],
                env=environment,
                pass_fds=passed,
                start_new_session=True,  # A group to kill, and Ctrl-C only for the manager.
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                **is_other,
            )
            own.pop_all()
        self.channel = self._socket.fileno()
        self.pid = self._process.pid
        self.account = account
        self.unready = unready
        self.ready = False
        self.busy = False
        self.has_devices = False
        self.peak = 0  # of its memory, once `exit_reason` has found how it ended
        self.tasks = 0
        self.keys: set[str] = set()
        self.unsent: deque[memoryview] = deque()
        self._killed = False
        self._begun = b""
        self._head: list[Any] | None = None
        self._body: bytes | bytearray = b""
        self._missing = memoryview(b"")

    def send(self, what: int, body: bytes | bytearray, *, waits: bool = False) -> bool:
        """Send a request, or as much as possible without blocking; False if it is dead.

        One that `waits` is sent with the next one.
        """
        self.tasks += what == TASK
        head = REQUEST.pack(self._token, what, len(body))
        if len(body) < CHUNK:
            self.unsent.append(memoryview(head + body))
        else:
            self.unsent += memoryview(head), memoryview(body)  # Avoids a large copy.
        return waits or self.flush()

    def flush(self) -> bool:
        """Send the rest of the requests as far as possible without blocking; False if dead."""
        try:
            while self.unsent:
                sent = self._socket.sendmsg([*islice(self.unsent, PIECES)])
                while self.unsent and sent >= len(self.unsent[0]):
                    sent -= len(self.unsent.popleft())
                if sent:
                    self.unsent[0] = self.unsent[0][sent:]
        except BlockingIOError:
            pass
        except ConnectionError:
            self.unsent.clear()
            return False
        return True

    def receive(self) -> tuple[int, float, float, int, bytes | bytearray] | None:
        """The reply if it is complete, else None; one system call.

        EOFError if the process has closed the channel; GarbledError if user code has written to
        it; MemoryError if the reply does not fit into memory. After an error nothing can be
        received. At most one reply is in transit, because there is at most one task.
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
        self._check_head(self._head, length)
        self._begun, self._body = b"", data[REPLY.size :]
        if len(self._body) < length:
            # The rest of a large body is received in place, without a further copy.
            first, self._body = self._body, bytearray(length)
            self._body[: len(first)] = first
            self._missing = memoryview(self._body)[len(first) :]
        return len(chunk)

    def _check_head(self, head: Sequence[Any], length: int) -> None:
        """GarbledError for a head that no worker sends, but that user code may have sent."""
        what, started, seconds, peak = head
        is_right = DONE <= what <= BYTES and 0 <= started < inf and 0 <= seconds < inf
        if not is_right or peak > SIZE_MAX or (self.account and length > ACCOUNT_BYTES_MAX):
            raise GarbledError

    def _is_ours(self, data: bytes) -> bool:
        """True if the data begins with the token or a part of it; GarbledError otherwise."""
        if self._token.startswith(data[:TOKEN_BYTES]):
            return True
        raise GarbledError

    def _take_more(self) -> int:
        got = self._socket.recv_into(self._missing)
        self._missing = self._missing[got:]
        return got

    def request_stop(self, until: float) -> None:
        """Ask the task that was sent last to stop before the instant `until`.

        A further call updates the instant, but does not signal again. No effect if the task has
        just ended.
        """
        was_asked_to_stop = self._word[0] == self.tasks
        self._word[1] = until
        self._word[0] = self.tasks
        if not was_asked_to_stop:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def progress(self) -> tuple[float, float | None] | None:
        """The progress that the task sent last has reported: the amount done and the total."""
        _, _, number, done, total, _, _ = self._word
        if not self.busy or number != self.tasks:
            return None
        if not isfinite(done):  # The task may write anything.
            return None
        return done, total if isfinite(total) else None

    def memory(self) -> int:
        """The bytes that the task sent last uses; 0 until it has begun."""
        if self._word[5] != self.tasks:
            return 0
        size = self._word[6]
        if size == OWN:
            return tree_memory(self.pid)
        return int(size) if 0 <= size <= SIZE_MAX else 0

    def kill(self) -> None:
        """End the process and its group by SIGKILL, and drop all messages in transit.

        Its descendants in other groups are killed, too.
        """
        if self._killed:
            return
        if self._process.returncode is None:  # Its number is still its own.
            self._kill_group()
        self._killed = True  # Only once: the process id may be reused later.
        self._socket.close()
        self._lifeline.close()
        self.unsent.clear()

    def _kill_group(self) -> None:
        """Kill its group and its descendants. It was not waited for."""
        others = descendants(self.pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        owner = None if self.account is None else self.account.uid
        send_to_own(others, signal.SIGKILL, owner)

    def exit_reason(self) -> str:
        """A sentence on how the process ended, once its channel is closed."""
        until = time.monotonic() + END_SECONDS
        try:
            while not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if time.monotonic() > until:
                    return f"worker process {self.pid} closed its channel to the manager"
                time.sleep(0.001)
        except ChildProcessError:  # For Popen, this is exit code 0.
            return (
                f"worker process {self.pid} ended, but its exit code is unknown: {UNKNOWN_CODE}"
            )
        self._kill_group()
        _, status, usage = os.wait4(self.pid, 0)
        self.peak = usage.ru_maxrss << 10
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        how = signalled(-code) if code < 0 else f"exited with code {code}"
        return f"worker process {self.pid} {how}"

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL has ended it."""
        return self._process.poll() == -signal.SIGKILL

    @property
    def ended_itself(self) -> bool:
        """Whether its own code has made it unusable, once its channel is closed.

        It has exited, was ended by a signal for a fault of its code, or lives without channel.
        """
        code = self._process.poll()
        return code is None or code >= 0 or -code in OWN_SIGNALS

    def is_reaped(self) -> bool:
        """Whether the process has ended; if so, its exit code is collected."""
        return self._process.poll() is not None

    def reap(self) -> None:
        """Wait for the end of a killed process."""
        self._process.wait()


def _shared_word() -> tuple[int, memoryview[float]]:
    """Memory to share with a worker: a file descriptor to pass on, and a view of it."""
    page = os.memfd_create("slotwise", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(page, WORD_BYTES)
        # A worker that cut it off would end this process by SIGBUS.
        fcntl.fcntl(page, fcntl.F_ADD_SEALS, SEALS)
        return page, memoryview(mmap.mmap(page, WORD_BYTES)).cast("d")
    except BaseException:
        os.close(page)
        raise
