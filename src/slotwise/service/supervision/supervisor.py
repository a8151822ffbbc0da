"""Supervisors of commands: each command of the service has one, which outlives the server.

The server starts one *spawner*, this module as a script. For each connection of a worker it
forks a *supervisor*, which leaves the session of the server. For each request a supervisor
starts a command, waits for all of its processes and records how it ended. It is neither a child
nor in a group of the server or of a worker: when these have ended it ends with its command.

It serves one worker, command after command, because a fork of Python costs as much as several
spawns: each page that it touches first is copied. So a command costs about two spawns. A new
interpreter for each would cost 10 ms and more.

The file `record` in the folder of a task has two lines of JSON:

- before the command starts: the supervisor, and what of the request names the attempt
- after its end: `code`, or `error` (errno) with `place` if it could not be started; `memory`
  (the peak of its largest process in bytes), `seconds`, and whether it was asked to stop

Each line is one write, the second one to a block that the file has also on a full disk. They
are not synchronized: what a failure of the machine cuts was known to nobody, and runs again.

A request is a line of JSON: `folder` (of the task), the names in `NAMED`, `command`, `cwd`,
`environment` and `account`. With it come three open files: the record, and those for stdout and
stderr. The answer is the record, or an `error`. The command starts when the worker has sent one
more byte: one that was killed meanwhile, perhaps before anybody could know that there is a
record, starts nothing. A second line, when the command has ended and that is recorded, is
empty. Then comes the next request, or the end of the connection.

If there is an `account`, the supervisor becomes a process of it with its first request, and
serves only this account. It opens no file by itself, so that folders of the service need not be
open to the account. As it has changed its account and has no other program, the kernel lets no
process but those of root read its memory, or take its files.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

from slotwise.backends.local.worker import leave_keyring, reset_signals
from slotwise.jobs.accounts import Account
from slotwise.jobs.command_process import StartedProcesses, adopting, start

RECORD = "record"
"""The name of the file of a task."""

NAMED = ("job", "task", "run", "attempt", "out", "err", "devices", "adopted")
"""What a record has of its request. `run` is the number of the run of the server, `adopted`
that of earlier attempts of the task that other servers than their own have found."""

MARK = "SLOTWISE_SUPERVISOR"
"""The environment variable of a command with the number and the start of its supervisor."""

ANSWER_SECONDS = 30.0
"""How long the answer of a supervisor may take, on a busy machine."""

BACKLOG = 1024
"""The number of requests that may wait."""

READ_BYTES = 1 << 16
"""The most bytes of a request that are received in one call."""

CREDENTIALS = struct.Struct("3i")
"""The process, user and group at the other end of a unix socket."""


def serve(path: str, listens: int, lifeline: int) -> None:
    """Fork a supervisor for each connection, until the other end of the lifeline is closed.

    `listens` is the socket at `path`, which the server has made and removes: only that knows
    whether the folder is still its own. A line on stdout says that this process is ready. Only
    processes of this user are served.
    """
    for inherited in (listens, lifeline):
        os.set_inheritable(inherited, False)
    reset_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps supervisors.
    listener = socket.socket(fileno=listens)
    os.chdir(os.path.dirname(path))  # That of the server may be one to unmount.
    with suppress(OSError):  # The server may have been killed.
        os.write(1, b"ready\n")
    gc.collect()
    gc.freeze()  # Collections in supervisors would copy all pages.
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while not any(descriptor == lifeline for descriptor, _ in poll.poll()):
        connection, _ = listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        if CREDENTIALS.unpack(peer)[1] == os.getuid() and not _fork():
            listener.close()
            os.close(lifeline)
            _supervise(connection)
        connection.close()


def listening(path: str) -> socket.socket:
    """A socket for `serve`, in place of one that is left there. Raises OSError."""
    folder, name = os.path.split(path)
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)
        os.fchmod(listener.fileno(), 0o600)  # The file gets this mode.
        # The whole path may be too long for a socket.
        listener.bind(f"/proc/self/fd/{place}/{name}")
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(place)
    return listener


def _fork() -> int:
    """Fork; the client sees the end of its connection if that is not possible."""
    try:
        return os.fork()
    except OSError as error:
        print(f"slotwise: no supervisor can be started: {error.strerror}", file=sys.stderr)
        return -1


def _supervise(connection: socket.socket) -> NoReturn:
    """Serve a connection in a forked process, which ends here."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.close(null)
        Supervisor(connection).run()
    finally:
        os._exit(0)  # Records say all that there is to say.


class Supervisor:
    """The supervisor of the commands of a worker, in a process of its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._account: Account | None = None
        self._stops = False
        self._ask: Callable[[], None] | None = None  # the command to stop
        self._pid = os.getpid()
        self._start = start_of(self._pid)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def run(self) -> None:
        """Serve requests until the worker has gone."""
        with suppress(ConnectionError):
            while True:
                text, files = self._received()
                if not text:
                    return
                self._serve(json.loads(text), *files)
                for file in files:
                    os.close(file)
                self._connection.sendall(b"\n")

    def _received(self) -> tuple[bytes, list[int]]:
        """The next request, with its files; empty if the worker has gone."""
        text, files, *_ = socket.recv_fds(self._connection, READ_BYTES, 3)
        while text and not text.endswith(b"\n"):
            more = self._connection.recv(READ_BYTES)
            text = text + more if more else b""
        return text, files

    def _serve(self, request: Mapping[str, Any], file: int, out: int, err: int) -> None:
        """Start the command of a request, and record its end."""
        account = Account.of(request["account"])
        if account is not None and account != self._account:
            account.become()  # Raises if it has another account already.
            leave_keyring()
            self._account = account
        record = {"pid": self._pid, "start": self._start, "begun": time.time()}
        record["uptime"] = uptime()
        record |= {name: request[name] for name in NAMED}
        answer: dict[str, Any] = record
        self._stops = False
        try:
            os.pwrite(file, line(record), 0)
        except OSError as error:
            place = os.path.join(request["folder"], RECORD)
            answer = {"error": error.errno, "place": place}
        may_begin = b""
        with suppress(ConnectionError):
            self._connection.sendall(line(answer))
            may_begin = self._connection.recv(1)
        if answer is record and may_begin:
            begun = time.monotonic()
            with adopting(lambda: self._stops) as started:
                ended = self._run(request, (out, err), started)
            self._ask = None
            ended |= {"seconds": time.monotonic() - begun, "stopped": self._stops}
            os.pwrite(file, line(ended), len(line(record)))
        elif answer is record and os.pread(file, READ_BYTES, 0) == line(record):
            os.truncate(file, 0)  # Nothing began, nor has another attempt.

    def _run(
        self,
        request: Mapping[str, Any],
        files: Sequence[int],
        started: StartedProcesses,
    ) -> dict[str, Any]:
        """Run the command to its end: how it ended, or why it could not start."""
        environment = {**request["environment"], MARK: f"{self._pid} {self._start}"}
        try:
            process = start(request["command"], request["cwd"], environment, files)
        except OSError as error:
            return {"error": error.errno, "place": error.filename}
        self._ask = started.ask_to_stop
        if self._stops:
            started.ask_to_stop()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        return {"code": code, "memory": usage.ru_maxrss << 10}

    def _on_stop(self, *_: object) -> None:
        """Ask all processes of the command to stop."""
        self._stops = True
        if self._ask is not None:
            self._ask()


# What the server and its workers need as well.


def line(plain: Mapping[str, Any]) -> bytes:
    """A JSON object as one line."""
    return json.dumps(plain).encode() + b"\n"


def start_of(pid: int) -> str:
    """When a process started, as no other of the same number has, also after a restart.

    Empty if there is no such process.
    """
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return f"{boot()} {int(file.read(1024).rpartition(b')')[2].split()[19])}"
    return ""


def uptime() -> float:
    """Seconds since the machine has started, asleep or not; no clock that is set changes it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def boot() -> str:
    """What names this start of the machine. `start_of` begins with it."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def pidfd_of(pid: int, started: str) -> int | None:
    """A descriptor of the process of this number and start; None if it has ended."""
    try:
        found = os.pidfd_open(pid)
    except (OSError, OverflowError):
        return None
    if start_of(pid) == started:
        return found
    os.close(found)
    return None


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
