"""Errors that arise while input is read say in which file, and where in it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from slotwise.jobs import BatchMapReduce, Execution, MapReduce, plan_mapreduce
from slotwise.jobs.formats import inputs
from slotwise.jobs.formats.splits import WHERE
from slotwise.jobs.mapreduce.program import Program

Drive = Callable[[Execution], None]

FILES = 30
"""Up to this many small files form one split."""


class ByRecord(MapReduce):
    """Stumbles over the record "poison"; yields numbers, so that pairs are taken in streams."""

    def map(self, key: Any, value: Any) -> Iterable[tuple[Any, int]]:
        """The text."""
        text = value if isinstance(value, str) else value["text"]
        if text == "poison":
            raise ValueError("poison found")
        yield text, 1

    def reduce(self, key: Any, values: Any) -> Iterable[tuple[Any, int]]:
        """Their number."""
        yield key, sum(values)


class InLists(ByRecord):
    """Returns lists in place of generators."""

    def map(self, key: Any, value: Any) -> Iterable[tuple[Any, int]]:
        """The same."""
        return list(super().map(key, value))


class Sorted(ByRecord):
    """Keeps all pairs to sort them."""

    total_order = True


class Adding(ByRecord):
    """Adds values up as they come."""

    def add(self, one: int, other: int) -> int:
        """The sum."""
        return one + other


class ByChunk(ByRecord):
    """Many lines at once."""

    def map_chunk(self, text: str) -> Iterable[tuple[str, int]]:
        """Their number."""
        assert "poison" not in text, "poison found"
        yield "lines", text.count("\n")


class Folding(Adding):
    """Many lines at once into a table."""

    def fold_chunk(self, text: str, table: Counter[str]) -> None:
        """Their number."""
        assert "poison" not in text, "poison found"
        table["lines"] += text.count("\n")


class ByTable(BatchMapReduce):
    """Whole tables."""

    def map(self, table: Any) -> Any:
        """The table as it is."""
        assert "poison" not in str(table.to_pydict()), "poison found"
        return table


def where(drive: Drive, folder: Path, program: type[Program], **settings: Any) -> str:
    """Where the error is said to have arisen, without the folder."""
    job = plan_mapreduce(
        "j", program, "in/*", "out", base_dir=folder, work_dir=folder, **settings
    )
    with pytest.raises((ValueError, AssertionError, TypeError, EOFError)) as raised:
        drive(job)
    place: str = vars(raised.value).get(WHERE, "nowhere")
    return place.replace(f"{folder}/in/", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for input."""
    (tmp_path / "in").mkdir()
    return tmp_path


def write(folder: Path, line_of: Callable[[str], str], suffix: str = "") -> None:
    """Files of 200 lines each; in f17, line 150 is poisoned."""
    for number in range(FILES):
        texts = [f"{number}-{line}" for line in range(200)]
        if number == 17:
            texts[149] = "poison"
        data = "".join(line_of(text) + "\n" for text in texts).encode()
        packed = gzip.compress(data) if suffix == ".gz" else data
        (folder / "in" / f"f{number:02}{suffix}").write_bytes(packed)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("program", [ByRecord, InLists, Sorted, Adding])
def test_the_line_at_which_map_failed(
    drive: Drive, folder: Path, program: type[MapReduce], suffix: str
) -> None:
    """The file, of thirty that share a task, and the line."""
    write(folder, str, suffix)
    assert where(drive, folder, program) == f"f17{suffix}, line 150 (byte 933)"


def test_a_line_in_a_later_block(
    drive: Drive, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks and splits do not change the number of a line."""
    write(folder, str)
    monkeypatch.setattr(inputs.line_blocks, "__defaults__", (64,))
    assert where(drive, folder, ByRecord, split_bytes=500) == "f17, line 150 (byte 933)"
    monkeypatch.setattr(inputs, "MAX_COUNTED_BYTES", 100)
    assert where(drive, folder, ByRecord, split_bytes=500) == "f17, byte 933"


@pytest.mark.parametrize("program", [ByChunk, Folding])
def test_many_lines_at_once(drive: Drive, folder: Path, program: type[MapReduce]) -> None:
    """The file and the bytes that the program was given."""
    write(folder, str)
    assert where(drive, folder, program) == "f17, bytes 0-1290"


def test_json_lines(drive: Drive, folder: Path) -> None:
    """The file and the line, be it a value or JSON that is wrong; empty lines count."""
    write(folder, lambda text: "\n" + json.dumps({"text": text}))
    place = where(drive, folder, ByRecord, input_format="jsonl")
    assert place == "f17, line 300 (byte 2871)"
    (folder / "in" / "f03").write_text('{"text": "good"}\n\n{"text": \n')
    place = where(drive, folder, ByRecord, input_format="jsonl")
    assert place == "f03, line 3 (byte 18)"


def test_a_damaged_gzip(drive: Drive, folder: Path) -> None:
    """The file that cannot be read."""
    write(folder, str, ".gz")
    whole = folder / "in" / "f05.gz"
    whole.write_bytes(whole.read_bytes()[:100])
    assert where(drive, folder, ByRecord) == "f05.gz"


def test_parquet(drive: Drive, folder: Path) -> None:
    """The file, the row group and the row in it."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name, poisoned in (("a", -1), ("b", 57)):
        texts = ["poison" if row == poisoned else "good" for row in range(100)]
        table = pa.table({"text": texts})
        pq.write_table(table, folder / "in" / name, row_group_size=20)
    place = where(drive, folder, ByRecord, input_format="parquet")
    assert place == "b, row group 2, row 17"
    place = where(drive, folder, ByTable, input_format="parquet", reducers=0)
    assert place == "b, row group 2, row 0"


def test_tables_of_text(drive: Drive, folder: Path) -> None:
    """The file and the bytes of the split."""
    pytest.importorskip("pyarrow")
    write(folder, str)
    place = where(drive, folder, ByTable, reducers=0)
    assert place == "f17, bytes 0-1290"


def test_a_wrong_pair_has_a_place_only_if_its_call_is_known(drive: Drive, folder: Path) -> None:
    """Pairs are checked in batches: rather no place than a wrong one."""
    write(folder, str)

    class Rubbish(MapReduce):
        def map(self, key: Any, value: Any) -> Any:
            return 7 if value == "poison" else [(value, 1)]

    class RubbishPair(Rubbish):
        def map(self, key: Any, value: Any) -> Any:
            return ["alone"] if value == "poison" else [(value, 1)]

    class RubbishSorted(RubbishPair):
        total_order = True

    right = "f17, line 150 (byte 933)"
    assert where(drive, folder, Rubbish) == right
    assert where(drive, folder, RubbishPair) in (right, "nowhere")
    assert where(drive, folder, RubbishSorted, reducers=1) in (right, "nowhere")


def test_an_error_elsewhere_has_no_place(drive: Drive, folder: Path) -> None:
    """What a combine or a reduce stumbles over is not in one place of the input."""
    write(folder, lambda text: "fine")

    class Reduces(ByRecord):
        def reduce(self, key: Any, values: Any) -> Any:
            raise ValueError(key)

    class Combines(ByRecord):
        def combine(self, key: Any, values: Any) -> Any:
            raise ValueError(key)

    assert where(drive, folder, Reduces) == "nowhere"
    assert where(drive, folder, Combines) == "nowhere"


def test_the_task_in_words(folder: Path) -> None:
    """Of many inputs the first and the last are named, and their number."""
    write(folder, str)
    job = plan_mapreduce("j", ByRecord, "in/*", "out", base_dir=folder)
    inputs = f"30 inputs, {folder}/in/f00 to {folder}/in/f29"
    assert job.describe("map", 0) == f"map task 0 of job j ({inputs})"
