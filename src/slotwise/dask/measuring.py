"""A plugin of Dask's workers that measures the memory of tasks by the kernel's peak (Linux).

The gate sends this module to the workers by value, so that they need not have slotwise. It may
therefore import nothing but the standard library, dask and distributed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dask.utils import key_split
from distributed.diagnostics.plugin import WorkerPlugin

TOPIC = "slotwise-memory"
"""The topic of the events with the memory of tasks; also the name of the plugin."""

REPORTED_MIN = 10
"""A worker reports the first tasks of a prefix, then only those that used more than before."""


@dataclass(slots=True)
class _Window:
    """The time in which a task runs.

    begin, peak  bytes of the process at its begin, and the most so far
    at_once      the most tasks that ran at once; `beside`: the prefixes of the others
    """

    prefix: str
    begin: int
    peak: int
    at_once: int
    beside: set[str] = field(default_factory=set)


class TaskMeter(WorkerPlugin):
    """Reports by how much the memory of the process rose while a task ran.

    Costs about 40 microseconds for each task.
    """

    name = TOPIC

    def setup(self, worker: Any) -> None:
        """Begin; called by Dask."""
        self._worker = worker
        self._windows: dict[Any, _Window] = {}
        self._reported: dict[str, tuple[int, int]] = {}  # reports and largest rise by prefix
        self._known = 0  # the kernel's peak where it cannot be reset

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Handle the transition of a task in the worker."""
        if finish == "executing":
            self._begin(key)
        elif start == "executing" and (window := self._windows.pop(key, None)):
            used = self._used()
            if used and finish == "memory":
                self._report(window, max(window.peak, used[1]) - window.begin)

    def _begin(self, key: Any) -> None:
        used = self._used()
        if used is None:
            return
        now, peak = used
        prefix, others = key_split(key), self._windows.values()
        for other in others:  # Their peaks are kept, since the kernel's begins again.
            other.peak = max(other.peak, peak)
            other.at_once = max(other.at_once, len(others) + 1)
            other.beside.add(prefix)
        self._reset(peak)
        beside = {other.prefix for other in others}
        self._windows[key] = _Window(prefix, now, now, len(others) + 1, beside)

    def _report(self, window: _Window, rise: int) -> None:
        count, largest = self._reported.get(window.prefix, (0, 0))
        if count < REPORTED_MIN or rise > largest:
            self._reported[window.prefix] = count + 1, max(rise, largest)
            report = {
                "worker": self._worker.address,
                "prefix": window.prefix,
                "begin": window.begin,
                "rise": rise,
                "at_once": window.at_once,
                "beside": sorted(window.beside),
            }
            self._worker.log_event(TOPIC, report)

    def _used(self) -> tuple[int, int] | None:
        """The resident bytes of the process now, and their peak; None if they are not known."""
        try:
            with open("/proc/self/status", "rb", buffering=0) as file:
                status = file.read(4096)
        except OSError:
            return None
        peak, now = (
            int(status[status.index(name) + len(name) :].split(None, 1)[0]) << 10
            for name in (b"VmHWM:", b"VmRSS:")
        )
        return now, peak if peak > self._known else now

    def _reset(self, peak: int) -> None:
        try:
            with open("/proc/self/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")
        except OSError:
            self._known = max(self._known, peak)
