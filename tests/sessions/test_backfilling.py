"""A session whose scheduler backfills by the times that calls and commands request."""

from __future__ import annotations

from pathlib import Path

from sessions.small_calls import PATIENCE, await_, released, touch_and_wait
from slotwise import Session, replay


def test_a_call_that_ends_in_time_goes_ahead_of_a_wide_command(tmp_path: Path) -> None:
    """One that requests longer than what runs now follows the command."""
    log = tmp_path / "log.jsonl"
    with (
        released(tmp_path / "go") as go,
        Session(2, "easy", log=log, keep=False) as session,
        session.executor(name="runs", time_requested="1h") as runs,
        session.executor(name="long", time_requested="2h") as long,
        session.executor(name="short", time_requested="1m") as short,
    ):
        first = runs.submit(touch_and_wait, str(tmp_path / "begun"), go)
        await_(tmp_path / "begun")
        wide = session.command("true", id="wide", slots=2, time_requested=60)
        last = long.submit(len, "abc")
        assert short.submit(len, "ab").result(PATIENCE) == 2
        assert not any(future.done() for future in (first, wide, last))
        assert "easy serves jobs before it first" in str(session.explain(last))
        Path(go).touch()
        for future in (first, wide, last):
            future.result(PATIENCE)
    assert replay(log).is_identical
