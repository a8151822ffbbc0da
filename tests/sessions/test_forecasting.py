"""The thread that forecasts: within its part of a processor, and what it keeps."""

from __future__ import annotations

import os
import threading
import time
from math import inf
from pathlib import Path

import pytest

from slotwise import Session
from slotwise.core.errors import InputError
from slotwise.core.pools import Pool
from slotwise.forecast import courses
from slotwise.forecast.forecaster import Forecaster
from slotwise.forecast.situation import Change
from slotwise.sessions.forecasting import PROCESSOR_PART, SAVED_SECONDS, Forecasts
from waiting import until

pytestmark = pytest.mark.session_only("a server has the forecasts of its session")


def test_waiting_and_running_jobs_have_forecasts(session: Session) -> None:
    """Waiting and running jobs have forecasts."""
    forecasts = session.forecasts
    futures = [session.submit(time.sleep, 0.4) for _ in range(6)]
    found = forecasts.eta(futures[-1].job, timeout=60)
    assert found is not None
    assert found.end.low <= found.end.median <= found.end.high
    assert 0 <= found.at <= session.now
    until(lambda: len(forecasts.etas()) == 0 or all(f.done() for f in futures))
    assert forecasts.eta("no such job") is None


def test_what_it_takes_is_limited(session: Session) -> None:
    """What it takes is limited."""
    forecasts = session.forecasts
    futures = [session.submit(time.sleep, 0.05) for _ in range(60)]
    began = time.monotonic()
    for future in futures:
        future.result()
    used, passed = forecasts.processor_seconds, time.monotonic() - began
    assert used <= SAVED_SECONDS + PROCESSOR_PART * passed + 0.5


def test_what_is_kept_is_read_again_and_damage_is_no_error(
    session: Session, tmp_path: Path
) -> None:
    """What is kept is read again and damage is no error."""
    kept = tmp_path / "forecasts.json"
    Forecasts(session._intake.loop, kept).close()
    infinite = kept.read_text().replace('"noted": 0', '"noted": Infinity')
    for damage in ("", "{", "[]", '{"scheduler": 3}', "\x00", "[" * 100_000, infinite):
        kept.write_text(damage)
        Forecasts(session._intake.loop, kept).close()
        assert kept.read_text().startswith('{"scheduler"')
    kept.unlink()
    kept.mkdir()
    Forecasts(session._intake.loop, kept).close()
    os.mkfifo(tmp_path / "pipe")  # To read it would take for ever.
    Forecasts(session._intake.loop, tmp_path / "pipe").close()


def test_a_question_may_wait_for_ever(session: Session) -> None:
    """A question may wait for ever."""
    future = session.submit(time.sleep, 0.3)
    assert session.forecasts.eta(future.job, timeout=inf) is not None


def test_wrong_changes_are_refused(session: Session) -> None:
    """Wrong changes are refused."""
    forecasts = session.forecasts
    for change, message in (
        (Change(scheduler="nice"), "unknown scheduler"),
        (Change(without_hosts=("nobody",)), "unknown host"),
        (Change(hosts=tuple(session.hosts())), "present already"),
        (Change(pools=(Pool("a", parent="b"),)), "pool"),
    ):
        with pytest.raises(InputError, match=message):
            forecasts.what_if(change)


def test_an_error_in_a_forecast_is_reported_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error in a forecast is reported once, and ends neither later forecasts nor jobs."""
    learn, failed = Forecaster.learn, list[int]()

    def fail(forecaster: Forecaster) -> None:
        """The first two forecasts fail."""
        if len(failed) < 2:
            failed.append(1)
            raise ZeroDivisionError("unforeseen")
        learn(forecaster)

    monkeypatch.setattr(Forecaster, "learn", fail)
    with Session(2) as session:
        forecasts = session.forecasts
        futures = [session.submit(time.sleep, 0.1), session.submit(time.sleep, 60.0)]
        assert futures[0].result(60) is None
        until(lambda: forecasts.eta(futures[1].job, timeout=1))
        assert len(failed) == 2
        assert capfd.readouterr().err.count("Error: unforeseen") == 1
        session.close(cancels=True)


def test_python_forecasts_while_machine_code_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many jobs have forecasts although it takes long, and nothing waits for it at the end."""
    release = threading.Event()
    monkeypatch.setattr(courses, "_loading", [])
    monkeypatch.setattr(courses, "_loaded", [])
    monkeypatch.setattr(courses, "_load", release.wait)
    try:
        with Session(2) as session:
            forecasts = session.forecasts
            futures = [session.submit(time.sleep, 60.0) for _ in range(250)]
            assert forecasts.eta(futures[-1].job, timeout=60) is not None
            assert courses._loading
            assert not courses._loaded
            session.close(cancels=True)
    finally:
        release.set()


def test_kinds_of_slots_may_come_with_later_hosts() -> None:
    """Kinds of slots may come with later hosts."""
    with Session({"map": 1}) as session:
        forecasts = session.forecasts
        session.add_host("later", {"task": 1})
        future = session.submit(time.sleep, 60.0)
        found = forecasts.eta(future.job, timeout=60)
        assert found is not None
        assert not found.end.is_open
        session.close(cancels=True)


def test_close_ends_it(session: Session) -> None:
    """Close ends it."""
    forecasts = session.forecasts
    forecasts.close()
    forecasts.close()
    assert forecasts.eta("anything", timeout=60) is None
