"""Forecasts of a test, in place of those of simulations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from slotwise.forecast.eta import Eta, Range
from slotwise.sessions import intake


class FakeForecasts:
    """Says of each job in the state that it starts in 10 to 30 s and ends in 20 to 60 s."""

    def __init__(self, core: Any, *_: Any, **__: Any) -> None:
        self._core, self.is_closed = core, False

    def eta(self, job: str, timeout: float | None = None) -> Eta | None:
        """See `Forecasts`."""
        ends = time.monotonic() + (timeout or 0.0)
        while job not in self.etas() and time.monotonic() < ends:
            time.sleep(0.01)
        return self.etas().get(job)

    def etas(self) -> dict[str, Eta]:
        """See `Forecasts`."""
        now, jobs = self._core.now, self._core.ask(self._core.jobs_left)
        ranges = (Range(now + 10, now + 20, now + 30), Range(now + 20, now + 40, now + 60))
        return {job.id: Eta(job.id, *ranges, at=now, past=3) for job in jobs}

    def close(self) -> None:
        """See `Forecasts`."""
        self.is_closed = True


@contextmanager
def fake_forecasts() -> Iterator[list[FakeForecasts]]:
    """Sessions of this process have such forecasts; they are in the list."""
    made = list[FakeForecasts]()

    def make(*given: Any, **named: Any) -> FakeForecasts:
        made.append(FakeForecasts(*given, **named))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "Forecasts", make)
        yield made
