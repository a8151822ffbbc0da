"""The history as a file: what is written is read, and what is no history stays as it is."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slotwise.core import history
from slotwise.core.errors import InputError
from slotwise.core.history import FORMAT, LATEST, append_history, create_history, read_history
from slotwise.core.job import Observation


def seen(seconds: float, host: str = "h") -> Observation:
    """One finished map of a word count."""
    return Observation("wc", "map", 100, host, 1.0, seconds)


def append_one(path: Path) -> None:
    """Add one task."""
    append_history(path, [seen(1.0)])


BOTH = pytest.mark.parametrize("use", [read_history, append_one, create_history])
"""Whoever reads, writes or makes it refuses alike."""


def refused(use: Callable[[Path], object], path: Path) -> str:
    """Use a file that is to be refused and left, byte for byte; the message."""
    before = path.read_bytes()
    with pytest.raises(InputError) as error:
        use(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no other file is left"
    assert repr(str(path)) in str(error.value)
    return str(error.value)


def test_written_batches_are_read_back(tmp_path: Path) -> None:
    """Every field, from several batches, the newest first; a single file."""
    path = tmp_path / "a b#?%.db"  # Characters that mean something in an address.
    first = Observation("wörter.py:Wörter", "map", 2**40, "h1", 0.5, 1 / 3)
    second = Observation("wörter.py:Wörter", "map", 0, "h1", 2, 0.0, peak=2**33)
    append_history(path, [first])
    append_history(path, [second])
    assert read_history(path) == [second, first]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_history_without_peaks_is_read_and_continued(tmp_path: Path) -> None:
    """As earlier releases wrote it: what it has stays, and new tasks have their peaks."""
    path = tmp_path / "h.db"
    append_one(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE tasks DROP COLUMN peak")
    assert read_history(path) == [seen(1.0)]
    newer = replace(seen(2.0), peak=5)
    append_history(path, [newer])
    assert read_history(path) == [newer, seen(1.0)]


def test_an_empty_file_becomes_a_history(tmp_path: Path) -> None:
    """Made, and made again, it has nothing in it and loses nothing."""
    path = tmp_path / "h.db"
    create_history(path)
    assert read_history(path) == []
    append_one(path)
    create_history(path)
    assert len(read_history(path)) == 1


def test_the_newest_tasks_are_read(tmp_path: Path) -> None:
    """A limited number for each host and phase, so that changes of a program count soon."""
    path = tmp_path / "h.db"
    append_history(path, [seen(float(n)) for n in range(LATEST + 50)])
    append_history(path, [seen(1.0, "other")])
    times = [o.seconds for o in read_history(path) if o.host == "h"]
    assert times == [float(n) for n in reversed(range(50, LATEST + 50))]
    assert len(read_history(path)) == LATEST + 1


def test_a_batch_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    """One bad task in it, and none of it is there."""
    path = tmp_path / "h.db"
    append_one(path)
    with pytest.raises(InputError):
        append_history(path, [seen(2.0), seen(-1.0), seen(3.0)])
    assert [o.seconds for o in read_history(path)] == [1.0]


def test_a_locked_history_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are waited for, and not for ever; readers need not wait."""
    path = tmp_path / "h.db"
    append_one(path)
    monkeypatch.setattr(history, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="locked"):
            append_one(path)
        assert len(read_history(path)) == 1


@BOTH
@pytest.mark.parametrize(
    "content", [b"", b"x", b"some text\n" * 300, b"SQLite format 3\0" + b"\0" * 2000]
)
def test_another_file_is_left_unchanged(
    use: Callable[[Path], object], content: bytes, tmp_path: Path
) -> None:
    """Whatever is no history is refused, an empty file too."""
    path = tmp_path / "notes"
    path.write_bytes(content)
    assert "left unchanged" in refused(use, path)


@BOTH
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_another_database_is_left_unchanged(
    use: Callable[[Path], object], mode: str, tmp_path: Path
) -> None:
    """A table named like ours does not make it ours."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.executescript("CREATE TABLE tasks (id); INSERT INTO tasks VALUES (1);")
    assert "not a history" in refused(use, path)


@BOTH
def test_a_newer_history_is_left_unchanged(
    use: Callable[[Path], object], tmp_path: Path
) -> None:
    """It is said which format it has and which ones are read."""
    path = tmp_path / "h.db"
    append_one(path)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {FORMAT + 1}")
    message = refused(use, path)
    assert f"its format is {FORMAT + 1}, this slotwise reads {FORMAT}; update it" in message


def test_a_damaged_history_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    """Cut off, or with garbage on any page, it is refused or its tasks are as written."""
    path, rng = tmp_path / "h.db", random.Random(1)
    append_history(path, [seen(1.0, f"host{n % 7}") for n in range(1000)])
    whole, expected = path.read_bytes(), read_history(path)
    pages = [whole[at : at + 4096] for at in range(0, len(whole), 4096)]
    assert len(pages) > 5
    for at in range(len(pages)):
        damaged = [*pages[:at], rng.randbytes(4096), *pages[at + 1 :]]
        for content in b"".join(damaged), b"".join(pages[:at]):
            path.write_bytes(content)
            assert "left unchanged" in refused(read_history, path)
    path.write_bytes(whole)
    assert read_history(path) == expected


def test_a_table_that_lacks_a_column_is_damaged(tmp_path: Path) -> None:
    """Marked as ours, but not as ours are."""
    path = tmp_path / "h.db"
    create_history(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE tasks RENAME COLUMN seconds TO minutes")
    assert "damaged" in refused(read_history, path)
    assert "damaged" in refused(append_one, path)


def test_paths_that_cannot_hold_a_history_are_refused(tmp_path: Path) -> None:
    """A folder, a folder that is missing, and a file to read that is not there."""
    with pytest.raises(InputError, match="no such file"):
        read_history(tmp_path / "h.db")
    for place in (tmp_path, tmp_path / "missing" / "h.db"):
        with pytest.raises(InputError, match="name another file"):
            append_one(place)
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_history_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of others, while somebody writes and while nobody does."""
    path = tmp_path / "h.db"
    append_one(path)
    monkeypatch.setattr(history.os, "access", lambda *_: False)
    assert len(read_history(path)) == 1
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        columns = "program, phase, bytes, host, speed"
        other.execute(f"INSERT INTO tasks SELECT NULL, {columns}, 2.0, 0.0, NULL FROM tasks")
        assert [o.seconds for o in read_history(path)] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("program", "CAST(x'ff' AS TEXT)"),
        ("program", "x'ff'"),
        ("peak", "-1"),
        ("peak", "x'ff'"),
        ("host", "x'ff'"),
        ("seconds", "9e999"),
        ("seconds", "-1.0"),
        ("speed", "9e999"),
        ("speed", "0.0"),
        ("bytes", "-1"),
        ("bytes", "'many'"),
    ],
)
def test_an_impossible_row_counts_as_damage(tmp_path: Path, column: str, value: str) -> None:
    """SQLite holds any value in any column, and does not look at text."""
    path = tmp_path / "h.db"
    append_history(path, [seen(1.0)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA ignore_check_constraints = 1")
        database.execute(f"UPDATE tasks SET {column} = {value}")
        database.commit()
    with pytest.raises(InputError, match="it is damaged"):
        read_history(path)
