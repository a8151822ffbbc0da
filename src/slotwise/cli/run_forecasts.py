"""The progress of a run with forecasts of the ends of its jobs, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from slotwise.insight.report.progress import Progress
from slotwise.running import RunLoop, RunWatcher

if TYPE_CHECKING:
    from slotwise.sessions.forecasting import Forecasts

AFTER_SECONDS = 10.0
"""How long a run lasts before its ends are forecast: short ones do not load what that takes."""


class ForecastProgress(Progress, RunWatcher):
    """A `Progress` that shows the remaining time of each job as a range."""

    _loop: RunLoop | None = None
    _forecasts: Forecasts | None = None
    _making = Lock()

    @contextmanager
    def watching(self, loop: RunLoop) -> Iterator[None]:
        """See `RunWatcher`. In a pipe nothing is forecast."""
        self._loop = loop if self._is_redrawn else None
        try:
            yield
        finally:
            loop.end()
            with self._making:
                self._loop = None
                if self._forecasts is not None:
                    self._forecasts.close()

    def ends(self) -> Mapping[str, tuple[float, float]]:
        """See `Progress`; called by the thread that prints."""
        with self._making:
            if self._loop is None or self._loop.now < AFTER_SECONDS:
                return {}
            if self._forecasts is None:
                from slotwise.sessions.forecasting import Forecasts

                self._forecasts = Forecasts(self._loop)
            etas = self._forecasts.etas()
        return {job: (eta.end.low, eta.end.high) for job, eta in etas.items()}
