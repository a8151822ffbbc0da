"""Commands that are interrupted during a run: they show the results so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slotwise as package
from slotwise import running
from slotwise.core.loop import run as run_loop

STOPPED_AT = 12.0
"""At this time the small one of the two jobs is done."""


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Interrupts the run of this number as Ctrl-C does."""

    def stop(number: int) -> None:
        begun = []

        def interrupted(
            scheduler: Any, backend: Any, state: Any, record: Any, buffer: Any
        ) -> None:
            begun.append(state)

            def stopped(now: float, events: Any, decisions: Any) -> None:
                if len(begun) == number and now > STOPPED_AT:
                    raise KeyboardInterrupt
                record(now, events, decisions)

            run_loop(scheduler, backend, state, stopped, buffer)

        monkeypatch.setattr(running, "run_loop", interrupted)

    return stop


def test_simulate_shows_the_interrupted_run(
    slotwise: Any, folder: Path, stopping: Callable[[int], None]
) -> None:
    """The table, the page and the message say that it was interrupted."""
    stopping(1)
    done = slotwise("simulate", "jobs.yaml", "--report", "page.html")
    assert done.exit_code == 130
    assert "(interrupted)" in done.stdout
    states = [line.split()[:2] for line in done.stdout.splitlines()[3:5]]
    assert states == [["large", "unfinished"], ["small", "done"]]
    assert "report: page.html" in done.stderr
    assert done.stderr.endswith("slotwise: interrupted after 10 tasks; done: small\n")
    assert "when 1 of 2 jobs had ended" in (folder / "page.html").read_text()


def test_compare_shows_the_runs_before_the_interrupted_one(
    slotwise: Any, folder: Path, stopping: Callable[[int], None]
) -> None:
    """One object for each run that had begun; only the last was interrupted."""
    stopping(2)
    done = slotwise("compare", "jobs.yaml", "--json", "--report", "page.html")
    assert done.exit_code == 130
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["scheduler"], first.get("interrupted")) == ("fifo", None)
    assert (second["scheduler"], second.get("interrupted")) == ("fair", True)
    assert second["jobs"]["large"]["completion"] is None
    assert "slotwise: fair: interrupted after" in done.stderr
    page = (folder / "page.html").read_text()
    assert "fair was interrupted" in page
    assert "fifo was interrupted" not in page


def test_python_has_the_earlier_results(folder: Path, stopping: Callable[[int], None]) -> None:
    """The exception has them, and the result of the interrupted run."""
    stopping(3)
    with pytest.raises(package.RunInterrupted) as stop:
        package.compare("jobs.yaml", ["fifo", "fair", "flex"])
    assert [result.scheduler for result in stop.value.earlier] == ["fifo", "fair"]
    assert [result.is_interrupted for result in stop.value.earlier] == [False, False]
    assert (stop.value.result.scheduler, stop.value.result.is_interrupted) == ("flex", True)


def test_an_interrupt_between_two_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished runs are kept although no run was interrupted."""
    header = running.RunSpec.header

    def stop_second(setting: Any) -> Any:
        if setting.scheduler == "fair":
            raise KeyboardInterrupt
        return header(setting)

    monkeypatch.setattr(running.RunSpec, "header", stop_second)
    with pytest.raises(package.RunInterrupted) as stop:
        package.compare("jobs.yaml", ["fifo", "fair", "flex"])
    assert (stop.value.result.scheduler, stop.value.earlier) == ("fifo", ())
