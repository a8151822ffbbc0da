"""`slotwise history`: what is known, as a table and as JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slotwise.model.observation import Observation
from slotwise.record.history import append_history


@pytest.fixture
def known(folder: Path) -> Path:
    """A history of a word count on two hosts, one of which is half as fast as it was said."""
    path = folder / "history.db"
    maps = [
        Observation("wordcount", "map", 10_000_000, host, 1.0, seconds)
        for host, seconds in [("h1", 0.5)] * 6 + [("h2", 1.0)] * 3
    ]
    append_history(path, [*maps, Observation("wordcount", "reduce", 1000, "h1", 1.0, 0.001)])
    return path


def test_it_tells_rates_and_speeds(slotwise: Any, known: Path) -> None:
    """A line a phase and a line a host, the database in the folder unless one is named."""
    told = slotwise("history")
    assert (told.exit_code, told.stderr) == (0, "")
    assert [line.split() for line in told.stdout.splitlines() if line] == [
        ["program", "phase", "MB/s", "a", "slot", "spread", "tasks"],
        ["wordcount", "map", "20.0", "0", "%", "9"],
        ["wordcount", "reduce", "1.00", "0", "%", "1"],
        ["host", "stated", "speed", "spread", "tasks"],
        ["h1", "1.00", "1.00", "0", "%", "7"],
        ["h2", "1.00", "0.50", "0", "%", "3"],
    ]
    assert slotwise("history", "history.db").stdout == told.stdout


def test_it_tells_the_same_as_json(slotwise: Any, known: Path) -> None:
    """One object and nothing else."""
    told = slotwise("history", str(known), "--json")
    assert (told.exit_code, told.stderr, told.stdout.count("\n")) == (0, "", 1)
    plain = json.loads(told.stdout)
    assert list(plain) == ["programs", "hosts"]
    assert [row["seconds_per_byte"] for row in plain["programs"]] == pytest.approx([5e-8, 1e-6])
    assert [(row["host"], row["tasks"]) for row in plain["hosts"]] == [("h1", 7), ("h2", 3)]
    assert [row["speed"] for row in plain["hosts"]] == pytest.approx([1.0, 0.5])


def test_an_empty_history_says_so(slotwise: Any, folder: Path) -> None:
    """Nothing is known yet, and that is no error."""
    append_history(folder / "h.db", [])
    assert slotwise("history", "h.db").stdout == "nothing is known yet\n"
    assert json.loads(slotwise("history", "h.db", "--json").stdout) == {
        "programs": [],
        "hosts": [],
    }


def test_what_is_no_history_is_refused(slotwise: Any, folder: Path) -> None:
    """By exit code 2 and one line; nothing is made or changed."""
    before = sorted(folder.iterdir()), (folder / "jobs.yaml").read_bytes()
    for name, why in (("none.db", "no such file"), ("jobs.yaml", "no database")):
        told = slotwise("history", name)
        assert (told.exit_code, told.stdout, told.stderr.count("\n")) == (2, "", 1)
        assert f"history '{name}'" in told.stderr
        assert why in told.stderr
    assert (sorted(folder.iterdir()), (folder / "jobs.yaml").read_bytes()) == before
