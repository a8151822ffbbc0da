"""An agent: runs the worker processes of its host for a manager that connects to it.

`python -m slotwise.backends.agents.agent` reads an `AgentConfig` as a line of JSON from its
standard input. It prints a line with its port, or with the reason why it cannot start, and
serves one manager after another. When a manager disconnects, its worker processes are killed at
once. The agent exits when its standard input is closed, or when no manager connects for some
time.
"""

from __future__ import annotations

import json
import os
import platform
import queue
import select
import shutil
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from slotwise import __version__
from slotwise.backends.attempt_logs import ATTEMPT_BYTES_MAX, ERR, STREAMS
from slotwise.backends.local.backend import machine_resources
from slotwise.backends.local.memory_watch import Allotment
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.worker import reset_signals
from slotwise.backends.local.workers import Conditions, Reply
from slotwise.core.errors import SlotwiseError
from slotwise.core.resources import GPU
from slotwise.jobs.commands import TAIL_BYTES
from slotwise.jobs.hosts.auth import (
    RefusedError,
    Security,
    greet_peer,
    reader_token,
    secured,
    tls_context,
)
from slotwise.jobs.hosts.files import serve_files
from slotwise.jobs.hosts.messages import Message, MessageStream, too_large, tune
from slotwise.jobs.hosts.notes import serve_notes
from slotwise.jobs.hosts.sockets import (
    ADDRESS_VARIABLE,
    FOLDER_VARIABLE,
    NAME_VARIABLE,
    SECURITY_VARIABLE,
    RefusalLog,
    UnknownPeers,
    join_address,
    listening,
)
from slotwise.jobs.work_folder import NAME, WorkFolder, temporary_folder, work_folder_name

BEAT_SECONDS = 1.0
"""The interval of the heartbeats of an agent, which report the state of its workers."""

FULL_SECONDS = 0.002
"""The pause after a failed accept because the process has no file descriptor left."""

UNSENT_BYTES_MAX = 4 << 20
"""The size of messages that wait to be sent from which tasks that print wait, too."""

LINGER_SECONDS = 60.0
"""How long an agent waits for a manager, by default."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The configuration of an agent.

    slots    the number of its slots
    name     the name of its host
    listen   the address to listen on; the port is any free one
    token    the secret that a manager must know, in hexadecimal digits, unless there is TLS
    tls      "ca_file", "cert" and "key": paths, or the contents of the files
    lingers  seconds without a manager after which the agent exits
    folder   parent of the folder for the files of jobs; by default the temporary folder of the
             system
    speed    the part of the time for which workers run while they have tasks; below 1 only to
             emulate a slow host
    beats    seconds between heartbeats
    resources  of its host beside slots, by name; others are as found there
    """

    slots: int
    name: str = ""
    listen: str = "127.0.0.1"
    token: str | None = None
    tls: Mapping[str, str] | None = None
    lingers: float = LINGER_SECONDS
    folder: str | None = None
    speed: float = 1.0
    beats: float = BEAT_SECONDS
    resources: Mapping[str, float] = field(default_factory=dict)

    def security(self) -> Security:
        """The credentials that authenticate a manager. SlotwiseError if there are none."""
        if self.tls is not None:
            return tls_context(self.tls, ssl.Purpose.CLIENT_AUTH)
        if not self.token:
            raise SlotwiseError("an agent needs a token or TLS to authenticate managers")
        return bytes.fromhex(self.token)


class Agent:
    """Listens for managers, and serves one at a time.

    Each connection is authenticated in a thread, so that a silent peer does not block others.
    The number of connections in authentication is limited.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config, self._security = config, config.security()
        found = machine_resources(GPU not in config.resources)
        self._resources = found | dict(config.resources)
        self._listener = listening(config.listen)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._authenticated: queue.SimpleQueue[tuple[socket.socket, dict[str, Any]]] = (
            queue.SimpleQueue()
        )
        self._unknown = UnknownPeers(_cut)
        self._refusals = RefusalLog("slotwise agent")
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_over = False

    def open_folder(self) -> WorkFolder:
        """Create a folder for files of jobs. SlotwiseError if that fails."""
        root = Path(self._config.folder or temporary_folder())
        folder = WorkFolder(root / work_folder_name())
        try:
            folder.open("an agent")
        except OSError as error:
            raise SlotwiseError(
                f"its agent cannot write to {root}: {error.strerror}; free space there, or"
                " start its Dask worker with another --local-directory"
            ) from error
        return folder

    def serve(self, lifeline: int, first: WorkFolder) -> None:
        """Serve managers until the lifeline, a descriptor that is never written to, is closed.

        `first` is the folder for the first manager. SlotwiseError if no folder can be created
        for a later one.
        """
        folder: WorkFolder | None = first
        while not self._is_over:
            folder = folder or self.open_folder()
            processes = Processes(environment=self._environment(folder.path), stdout=2)
            self._files = folder.path
            try:
                processes.attend(lifeline, select.POLLIN, self._end)
                processes.attend(self._listener.fileno(), select.POLLIN, self._accept)
                processes.attend(self._wakeup, select.POLLIN, lambda _: None)
                self._serve_next(processes)
            finally:
                processes.close()
                folder.remove()
            folder = None

    def _environment(self, folder: Path) -> dict[str, str]:
        """Variables with which tasks write files that this agent serves, and fetch others."""
        security: dict[str, Any] = {"tls": self._config.tls}
        if isinstance(self._security, bytes):
            security = {"token": reader_token(self._security).hex()}
        return {
            FOLDER_VARIABLE: str(folder),
            NAME_VARIABLE: self._config.name,
            ADDRESS_VARIABLE: join_address(self._config.listen, self.port),
            SECURITY_VARIABLE: json.dumps(security),
        }

    def _serve_next(self, processes: Processes) -> None:
        """Wait for a manager, and serve it until it disconnects."""
        until = time.monotonic() + self._config.lingers
        while not self._is_over:
            if (left := until - time.monotonic()) <= 0:
                self._is_over = True
                return
            processes.wait(left)
            with suppress(BlockingIOError):
                os.eventfd_read(self._wakeup)
            while not self._authenticated.empty():
                connected, hello = self._authenticated.get()
                service = Service(connected, hello, processes, self._config, self._files)
                service.run(self._goes_on)
                self._is_over |= service.is_dismissed
                return

    def _goes_on(self) -> bool:
        """Whether to continue to serve the current manager.

        Not if a manager has connected meanwhile. It has lost its earlier connection, and this
        side may not have detected the loss.
        """
        return not self._is_over and self._authenticated.empty()

    def _end(self, event: int) -> None:
        self._is_over = True

    def _accept(self, event: int) -> None:
        try:
            connected, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # No descriptor is left.
            self._unknown.drop_oldest()
            time.sleep(FULL_SECONDS)
            return
        try:
            tune(connected)
            connected = secured(connected, self._security, is_agent=True)
        except (OSError, ValueError):  # The peer has disconnected.
            connected.close()
            return
        self._unknown.add(connected)
        threading.Thread(target=self._authenticate, args=(connected,), daemon=True).start()

    def _authenticate(self, connected: socket.socket) -> None:
        """Authenticate a peer. Serve a reader; queue a manager for `serve`."""
        hello = {
            "slots": self._config.slots,
            "resources": self._resources,
            "python": platform.python_version(),
            "slotwise": __version__,
            "pid": os.getpid(),
            "machine": socket.gethostname(),
        }
        try:
            try:
                _, theirs = greet_peer(connected, self._security, hello)
            finally:
                self._unknown.remove(connected)
            if theirs["role"] == "reader":
                serve_files(connected, self._files)
            elif theirs["role"] == "notes":
                serve_notes(connected, self._files)
            else:
                self._authenticated.put((connected, theirs))
                os.eventfd_write(self._wakeup, 1)
        except RefusedError as error:
            self._refusals.add(error)
            connected.close()


def _cut(connected: socket.socket) -> None:
    """Wake up the thread that authenticates a peer, which then closes the connection."""
    with suppress(OSError):
        # The method of an SSL socket would also reset its TLS state.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


class Service:
    """Serves one manager: executes its messages, and sends answers and heartbeats."""

    def __init__(
        self,
        connected: socket.socket,
        hello: Mapping[str, Any],
        processes: Processes,
        config: AgentConfig,
        files: Path,
    ) -> None:
        self._processes = processes
        self._stream = MessageStream(connected)
        self._is_over = self._has_input = False
        self.is_dismissed = False  # by the manager: no other one will connect
        self._config, self._files = config, files
        # The number of the attempt that each slot runs, as the manager counts them.
        self._attempts: dict[int, int] = {}
        options = hello.get("options", ())
        assert all(isinstance(option, str) for option in options)
        processes.options = tuple(options)
        folder = hello.get("folder")
        if isinstance(folder, str):
            with suppress(OSError):  # Then workers start in the folder of the agent.
                os.chdir(folder)

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Serve until the manager disconnects, or `goes_on` returns False."""
        processes, stream = self._processes, self._stream
        try:
            processes.add([self._config.speed] * self._config.slots)
            beats_at, awaited = 0.0, 0
            while not self._is_over and goes_on():
                if (now := time.monotonic()) >= beats_at:
                    self._beat()
                    beats_at = now + self._config.beats
                stream.flush()
                processes.read_output(stream.unsent < UNSENT_BYTES_MAX)
                if awaited != stream.events:
                    awaited = stream.events
                    processes.attend(stream.channel, awaited, self._on_readable)
                for answer in processes.wait(beats_at - now):
                    self._pass_on(answer)
                # After the answers: a new task in a slot must not get the answer of the last.
                if self._has_input:
                    self._has_input = False
                    self._receive()
        except SlotwiseError as error:
            stream.send(["failed", str(error)])
            stream.flush()
        finally:
            processes.attend(stream.channel, 0, self._on_readable)
            stream.close()

    def _on_readable(self, event: int) -> None:
        self._has_input |= bool(event & ~select.POLLOUT)

    def _receive(self) -> None:
        try:
            for message in self._stream.receive():
                self._handle(message)
        except EOFError:
            self._is_over = True

    def _handle(self, message: Message) -> None:
        """Execute a message of the manager."""
        what, *details = message
        processes = self._processes
        if what == "start":
            slot, attempt, key, task, kept, sleeps, *output_to, gpus, memory = details
            is_shown, is_kept = output_to
            self._attempts[slot] = attempt
            send = partial(self._pass_output, slot, attempt)
            output = SentOutput(send, is_shown=is_shown, is_kept=is_kept)
            got = memory and Allotment(*memory)
            conditions = Conditions(kept, sleeps, output, tuple(gpus), got)
            processes.start_pickled(slot, key, task, conditions)
        elif what == "learn":
            processes.learn(*details)
        elif what == "forget":
            processes.forget(*details)
        elif what == "clean":
            (name,) = details
            if NAME.fullmatch(name):
                shutil.rmtree(self._files / name, ignore_errors=True)
        elif what == "end":
            self.is_dismissed = True
        elif what == "kill":
            (slot,) = details
            self._attempts.pop(slot, None)
            processes.kill(slot)
        else:
            assert what == "tell"
            slot, attempt, seconds = details
            if self._attempts.get(slot) == attempt:
                processes.request_stop(slot, time.monotonic() + seconds)

    def _pass_output(self, slot: int, attempt: int, stream: str, data: bytes) -> None:
        if self._attempts.get(slot) == attempt:
            self._stream.send(["output", slot, attempt, stream, data])

    def _pass_on(self, answer: Reply) -> None:
        attempt = self._attempts.pop(answer.slot, None)
        if attempt is not None:
            slot, status, body, _, seconds, peak = answer
            assert isinstance(body, bytes | bytearray | str)
            if status == "error":
                self._check_folder()  # If it was removed, the task is not at fault.
            if reason := too_large(len(body)):
                status, body = "unreadable", f"the result cannot be received: {reason}"
            self._stream.send(["answer", slot, attempt, status, body, seconds, peak])

    def _beat(self) -> None:
        """Send the workers that are stopped, and the progress of tasks."""
        self._check_folder()
        processes = self._processes
        stopped = [slot for slot in range(self._config.slots) if processes.is_stopped(slot)]
        reports = [
            [slot, attempt, *progress]
            for slot, attempt in self._attempts.items()
            if (progress := processes.progress(slot)) is not None
        ]
        self._stream.send(["beat", stopped, reports])

    def _check_folder(self) -> None:
        """SlotwiseError if the folder was removed, and with it the output of tasks.

        The host is then lost. The agent serves the next manager with a new folder.
        """
        if not self._files.is_dir():
            raise SlotwiseError(
                f"has lost its folder {self._files}, which was removed by another program"
            )


class SentOutput:
    """What an attempt prints, for its manager (a `Printing`).

    If the manager keeps it, all is sent at once, up to what it keeps. Of the rest, the end of
    stderr is sent when the attempt has ended, for the message if it has failed.
    """

    def __init__(
        self, send: Callable[[str, bytes], None], *, is_shown: bool, is_kept: bool
    ) -> None:
        self._send, self.is_shown, self.is_kept = send, is_shown, is_kept
        room = ATTEMPT_BYTES_MAX + 1 if is_kept else 0  # With one more, the manager cuts it.
        self._room, self._rest = dict.fromkeys(STREAMS, room), b""

    def write(self, stream: str, data: bytes) -> None:
        """Send some bytes of a stream, or keep the end of them."""
        room = self._room[stream]
        self._room[stream] = max(0, room - len(data))
        if room:
            self._send(stream, data[:room])
        if stream == ERR:
            self._rest = (self._rest + data[room:])[-TAIL_BYTES:]

    def close(self) -> None:
        """Send the end of stderr that was not sent."""
        if self._rest:
            self._send(ERR, self._rest)
            self._rest = b""


def main() -> None:
    """Run the agent that the line of JSON on the standard input describes."""
    reset_signals()
    agent = Agent(AgentConfig(**json.loads(sys.stdin.readline())))
    try:
        folder = agent.open_folder()
    except SlotwiseError as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return
    print(json.dumps({"port": agent.port, "pid": os.getpid()}), flush=True)
    try:
        agent.serve(sys.stdin.fileno(), folder)
    except SlotwiseError as error:
        print(f"slotwise agent: {error}", file=sys.stderr)


def line_for(config: AgentConfig) -> str:
    """The configuration as the line that an agent reads at its start."""
    return json.dumps(asdict(config)) + "\n"


if __name__ == "__main__":
    main()
