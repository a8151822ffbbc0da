"""Remembering: a record for the loop that adds finished tasks of programs to a history."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from slotwise.model.cluster import Cluster
from slotwise.model.decision import Decision, Launch
from slotwise.model.errors import InputError
from slotwise.model.event import Event, HostAdded, TaskEnded, TaskFinished, TaskKilled
from slotwise.model.job import PhaseId
from slotwise.model.observation import Observation, Sizes
from slotwise.record.history import append_history, create_history

WRITE_SECONDS = 2.0
"""The interval of writes, and so the most observations, in seconds, that a kill may lose."""

Programs = Mapping[str, tuple[str, Mapping[str, Sizes]]]
"""For each job: the name of its program, and the bytes of its tasks by phase."""

AttemptKey = tuple[PhaseId, int, int]


class HistoryWriter:
    """Collects finished tasks of programs, and writes them to a history periodically.

    A thread writes, so that the loop never waits for a disk or for another run. A failed write
    is tried again; InputError if the last one, at the end, fails. Tasks that continued from the
    kept value of a stopped attempt are left out, because their full duration is unknown.
    InputError at the start if the path cannot hold a history.
    """

    def __init__(self, path: str | Path, programs: Programs, cluster: Cluster) -> None:
        self._path = path
        self._programs = programs
        self._speeds = {host.name: host.speed for host in cluster.hosts}
        self._hosts: dict[AttemptKey, str] = {}
        self._helped: set[tuple[PhaseId, int]] = set()
        self._waiting: list[Observation] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write_often, daemon=True)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Collect the tasks that ended in one turn."""
        for event in events:
            if isinstance(event, HostAdded):
                self._speeds[event.host.name] = event.host.speed
        if seen := list(self._seen(events)):
            with self._lock:
                self._waiting += seen
        for decision in decisions:
            if isinstance(decision, Launch) and decision.phase.job in self._programs:
                attempt = (decision.phase, decision.task, decision.attempt)
                self._hosts[attempt] = decision.host

    def __enter__(self) -> Self:
        create_history(self._path)  # Fails now rather than at the end.
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._write()

    def _seen(self, events: Sequence[Event]) -> Iterator[Observation]:
        for event in events:
            if not isinstance(event, TaskEnded):
                continue
            phase, task = event.phase, event.task
            host = self._hosts.pop((phase, task, event.attempt), None)
            if isinstance(event, TaskKilled) and event.kept:
                self._helped.add((phase, task))
            if not isinstance(event, TaskFinished) or host is None:
                continue
            program, phases = self._programs[phase.job]
            sizes = phases.get(phase.phase)
            if sizes is not None and (phase, task) not in self._helped:
                size = sizes if isinstance(sizes, int) else sizes[task]
                # Waits, measured separately, may exceed the whole by rounding.
                seconds = max(0.0, event.seconds)
                speed = self._speeds[host]
                yield Observation(program, phase.phase, size, host, speed, seconds)

    def _write_often(self) -> None:
        while not self._is_over.wait(WRITE_SECONDS):
            with suppress(InputError):  # It is tried again; the last try raises.
                self._write()

    def _write(self) -> None:
        """Write the collected observations. Only one thread at a time may call this."""
        with self._lock:
            batch = tuple(self._waiting)
        if batch:
            append_history(self._path, batch)
            with self._lock:
                del self._waiting[: len(batch)]
