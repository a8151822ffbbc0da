"""Measured and expected times of finished tasks, from which host speeds are estimated."""

from __future__ import annotations

from math import log

import numpy as np

from slotwise.model.job import PhaseId
from slotwise.model.snapshot import TaskTimings
from slotwise.objective.costs import Floats

MAX_PHASES = 32
"""The number of phases to keep. Beyond it, the one with the earliest first entry is dropped."""


class Finished:
    """Totals over finished tasks, by phase and host. `note` is O(1), and `seen` a copy.

    A host that is seen for the first time costs O(phases x hosts), and so does a phase beyond
    the first `MAX_PHASES`. Most policies never read it: the state notes tasks only after it
    was read for the first time.

    is_read  whether it was read
    """

    def __init__(self) -> None:
        self.is_read = False
        # The totals of each phase: by host, expected work, seconds and tasks.
        self._totals: dict[PhaseId, dict[str, tuple[float, float, int]]] = {}
        # Where phases and hosts are in the arrays of `TaskTimings`.
        self._rows: dict[PhaseId, int] = {}
        self._columns: dict[str, int] = {}
        self._tasks, self._ratios = _tables(0)
        self._has_columns = True  # Whether each host in the totals has one.

    def note(self, phase: PhaseId, host: str, work: float, seconds: float) -> None:
        """Add a finished task: expected `work` (seconds at speed 1) and measured `seconds`."""
        totals = self._totals.get(phase)
        if totals is None:
            if len(self._totals) == MAX_PHASES:
                self._drop_oldest()
            totals = self._totals[phase] = {}
            self._rows[phase] = len(self._rows)
        expected, measured, tasks = totals.get(host, (0.0, 0.0, 0))
        totals[host] = expected + work, measured + seconds, tasks + 1
        if host in self._columns:
            self._write(phase, host)
        else:
            self._has_columns = False

    def forget(self, host: str) -> None:
        """Drop the totals of a host that has left; one that comes back may differ."""
        for totals in self._totals.values():
            totals.pop(host, None)
        self._columns.clear()
        self._has_columns = False

    @property
    def seen(self) -> TaskTimings:
        """The totals as arrays."""
        self.is_read = True
        if not self._has_columns:
            self._write_all()
        rows = len(self._rows)
        return TaskTimings(
            list(self._rows),
            list(self._columns),
            self._tasks[:rows].copy(),
            self._ratios[:rows].copy(),
        )

    def _drop_oldest(self) -> None:
        """Drop the first row; all others move up."""
        del self._totals[next(iter(self._totals))]
        self._rows = {phase: row for row, phase in enumerate(self._totals)}
        for table in (self._tasks, self._ratios):
            table[:-1] = table[1:]
            table[-1] = 0.0

    def _write_all(self) -> None:
        """Give each host a column, and compute all entries again."""
        for totals in self._totals.values():
            for host in totals:
                self._columns.setdefault(host, len(self._columns))
        self._tasks, self._ratios = _tables(len(self._columns))
        for phase, totals in self._totals.items():
            for host in totals:
                self._write(phase, host)
        self._has_columns = True

    def _write(self, phase: PhaseId, host: str) -> None:
        """Compute the entries of a phase and a host."""
        expected, seconds, tasks = self._totals[phase][host]
        if seconds > 0 and expected > 0:
            place = self._rows[phase], self._columns[host]
            self._tasks[place] = tasks
            self._ratios[place] = log(seconds / expected)


def _tables(hosts: int) -> tuple[Floats, Floats]:
    """The numbers of tasks, and the logarithms of measured over expected times; 0 so far."""
    return np.zeros((MAX_PHASES, hosts)), np.zeros((MAX_PHASES, hosts))
