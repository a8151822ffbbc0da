"""The comparison of schedulers on a log of rigid jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.rigid import (
    BOUND,
    CASES,
    PROMISES,
    PUBLISHED,
    RigidRow,
    app,
    simulated,
    table_of,
)
from slotwise.workload.swf import read_swf

LOG = """\
; MaxProcs: 4
1 0 -1 100 3 -1 -1 3 100 -1 1 1 1 1 1 1 -1 -1
2 1 -1  50 4 -1 -1 4  50 -1 1 1 1 1 1 1 -1 -1
3 2 -1   5 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three jobs; the last one would go ahead if it requested the time that it takes."""
    path = tmp_path / "small.swf"
    path.write_text(LOG)
    return path


@pytest.mark.parametrize(
    ("knows", "waits"), [("requested", (0, 99, 148)), ("true", (0, 99, 0))]
)
def test_slowdowns_of_short_jobs_are_bounded(
    log: Path, knows: str, waits: tuple[float, ...]
) -> None:
    """A job of five seconds counts as one of ten."""
    row = simulated(read_swf(log, true_times=knows == "true"), "easy", knows)
    assert row.wait == pytest.approx(sum(waits) / 3)
    slowdowns = (1, (99 + 50) / 50, max(1.0, (waits[2] + 5) / BOUND))
    assert row.slowdown == pytest.approx(sum(slowdowns) / 3)


def test_flex_with_promises_stands_beside_the_others(tmp_path: Path) -> None:
    """A part of the jobs asks for dates; the table has how many are kept."""
    path = tmp_path / "many.swf"
    jobs = [f"{n} {9 * n} -1 20 2 -1 -1 2 30 -1 1 1 1 1 1 1 -1 -1\n" for n in range(1, 40)]
    path.write_text("; MaxProcs: 4\n" + "".join(jobs))
    row = simulated(read_swf(path), "flex", PROMISES)
    promised, kept = row.promised
    assert 0 < kept <= promised
    assert list(table_of([row], is_published=False).columns[-1].cells) == [
        f"{kept} of {promised}"
    ]


def test_the_command_compares_all_schedulers(log: Path) -> None:
    """As JSON; published values stand beside those of the log that they are of only."""
    found = CliRunner().invoke(app, [str(log), "--json", "--processes", "1"])
    rows = [RigidRow(**row) for row in json.loads(found.stdout)]
    assert [(row.scheduler, row.knows) for row in rows] == list(CASES)
    assert PUBLISHED.keys() < set(CASES)
    columns = [table_of(rows, is_published=known).columns[3] for known in (True, False)]
    assert [sum(map(bool, column.cells)) for column in columns] == [len(PUBLISHED), 0]
