"""The slots of agents, as one manager sees them."""

from __future__ import annotations

import os
import platform
import select
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from slotwise.backends.attempt_logs import STREAMS, Printing
from slotwise.backends.inbox import Wakeup
from slotwise.backends.local.process import interpreter_options
from slotwise.backends.local.processes import milliseconds
from slotwise.backends.local.workers import (
    TEXTS,
    USUAL,
    Conditions,
    Reply,
    Status,
    UserCodeError,
    Workers,
)
from slotwise.core.cluster import ANY_KIND, Host
from slotwise.core.errors import InputError
from slotwise.core.resources import NOTHING, Resources
from slotwise.jobs.hosts.auth import RefusedError, Security, greet_agent
from slotwise.jobs.hosts.messages import Message, MessageStream, too_large, tune
from slotwise.jobs.hosts.sockets import join_address

SILENT_SECONDS = 3.0
"""Time without a message after which the workers of an agent count as stopped."""

CONNECT_SECONDS = 10.0


@dataclass(slots=True)
class AgentHost:
    """A connection to an agent.

    name       the name of its host
    slots      the number of its slots
    address    where its agent listens: "10.0.0.3:41234"
    addresses  the host part of `address`, and the name of the machine
    resources  of the host beside slots
    first      the manager's number of its first slot
    keys       the keys of the runners that it was sent
    last_message_at  when it sent its last message, as `time.monotonic()`
    stopped    the slots whose workers are stopped, in the agent's numbers
    awaited    the events for which `poll` waits on the connection
    """

    name: str
    slots: int
    stream: MessageStream
    address: str = ""
    addresses: tuple[str, ...] = ()
    resources: Resources = NOTHING
    first: int = 0
    keys: set[str] = field(default_factory=set)
    last_message_at: float = field(default_factory=time.monotonic)
    stopped: frozenset[int] = frozenset()
    awaited: int = select.POLLIN

    def slot(self, local: int) -> int:
        """The manager's number of a slot. An agent replies for its own slots only."""
        if not 0 <= local < self.slots:
            raise ValueError(f"it has no slot {local}")
        return self.first + local


def connect(name: str, address: tuple[str, int], security: Security) -> AgentHost:
    """Connect to the agent of a host. RefusedError if it cannot be used; blocks meanwhile."""
    try:
        connected = socket.create_connection(address, CONNECT_SECONDS)
    except OSError as error:
        raise RefusedError(
            f"host {name!r}: its agent cannot be reached at {join_address(*address)}: {error};"
            " let this machine connect to all ports of that host, or restart its Dask worker"
        ) from error
    try:
        tune(connected)
        hello = {"folder": os.getcwd(), "options": interpreter_options()}
        connected, theirs = greet_agent(connected, security, "manager", hello)
        check_python(str(theirs.get("python")))
        slots, stated = int(theirs["slots"]), theirs.get("resources", NOTHING)
        host = Host(name, {ANY_KIND: slots}, resources=stated)
    except (RefusedError, InputError) as error:
        connected.close()
        raise RefusedError(f"host {name!r}: {error}") from error
    places = address[0], str(theirs.get("machine", ""))
    assert isinstance(host.resources, Resources)
    stream, listens = MessageStream(connected), join_address(*address)
    return AgentHost(name, slots, stream, listens, places, host.resources)


def check_python(theirs: str) -> None:
    """RefusedError for a version of Python that cannot read pickled functions of this one."""
    mine = platform.python_version()
    if theirs.split(".")[:2] != mine.split(".")[:2]:
        raise RefusedError(
            f"it runs Python {theirs} and this program Python {mine}; functions cannot be sent"
            " between them; use the same version on all hosts"
        )


class AgentSlots(Workers):
    """The slots of all agents; a task in each at a time.

    Messages carry the number of their attempt, so that late ones of killed attempts are
    dropped. `take_disconnected` returns a host whose connection has ended once; the caller then
    removes its slots.
    """

    def __init__(self) -> None:
        super().__init__()
        self._poll = select.poll()
        self._wakeup = Wakeup()
        self._poll.register(self._wakeup.channel, select.POLLIN)
        self._hosts: dict[int, AgentHost] = {}  # by channel
        self._host_of: dict[int, AgentHost] = {}  # by slot
        self._disconnected: list[str] = []
        self.addresses: dict[str, str] = {}  # by host, where its agent listens
        self.why: dict[str, str] = {}  # by host, why its agent has disconnected
        self._running: dict[int, int] = {}  # by slot, the number of the attempt
        self._outputs: dict[int, Printing | None] = {}  # by slot
        self._progress: dict[int, tuple[float, float | None]] = {}
        self._attempts = 0
        self._count = 0

    def add(self, host: AgentHost) -> Sequence[int]:
        """Add the slots of an agent."""
        host.first, self._count = self._count, self._count + host.slots
        numbers = range(host.first, self._count)
        self._hosts[host.stream.channel] = host
        self.addresses[host.name] = host.address
        self._host_of |= dict.fromkeys(numbers, host)
        self._poll.register(host.stream.channel, select.POLLIN)
        return numbers

    def take_disconnected(self) -> list[str]:
        """The hosts whose connections have ended since the last call."""
        names, self._disconnected = self._disconnected, []
        return names

    def remove(self, slots: Iterable[int]) -> None:
        """Remove all slots of a host, and end its agent and the lease of its threads."""
        hosts = []
        for slot in slots:
            hosts.append(self._host_of.pop(slot))
            self._running.pop(slot, None)
            self._outputs.pop(slot, None)
            self._progress.pop(slot, None)
        for host in hosts[:1]:  # A host may have no slots.
            self._dismiss([host])
            self._leave(host)

    def leave(self, other: AgentHost) -> None:
        """Close the earlier connection to an agent, which continues with connection `other`."""
        for host in list(self._hosts.values()):
            if (host.name, host.address) == (other.name, other.address):
                self._leave(host)

    def start_pickled(
        self, slot: int, key: str, task: bytes, conditions: Conditions = USUAL
    ) -> None:
        """See `Workers`."""
        kept, sleeps, output, devices, memory, account = conditions
        assert account is None, "agents have no accounts"
        if reason := too_large(len(task) + len(kept)):
            raise UserCodeError(reason)
        host = self._host_of[slot]
        self._attempts += 1
        self._running[slot] = self._attempts
        self._outputs[slot] = output
        self._progress.pop(slot, None)
        if key not in host.keys:
            host.keys.add(key)
            host.stream.send(["learn", key, self._runners[key]])
        is_shown = output is None or output.is_shown
        is_kept = output is not None and output.is_kept
        start = [slot - host.first, self._attempts, key, task, bytes(kept), sleeps]
        host.stream.send(["start", *start, is_shown, is_kept, list(devices), memory])

    def wait(self, timeout: float | None = None) -> list[Reply]:
        """See `Workers`."""
        until = None if timeout is None else time.monotonic() + timeout
        replies: list[Reply] = []
        while True:
            self._flush()
            left = None if until is None else until - time.monotonic()
            is_woken = False
            for channel, event in self._poll.poll(milliseconds(left)):
                if channel == self._wakeup.channel:
                    self._wakeup.reset()
                    is_woken = True
                elif event & ~select.POLLOUT:
                    is_woken |= not self._receive(self._hosts[channel], replies)
            if is_woken or replies or (until is not None and time.monotonic() >= until):
                return replies

    def wake(self) -> None:
        """See `Workers`."""
        self._wakeup.ring()

    def request_stop(self, slot: int, until: float) -> None:
        """See `Workers`."""
        if slot in self._running:
            host, seconds = self._host_of[slot], until - time.monotonic()
            host.stream.send(["tell", slot - host.first, self._running[slot], seconds])

    def kill(self, slot: int) -> None:
        """See `Workers`."""
        host = self._host_of[slot]
        self._running.pop(slot, None)
        host.stream.send(["kill", slot - host.first])

    def _forget(self, key: str) -> None:
        for host in self._hosts.values():
            if key in host.keys:
                host.keys.remove(key)
                host.stream.send(["forget", key])

    def clean(self, folder: str) -> None:
        """Remove the files of a job from all hosts; its folder has this name on each."""
        for host in self._hosts.values():
            host.stream.send(["clean", folder])

    def is_stopped(self, slot: int) -> bool:
        """Whether the worker of a slot was stopped from outside, or its agent is silent."""
        host = self._host_of[slot]
        is_silent = time.monotonic() - host.last_message_at > SILENT_SECONDS
        return is_silent or slot - host.first in host.stopped

    def progress(self, slot: int) -> tuple[float, float | None] | None:
        """The progress that the task in a slot has reported, up to about a second old."""
        return self._progress.get(slot)

    def dismiss(self) -> None:
        """Let the agents exit: no manager will connect to them any more."""
        self._dismiss(self._hosts.values())

    def close(self) -> None:
        """Disconnect from all agents, which then kill their workers. Idempotent."""
        for host in list(self._hosts.values()):
            self._leave(host)
        self._wakeup.close()

    def _flush(self) -> None:
        for channel, host in self._hosts.items():
            host.stream.flush()
            if host.awaited != (events := host.stream.events):
                self._poll.modify(channel, events)
                host.awaited = events

    def _receive(self, host: AgentHost, replies: list[Reply]) -> bool:
        """Handle the messages of an agent; False if it has disconnected."""
        host.last_message_at = time.monotonic()
        try:
            for message in host.stream.receive():
                self._handle(host, message, replies)
        except (EOFError, AssertionError, ValueError, TypeError, LookupError):
            self._disconnected.append(host.name)
            self._leave(host)
            return False
        return True

    def _handle(self, host: AgentHost, message: Message, replies: list[Reply]) -> None:
        what, *details = message
        if what == "answer":
            local, attempt, status, body, seconds, peak = details
            slot = host.slot(local)
            expected = str if status in TEXTS else bytes
            is_known = status in get_args(Status) and isinstance(peak, int)
            if not is_known or not isinstance(body, expected):
                raise ValueError("it is not an answer")
            if self._running.get(slot) == attempt:
                del self._running[slot]
                replies.append(Reply(slot, status, body, 0.0, seconds, peak))
        elif what == "output":
            local, attempt, stream, data = details
            if stream not in STREAMS or not isinstance(data, bytes):
                raise ValueError("it is not output")
            output = self._outputs.get(slot := host.slot(local))
            if self._running.get(slot) == attempt and output is not None:
                output.write(stream, data)
        elif what == "beat":
            stopped, reports = details
            host.stopped = frozenset(stopped)
            for local, attempt, done, total in reports:
                if self._running.get(slot := host.slot(local)) == attempt:
                    self._progress[slot] = done, total
        else:
            assert what == "failed"
            (self.why[host.name],) = details
            raise EOFError

    def _dismiss(self, hosts: Iterable[AgentHost]) -> None:
        for host in hosts:
            host.stream.send(["end"])
            host.stream.flush()

    def _leave(self, host: AgentHost) -> None:
        if self._hosts.pop(host.stream.channel, None) is not None:
            self._poll.unregister(host.stream.channel)
            host.stream.close()
