"""The time left of a run as a range: on a terminal only, by forecasts of a test."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import slotwise
from slotwise.cli import run_forecasts
from slotwise.cli.run_forecasts import ForecastProgress
from slotwise.forecast.eta import Eta, Range
from slotwise.sessions import forecasting
from waiting import until

MADE: list[Any] = []


class AskingForecasts:
    """Asks the loop in the thread that prints, as forecasts do in theirs."""

    def __init__(self, loop: Any) -> None:
        self.loop, self.is_closed, self.seen, self.turns = loop, False, set[str](), 0
        loop.observe(self._on_turn)
        MADE.append(self)

    def _on_turn(self, now: float, events: object, decisions: object) -> None:
        self.turns += 1

    def etas(self) -> dict[str, Eta]:
        """See `Forecasts`."""
        state = self.loop.state
        jobs = self.loop.ask(lambda: [phases[0].job.id for phases in state.jobs_left()])
        self.seen.update(jobs)
        far = Range(7200.0, 7200.0 + 3600, 14_400.0)
        return {job: Eta(job, None, far, at=0.0) for job in jobs}

    def close(self) -> None:
        """See `Forecasts`."""
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The forecasts that runs have made, from their first second on."""
    MADE.clear()
    monkeypatch.setattr(forecasting, "Forecasts", AskingForecasts)
    monkeypatch.setattr(run_forecasts, "AFTER_SECONDS", 0.1)
    return MADE


def run(folder: Path, console: Console) -> str:
    """What a run prints whose two jobs last until the first one was drawn twice."""
    mark = folder / "go"
    wait = f"until [ -e {mark} ]; do sleep 0.02; done"
    jobs = [slotwise.command(wait, folder / name, id=name) for name in ("a", "b")]
    drawn = 0

    class Watched(ForecastProgress):
        def screen(self, width: int, most: int, later: float = 0.0) -> Any:
            """Count drawings after the beginning."""
            nonlocal drawn
            drawn += later >= 0 and bool(MADE)
            if drawn > 1:
                mark.touch()
            return super().screen(width, most, later)

    with Watched(console, "fifo, live") as progress:
        if not console.is_terminal:
            mark.touch()
        slotwise.run(jobs, "fifo", slots=1, progress=progress, keep=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_terminal_shows_the_time_left_as_a_range(made: list[Any], tmp_path: Path) -> None:
    """The state is read between turns; at the end forecasts are closed, and nothing waits."""
    text = run(tmp_path, Console(file=StringIO(), width=90, force_terminal=True))
    assert "1–4 h" in text
    (forecasts,) = made
    assert forecasts.is_closed
    assert forecasts.turns
    assert {"a", "b"} <= forecasts.seen
    until(lambda: forecasts.loop.ask(lambda: True))


def test_a_pipe_has_no_forecasts(made: list[Any], tmp_path: Path) -> None:
    """Nor do they cost anything."""
    text = run(tmp_path, Console(file=StringIO(), width=90))
    assert "a: started" in text
    assert not made
