"""The comparison of promises with EASY backfilling, on few jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import promises
from experiments.promises import ERRORS, KEEPING, PromisesRow, app, drawn, measured, summed

LOG = "; MaxProcs: 4\n" + "".join(
    f"{n} {10 * n} -1 {20 + n} {1 + n % 4} -1 -1 {1 + n % 4} {50 + n} -1 1 1 1 1 1 1 -1 -1\n"
    for n in range(1, 40)
)


@pytest.mark.parametrize("errors", ERRORS)
def test_few_jobs_of_all_errors(errors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers are told what is stated, and dates follow from that."""
    monkeypatch.setattr(promises, "JOBS", 60)
    true, told = drawn(errors, 0.9, (0, 0))
    assert [one.promise for one in true] == [one.promise for one in told]
    same = [
        a.phases[0].tasks.work == b.phases[0].tasks.work
        for a, b in zip(true, told, strict=True)
    ]
    assert all(same) == (errors == "exact")
    rows = measured(errors, 0.9, 0, 0)
    assert [row.scheduler for row in rows] == list(KEEPING)
    for row in rows:
        assert 0 < row.accepted <= row.asked
        assert row.kept == 1.0 or errors != "exact"


def test_draws_are_summed() -> None:
    """Parts count by promise, costs by draw."""
    one = PromisesRow("exact", 0.7, "fair", 10, 1, 1.0, 0.0, 0.0, 1.0, 0.5, 0.5)
    other = PromisesRow("exact", 0.7, "fair", 10, 3, 0.0, 1.0, 0.0, 2.0, 1.5, 0.5)
    both = PromisesRow("exact", 0.7, "fair", 20, 4, 0.25, 0.75, 0.0, 1.5, 1.0, 0.5)
    assert summed([one, other]) == [both]


def test_a_log_takes_the_place_of_draws(tmp_path: Path) -> None:
    """Its jobs state what they request."""
    path = tmp_path / "small.swf"
    path.write_text(LOG)
    done = CliRunner().invoke(app, ["--log", str(path), "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)
    assert {row["errors"] for row in rows} == {"small"}
    assert all(row["kept"] == 1.0 for row in rows)
