"""Calls that run report their progress."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sessions.small_calls import await_
from slotwise import Session, task


def report_and_wait(done: float, total: float | None, folder: str) -> str:
    """A call that reports, says that it has, and lasts until it may end."""
    task.progress(done, total)
    Path(folder, "reported").touch()
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.005)
    return "done"


@pytest.mark.local_only("agents report once a second")
def test_a_future_shows_what_its_call_has_reported(tmp_path: Path) -> None:
    """Only while it runs; the next call of the same worker has reported nothing."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with Session(1) as session:
        first = session.submit(report_and_wait, 3, 10, str(tmp_path / "first"))
        second = session.submit(report_and_wait, 0.5, None, str(tmp_path / "second"))
        await_(tmp_path / "first" / "reported")
        assert (first.progress(), second.progress()) == ((3.0, 10.0), None)
        (tmp_path / "first" / "go").touch()
        await_(tmp_path / "second" / "reported")
        assert (first.progress(), second.progress()) == (None, (0.5, None))
        (tmp_path / "second" / "go").touch()
    assert second.progress() is None


def test_progress_outside_of_a_task_has_no_effect() -> None:
    """Code that reports can be called anywhere."""
    task.progress(1, 2)
