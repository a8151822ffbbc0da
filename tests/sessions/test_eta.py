"""When jobs start and end, as a session and its futures say it, by forecasts of a test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from fake_forecasts import FakeForecasts, fake_forecasts
from sessions.small_calls import PATIENCE, released, wait_for_file
from slotwise import InputError, Session
from slotwise.forecast.eta import Eta, Range
from waiting import until


@pytest.fixture
def made() -> Iterator[list[FakeForecasts]]:
    """The forecasts that sessions have made."""
    with fake_forecasts() as found:
        yield found


def test_a_future_says_when_its_job_starts_and_ends(
    made: list[FakeForecasts], tmp_path: Path
) -> None:
    """In Unix seconds; the calls of an executor have the ranges of their job."""
    with Session(1, "fifo") as session, released(tmp_path / "go") as go:
        running = session.submit(wait_for_file, go)
        until(running.running)
        assert not made
        calls = session.executor(name="calls")
        first, second = (calls.submit(abs, -n) for n in range(2))
        before = time.time()
        for eta in (first.eta(), second.eta(), session.eta("calls"), session.eta(second)):
            assert eta is not None
            assert eta.start is not None
            assert eta.job == "calls"
            assert before + 9 < eta.start.low <= time.time() + 10
            assert before + 59 < eta.end.high <= time.time() + 60
            assert before - 1 <= eta.at <= time.time()
        etas = session.etas()
        assert etas.keys() == {running.job, "calls"}
        assert etas["calls"].end.high > time.time()
        assert session.forecasts is made[0]
        calls.shutdown(wait=False)
    assert len(made) == 1
    assert made[0].is_closed
    assert session.etas() == {}
    assert first.eta() is None


def test_a_job_that_is_over_or_not_known_has_no_forecast(
    made: list[FakeForecasts], tmp_path: Path
) -> None:
    """Nor has a call that waits for others; a future of another session is refused."""
    with Session(1) as session, Session(1) as other, released(tmp_path / "go") as go:
        running = session.submit(wait_for_file, go)
        waiting = session.submit(len, running)
        assert waiting.eta() is None
        assert session.eta("unknown", timeout=0) is None
        with pytest.raises(InputError, match="another session"):
            other.eta(running)
        with pytest.raises(InputError):
            session.eta("")
        Path(go).touch()
        assert waiting.result(PATIENCE) == len(go)
        until(lambda: running.eta(timeout=0) is None)


def test_a_forecast_is_the_same_after_json() -> None:
    """An end that is not known is null there."""
    eta = Eta("j", Range(1.0, 2.0, inf), Range(3.0, inf, inf), 0.5, 0.9, 7, False)
    assert eta.to_plain()["start"] == {"low": 1.0, "median": 2.0, "high": None}
    for one in (eta, Eta("j", None, Range(1.0, 2.0, 3.0), 0.5)):
        assert Eta.of_plain(one.to_plain()) == one
        assert one.moved(5.0).moved(-5.0) == one
        assert one.moved(5.0).end.low == one.end.low + 5.0


def test_two_jobs_by_real_forecasts(tmp_path: Path) -> None:
    """The one that runs has no start; the other one starts after some time, then ends."""
    with Session(1, "fifo") as session, released(tmp_path / "go") as go:
        running = session.submit(wait_for_file, go)
        until(running.running)
        waiting = session.submit(abs, -1)
        eta = waiting.eta(PATIENCE)
        assert eta is not None
        assert eta.start is not None
        for one in (eta.start, eta.end):
            assert eta.at <= one.low <= one.median <= one.high
        assert eta.start.median < eta.end.median
        other = running.eta(PATIENCE)
        assert other is not None
        assert other.start is None
        assert other.end.median <= eta.end.median
        assert session.etas().keys() == {running.job, waiting.job}
