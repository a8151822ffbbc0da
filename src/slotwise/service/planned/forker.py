"""Processes of jobs of user code: how they are started, asked and ended.

One process, the forker, has imported what planning needs. It forks the process of each job.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from math import exp2, inf
from pathlib import Path
from typing import Any, NamedTuple

from slotwise.backends.local.process import OWN_OPTIONS
from slotwise.core.codec import dumped
from slotwise.core.errors import InputChanged, InputError, SlotwiseError, WorkFolderError
from slotwise.jobs.accounts import Account, of_interpreter
from slotwise.jobs.commands import ONE_CORE
from slotwise.jobs.endings import signalled
from slotwise.jobs.execution import FailedAttemptError
from slotwise.service.wire import PART_BYTES_MAX, frame, frames

ANSWER_SECONDS = 60.0
"""How long planning, and any other answer of the process of a job but a commit, may take."""

LOOP_SECONDS, LOOP_SECONDS_MIN = 10.0, 0.02
"""How long the loop waits for the process of an account: the jobs of others wait, too."""

END_SECONDS_MAX = 0.1
"""How long the process of an account may take to exit by itself."""

PLAIN_BYTES_MAX = 32 << 20
"""The longest JSON from the process of an account: its objects take up to 25 times the memory,
and nothing else is done while it is parsed."""

READ_BYTES = 1 << 20
"""The most bytes of an answer that are received in one call."""

FORK_SECONDS = 60.0
"""How long the process that forks the others may take to start, or to answer."""

COMMAND = """
import sys
path = sys.argv[3:]
sys.path += [folder for folder in path if folder not in sys.path]
from slotwise.service.planned.hosting import serve
serve(*map(int, sys.argv[1:3]))
"""

FOR_ACCOUNTS = {"PATH": os.defpath, "HOME": "/nonexistent"}
"""The environment of the process that forks those of accounts, which get their own."""

KINDS: dict[str, Callable[[str], Exception]] = {
    one.__name__: one
    for one in (InputError, InputChanged, FailedAttemptError, WorkFolderError, ValueError)
}
"""The errors that the process sends by name; others are SlotwiseErrors."""


class Answer(NamedTuple):
    """What the process of a job answers: a JSON value, and pickles."""

    value: Any = None
    parts: Sequence[bytes] = ()


class LostHostingError(SlotwiseError):
    """The process of a job has died, or does not answer."""


class HostingProcess:
    """The process of one job. It is killed when this object is collected, or with the server.

    If it dies, or does not answer in time, this and all later questions raise LostHostingError.
    """

    def __init__(
        self,
        job: str,
        log: str | Path | None = None,
        limit: float = ANSWER_SECONDS,
        account: Account | None = None,
        kept: str = "",
    ) -> None:
        """`log` gets what user code prints in it. SlotwiseError if it cannot be started.

        It runs as the `account`, if there is one, and may then enter the folder `kept` of root.
        """
        self.job, self.limit, self._lost = job, limit, ""
        self.account, self.is_in_loop = account, False
        self._lock, self._log = threading.Lock(), log
        with ExitStack() as theirs:
            ours, channel = socket.socketpair()
            theirs.enter_context(channel)
            lifeline, own_end = os.pipe()
            theirs.callback(os.close, lifeline)
            try:
                place = os.devnull if log is None else log
                output = theirs.enter_context(open(place, "ab", opener=_private))
                passed = channel.fileno(), lifeline, output.fileno()
                self.pid: int = FORKER.ask({"account": account, "kept": kept}, passed)
            except (OSError, SlotwiseError) as error:
                ours.close()
                os.close(own_end)
                why = f"job {job!r}: its process cannot start: {error}"
                raise SlotwiseError(why) from error
        most = inf if account is None else PART_BYTES_MAX
        self._channel, self._stream = ours, TimedStream(ours)
        self._answers = frames(self._stream, most)
        self._close = weakref.finalize(self, _close, ours, own_end)

    def ask(
        self, name: str, *stated: object, parts: Sequence[bytes] = (), limit: float = 0
    ) -> Answer:
        """The answer to a question. Raises what the process raises.

        It may take `limit` seconds, by default the usual limit; that is less for an account if
        it `is_in_loop`. While a thread waits for an answer, others get a LostHostingError.
        """
        if not self._lock.acquire(blocking=False):
            raise LostHostingError(f"the process of job {self.job!r} is busy")
        try:
            if self._lost:
                raise LostHostingError(self._lost)
            if limit or self.account is None or not self.is_in_loop:
                return self._asked(name, stated, parts, limit or self.limit)
            began, limit = time.monotonic(), LOOP_WAITS.seconds(self.account)
            try:
                return self._asked(name, stated, parts, limit)
            except LostHostingError:
                if time.monotonic() - began >= limit:
                    LOOP_WAITS.has_waited(self.account, limit)
                raise
        finally:
            self._lock.release()

    def end(self, seconds: float = 0.0) -> int | None:
        """End the process, which gets these seconds to exit by itself. Idempotent.

        Returns the exit code as `subprocess` has it; None if it was killed or has ended before.
        """
        self._lost = self._lost or f"job {self.job!r} is closed"
        code: int | None = None
        if self.account is not None:  # Meanwhile no process of another user can be forked.
            seconds = min(seconds, END_SECONDS_MAX)
        if self._close.alive:
            with suppress(SlotwiseError):
                code = FORKER.ask({"wait": self.pid, "seconds": seconds})
            self._close()
        return code

    def _asked(self, name: str, stated: object, parts: Sequence[bytes], limit: float) -> Answer:
        why = ""
        try:
            self._channel.settimeout(None if limit == inf else limit)
            self._stream.until = time.monotonic() + limit
            with suppress(BrokenPipeError):  # It may have answered that it cannot start.
                self._channel.sendall(frame({"do": name}, (dumped(stated).encode(), *parts)))
            header, (body, *found) = next(self._answers)
            if self.account is not None and len(body) > PLAIN_BYTES_MAX:
                raise ValueError("the answer is too long")
            value = json.loads(body)
        except TimeoutError:
            why = f"has not answered for {limit:g} s"
        except (OSError, StopIteration, SlotwiseError, ValueError):
            # User code may have written to the channel.
            why = "has ended, or has sent what cannot be read"
            if (code := self.end(1.0)) is not None:
                why = signalled(-code) if code < 0 else f"exited with code {code}"
        if why:
            what = f"the process in which job {self.job!r} is planned and its results are kept"
            self._lost = f"{what} {why}" + (f"; see {self._log}" if self._log else "")
            self.end()
            raise LostHostingError(self._lost)
        if "error" in header:
            raise KINDS.get(str(header["error"]), SlotwiseError)(str(header.get("text")))
        return Answer(value, found)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _close(channel: socket.socket, lifeline: int) -> None:
    """Close the channel of a process; at the end of its lifeline the kernel kills its group."""
    channel.close()
    os.close(lifeline)


class TimedStream:
    """Reads a channel `until` an instant, however slowly bytes come. Raises TimeoutError."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self.until = channel, inf

    def read(self, size: int, /) -> bytes:
        """Some of the bytes, at most `size`; none at the end."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._channel.settimeout(None if left == inf else left)
        return self._channel.recv(min(size, READ_BYTES))


class LoopWaits:
    """How long the loop waits for an answer of processes of an account.

    Each one that does not answer in time divides it for the next ones, and it doubles with each
    minute: an account cannot hold up the jobs of others for long.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, float]] = {}  # The seconds at an instant, by uid.

    def seconds(self, account: Account) -> float:
        """How long it waits now."""
        least, since = self._known.get(account.uid, (LOOP_SECONDS, 0.0))
        minutes = (time.monotonic() - since) / 60.0
        return min(LOOP_SECONDS, least * exp2(min(minutes, 60.0)))

    def has_waited(self, account: Account, seconds: float) -> None:
        """Note that it has waited, and got no answer."""
        self._known[account.uid] = max(LOOP_SECONDS_MIN, seconds / 4.0), time.monotonic()


LOOP_WAITS = LoopWaits()


class Forker:
    """The process that forks those of jobs, because they need a second to import the modules.

    It is started when it is first needed, and again if it has died. It ends with this process.

    is_shared  whether accounts of users share it: then it has nothing of the environment and
               the home of this process, because they can read its memory
    """

    is_shared = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, asked: Mapping[str, Any], passed: Sequence[int] = ()) -> Any:
        """The answer; `passed` are descriptors. SlotwiseError if it cannot be started.

        It is started only to fork. Otherwise the answer without it is None.
        """
        with self._lock:
            for _ in range(2):
                if self._process is None and not passed:
                    return None
                try:
                    if self._process is None:
                        self._start()
                    socket.send_fds(self._channel, [json.dumps(asked).encode()], passed)
                    if found := self._channel.recv(100):
                        return json.loads(found)
                    why = "it has died"
                except OSError as error:
                    why = str(error)
                self.close()
        raise SlotwiseError(f"the process that forks those of jobs does not answer: {why}")

    def close(self) -> None:
        """End it. The processes of jobs continue."""
        if self._process is not None:
            self._channel.close()
            os.close(self._own_end)
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        with ExitStack() as theirs:
            self._channel, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs.enter_context(channel)
            self._channel.settimeout(FORK_SECONDS)
            lifeline, self._own_end = os.pipe()
            theirs.callback(os.close, lifeline)
            passed = channel.fileno(), lifeline
            self._process = subprocess.Popen(
                [sys.executable, *OWN_OPTIONS, "-c", COMMAND, *map(str, passed), *sys.path],
                env=(FOR_ACCOUNTS | of_interpreter() if self.is_shared else os.environ)
                | ONE_CORE,
                pass_fds=passed,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )


FORKER = Forker()
atexit.register(FORKER.close)
