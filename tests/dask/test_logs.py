"""The log of a gate is read like those of other live runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fake_dask import FakeDask
from slotwise.cli.main import app
from slotwise.core.log import following
from slotwise.insight.replay import replay_log
from slotwise.results import Result


def gate_log(path: Path, scheduler: str) -> Path:
    """A log with three jobs, while a worker comes and another leaves; it is not closed."""
    dask = FakeDask({"scheduler": scheduler, "log": str(path)}, workers=2)
    for number in range(3):
        dask.submit(f"Client-{number}", [f"f-{number}-{task}" for task in range(4)])
        dask.turns()
        dask.finish(seconds=1e-6)
        if number == 0:
            dask.running.append(FakeDask({}, workers=3).running[2])
        elif number == 1:
            dask.lose()
    while dask.tasks:
        dask.finish(seconds=1e-6)
    dask.gate._stack.close()
    return path


@pytest.mark.parametrize("scheduler", ["fair", "flex", "uwfq"])
@pytest.mark.parametrize("part", [1.0, 0.6])
def test_a_log_has_a_result_with_a_lower_bound(
    scheduler: str, part: float, tmp_path: Path
) -> None:
    """Also one that was cut off: the value is above the bound, and a replay is identical."""
    path = gate_log(tmp_path / "gate.jsonl", scheduler)
    lines = path.read_bytes()
    path.write_bytes(lines[: int(part * len(lines))])
    with following(path) as log:
        result = Result.of_log(log)
    assert result.metrics["value"] >= result.bound > 0
    with following(path) as log:
        replay = replay_log(log)
    assert replay.is_identical
    assert replay.decisions > 0


@pytest.mark.parametrize("is_done", [True, False])
def test_a_log_tells_whether_all_jobs_were_over_when_the_scheduler_closed(
    is_done: bool, tmp_path: Path
) -> None:
    """Only a log of which jobs were left is called interrupted; both can be replayed."""
    path = tmp_path / "gate.jsonl"
    dask = FakeDask({"scheduler": "fair", "log": str(path)}, workers=2)
    dask.submit("Client-1", ["f-1", "f-2", "f-3"])
    dask.turns()
    while dask.tasks and is_done:
        dask.finish(seconds=1e-6)
    asyncio.run(dask.gate.close())
    with following(path) as log:
        assert Result.of_log(log).outcome.is_over == is_done
    with following(path) as log:
        assert replay_log(log).is_identical


def test_a_gate_goes_on_without_a_log_that_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A full disk takes the log from a cluster, not its shares."""
    dask = FakeDask({"scheduler": "fair", "log": "/dev/full"}, workers=2)
    dask.submit("Client-1", ["f-1", "f-2", "f-3"])
    dask.turns()
    while dask.tasks:
        dask.finish(seconds=1e-6)
    assert not dask.gate.is_open
    assert [record.message for record in caplog.records] == [
        "slotwise: the run continues without its log: log '/dev/full': No space left on device;"
        " name another file"
    ]
    dask.gate.open()


@pytest.mark.slow
def test_the_commands_read_the_log(tmp_path: Path) -> None:
    """The report has metric and bound; replay and explain work."""
    path, page = gate_log(tmp_path / "gate.jsonl", "fair"), tmp_path / "page.html"
    for words in (["report", str(path), "-o", str(page)], ["replay", str(path)]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, ["explain", str(path)]).exit_code == 0
    assert "bound" in page.read_text()
