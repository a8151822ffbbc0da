"""Forecasts of a test, in place of those of simulations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from slotwise.forecast.eta import Changed, Eta, Range, WhatIf
from slotwise.forecast.situation import Change
from slotwise.sessions import intake


def eta_in(job: str, now: float, later: float) -> Eta:
    """A job starts in 10 to 30 s and ends in 20 to 60 s, or `later`."""
    begin = now + later
    ranges = (
        Range(begin + 10, begin + 20, begin + 30),
        Range(begin + 20, begin + 40, begin + 60),
    )
    return Eta(job, *ranges, at=now, past=3)


class FakeForecasts:
    """Says of each job in the state that it starts in 10 to 30 s and ends in 20 to 60 s."""

    def __init__(self, loop: Any, *_: Any, **__: Any) -> None:
        self._loop, self.is_closed = loop, False
        self.changes: list[Change] = []

    def eta(self, job: str, timeout: float | None = None) -> Eta | None:
        """See `Forecasts`."""
        ends = time.monotonic() + (timeout or 0.0)
        while job not in self.etas() and time.monotonic() < ends:
            time.sleep(0.01)
        return self.etas().get(job)

    def etas(self) -> dict[str, Eta]:
        """See `Forecasts`."""
        now, state = self._loop.backend.now, self._loop.state
        jobs = self._loop.ask(
            lambda: [*(one[0].job.id for one in state.jobs_left()), *state.not_admitted]
        )
        return {job: eta_in(job, now, 0.0) for job in jobs}

    def what_if(self, change: Change) -> WhatIf:
        """See `Forecasts`: all jobs end 100 s later, and may miss their deadlines."""
        self.changes.append(change)
        now = self._loop.backend.now
        new = [
            Changed(job.id, None, eta_in(job.id, now, 0.0), 0.0, 0.25) for job in change.jobs
        ]
        others = [
            Changed(job, eta, eta_in(job, now, 100.0), 0.0, 0.5)
            for job, eta in self.etas().items()
        ]
        return WhatIf(now, (*new, *others), {"mean response": (30.0, 130.0)})

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
