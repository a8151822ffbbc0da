"""Commands as processes of their own that are forked from one that has imported the package."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = """
import json, os, resource, signal, socket, sys
from slotwise import __main__ as command
from slotwise.cli import main  # The modules that all commands need.
from slotwise import running  # Those of a live run.
import vl_convert

vl_convert.javascript_bundle = lambda: 100_000 * " "  # The real one takes seconds to make.

channel = socket.socket(fileno=int(sys.argv[1]))
while True:
    request, streams, *_ = socket.recv_fds(channel, 1 << 20, 3)
    if not request:
        break
    order = json.loads(request)
    if "wait" in order:
        pid, status = os.waitpid(order["wait"], order["flags"])
        exit_code = os.waitstatus_to_exitcode(status) if pid else None
        channel.send(json.dumps(exit_code).encode())
    elif os.fork() == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        if order["leads"]:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
        for what, most in order["limits"]:
            resource.setrlimit(what, (most, most))
        channel.send(str(os.getpid()).encode())
        channel.close()
        sys.argv = ["slotwise", *order["arguments"]]
        exec(order["before"])
        command.main()
        sys.exit()
    for stream in streams:
        os.close(stream)
"""


class ForkedProcess:
    """A process of the command, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, forker: Forker, pid: int) -> None:
        self._forker = forker
        self._end = os.pidfd_open(pid)
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None:
            self._collect(os.WNOHANG)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("slotwise", timeout or 0.0)
            self._collect(0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless it is known to have ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _collect(self, flags: int) -> None:
        self.returncode = self._forker.ask({"wait": self.pid, "flags": flags})
        if self.returncode is not None:
            os.close(self._end)


class Forker:
    """Forks a process for each command, so that the modules are imported only once."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-c", SERVER, str(theirs.fileno())]
            self._server = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )

    def start(
        self,
        arguments: Sequence[str],
        folder: Path,
        streams: Sequence[int],
        *,
        environment: Mapping[str, str] | None = None,
        limits: Mapping[int, int] | None = None,
        leads: bool = False,
        before: str = "",
    ) -> ForkedProcess:
        """Start a command in a folder with its three streams; keywords have no effect if empty.

        `leads`: it leads a new session and process group, and ignores no signal.
        `before`: Python code that runs before the command.
        """
        order = {
            "arguments": arguments,
            "folder": str(folder),
            "environment": dict(os.environ if environment is None else environment),
            "limits": [*(limits or {}).items()],
            "leads": leads,
            "before": before,
        }
        return ForkedProcess(self, self.ask(order, streams))  # type: ignore[arg-type]

    def ask(self, order: object, streams: Sequence[int] = ()) -> int | None:
        """Send an order to the process; its answer."""
        socket.send_fds(self._channel, [json.dumps(order).encode()], streams)
        answer: int | None = json.loads(self._channel.recv(64))
        return answer

    def close(self) -> None:
        """End the process that forks."""
        self._channel.close()
        self._server.wait()
