"""Measured and expected times of finished tasks, from which host speeds are estimated."""

from __future__ import annotations

from math import log

import numpy as np

from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Seen
from slotwise.objective.costs import Floats

PHASES_MOST = 32
"""The number of phases to keep. Beyond it, the one with the earliest first entry is dropped."""


class Finished:
    """Totals over finished tasks, by phase and host. `note` is O(1).

    `seen` is O(phases x hosts) in numpy, and O(hosts) for each phase that changed. Most
    policies never read it: the state notes tasks only after it was read for the first time.

    is_read  whether it was read
    """

    def __init__(self) -> None:
        self.is_read = False
        # The totals of each phase: by host, expected work, seconds and tasks.
        self._totals: dict[PhaseId, dict[str, tuple[float, float, int]]] = {}
        # The columns of the hosts, and the rows of the phases that have not changed.
        self._columns: dict[str, int] = {}
        self._rows: dict[PhaseId, tuple[Floats, Floats]] = {}

    def note(self, phase: PhaseId, host: str, work: float, seconds: float) -> None:
        """Add a finished task: expected `work` (seconds at speed 1) and measured `seconds`."""
        totals = self._totals.get(phase)
        if totals is None:
            if len(self._totals) == PHASES_MOST:
                oldest = next(iter(self._totals))
                del self._totals[oldest]
                self._rows.pop(oldest, None)
            totals = self._totals[phase] = {}
        expected, measured, tasks = totals.get(host, (0.0, 0.0, 0))
        totals[host] = expected + work, measured + seconds, tasks + 1
        self._rows.pop(phase, None)

    def forget(self, host: str) -> None:
        """Drop the totals of a host that has left; one that comes back may differ."""
        for totals in self._totals.values():
            totals.pop(host, None)
        self._columns.clear()
        self._rows.clear()

    @property
    def seen(self) -> Seen:
        """The totals as arrays."""
        self.is_read = True
        columns = self._columns
        for phase, totals in self._totals.items():
            if phase not in self._rows and not totals.keys() <= columns.keys():
                for host in totals:
                    columns.setdefault(host, len(columns))
                self._rows.clear()  # They are too short now.
        for phase, totals in self._totals.items():
            if phase not in self._rows:
                self._rows[phase] = _row(totals, columns)
        rows = [self._rows[phase] for phase in self._totals]
        shape = len(rows), len(columns)
        tasks, ratios = (
            (np.array(column).reshape(shape) for column in zip(*rows, strict=True))
            if rows
            else (np.zeros(shape), np.zeros(shape))
        )
        return Seen(list(self._totals), list(columns), tasks, ratios)


def _row(
    totals: dict[str, tuple[float, float, int]], columns: dict[str, int]
) -> tuple[Floats, Floats]:
    """The number of tasks on each host, and the logarithms of measured over expected times."""
    counts, ratios = np.zeros(len(columns)), np.zeros(len(columns))
    for host, (expected, seconds, tasks) in totals.items():
        if seconds > 0 and expected > 0:
            counts[columns[host]] = tasks
            ratios[columns[host]] = log(seconds / expected)
    return counts, ratios
