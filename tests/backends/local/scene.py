"""A local backend controlled by a test: its hosts can be stopped, its tasks leave marks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.local.calling import TIMEOUT
from slotwise.backends.local.backend import LocalBackend
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import HostLost
from slotwise.core.job import PhaseId
from slotwise.jobs.calls import Calls

PHASE = PhaseId("j", "p")


@dataclass
class Scene:
    """A local backend controlled by the test; host a has two slots, host b one."""

    backend: LocalBackend
    calls: Calls
    received: list[Any] = field(default_factory=list)

    def launch(self, task: int, host: str, attempt: int = 1) -> None:
        """Begin an attempt."""
        self.backend.perform(Launch(PHASE, task, attempt, host, Locality.ANY))

    def pids(self, host: str) -> list[int]:
        """The worker processes of a host."""
        slots = {"a": slice(0, 2), "b": slice(2, 3)}[host]
        return list(self.backend._processes.pids()[slots])

    def signal(self, number: signal.Signals, pids: Iterable[int]) -> None:
        """Stop, continue or end processes with all of their groups."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)

    def stop_host(self, host: str) -> list[Any]:
        """Stop all of a host until it is missed; all events until then.

        A stop that coincides with one by which a host is slowed is lost, so it is sent again.
        """
        events: list[Any] = []
        until = time.monotonic() + TIMEOUT
        while not any(isinstance(event, HostLost) for event in events):
            assert time.monotonic() < until
            self.signal(signal.SIGSTOP, self.pids(host))
            events += self.events_until(self.backend.now + 0.2)
        return events

    def await_events(self, *kinds: type) -> list[Any]:
        """Wait for an event of each kind since the last call. All events since then."""
        until, events = time.monotonic() + TIMEOUT, []
        while not {*kinds} <= {type(event) for event in events}:
            assert time.monotonic() < until, f"only {events} came"
            events += self.backend.wait(self.backend.now + 1.0)
        self.received += events
        return events

    def events_until(self, instant: float) -> list[Any]:
        """All events until an instant of the backend."""
        events: list[Any] = []
        while self.backend.now < instant:
            events += self.backend.wait(instant)
        self.received += events
        return events


Play = Callable[..., Scene]


STEP = 0.02


def marking(folder: Path) -> Callable[[int], object]:
    """A task of steps of 20 ms, each of which leaves a mark in the file of its attempt.

    It ends after a step at which its process is let go.
    """
    path, step = str(folder), STEP

    def work(task: int) -> int:
        import os
        import time

        go = f"{path}/go-{os.getpid()}"
        with open(f"{path}/{task}-{os.getpid()}", "a", buffering=1) as file:
            while not os.path.exists(go):
                file.write("x")
                file.flush()
                time.sleep(step)
        return task * task

    return work


def let_go(folder: Path, pids: Iterable[int]) -> None:
    """Let the tasks in these processes end."""
    for pid in pids:
        (folder / f"go-{pid}").touch()


def marks(folder: Path) -> dict[str, int]:
    """The number of steps that each attempt has done, by task and process."""
    files = (path for path in folder.iterdir() if not path.name.startswith("go-"))
    return {path.name: path.stat().st_size for path in files}


def wait_for_marks(folder: Path, count: int, steps: int = 1) -> None:
    """Block until the given number of tasks have done the given number of steps."""
    until = time.monotonic() + TIMEOUT
    while sum(done >= steps for done in marks(folder).values()) < count:
        assert time.monotonic() < until
        time.sleep(0.005)
