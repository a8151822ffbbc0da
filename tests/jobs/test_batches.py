"""Programs by batches give what programs by records give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slotwise.core import errors
from slotwise.core.errors import InputError, MissingExtraError
from slotwise.jobs import BatchMapReduce, loading, plan_mapreduce
from slotwise.jobs.staged import StagedExecution
from tiers import examples

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

Run = Callable[[StagedExecution], bytes]


class BatchWords(BatchMapReduce):
    """Word count by batches."""

    keys = ("word",)

    def map(self, table: pa.Table) -> pa.Table:
        """Each word with 1."""
        words = pc.list_flatten(pc.utf8_split_whitespace(table["line"]))
        words = words.filter(pc.not_equal(words, ""))
        return pa.table({"word": words, "count": pa.array([1] * len(words), pa.int64())})

    def reduce(self, table: pa.Table) -> Iterator[pa.Table]:
        """The sum of each word."""
        assert table["word"].to_pylist() == sorted(table["word"].to_pylist())
        sums = table.group_by("word", use_threads=False).aggregate([("count", "sum")])
        yield sums.select(["word", "count_sum"])


class CombinedBatchWords(BatchWords):
    """The same with a combiner."""

    def combine(self, table: pa.Table) -> pa.Table:
        """The sums so far."""
        sums = table.group_by("word").aggregate([("count", "sum")])
        return sums.select(["word", "count_sum"]).rename_columns(["word", "count"])


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text with rare and frequent words."""
    words = [f"w{i % 7} ä{i % 101}x u{i}" for i in range(examples(8_000, slow=30_000))]
    (tmp_path / "text").write_text("\n".join(words))
    return tmp_path


@pytest.mark.parametrize("program", [BatchWords, CombinedBatchWords])
@pytest.mark.parametrize("memory_bytes", [1 << 20, 256 << 20])
@pytest.mark.parametrize("split_bytes", [100_000, 1 << 26])
def test_batches_count_as_records_do(
    text: Path,
    output_of: Run,
    program: type[BatchMapReduce],
    memory_bytes: int,
    split_bytes: int,
) -> None:
    """Whatever the splits and the memory, both styles count the same words."""
    outputs = [
        output_of(
            plan_mapreduce(
                "j",
                style,
                "text",
                f"out-{style}",
                base_dir=text,
                memory_bytes=memory_bytes,
                split_bytes=split_bytes,
            )
        ).split(b"\n")
        for style in (program, "wordcount")
    ]
    assert sorted(outputs[0]) == sorted(outputs[1])


def test_parquet_in_and_out(text: Path, output_of: Run) -> None:
    """Word counts written as Parquet are read again, by row groups, as records."""
    pq = pytest.importorskip("pyarrow.parquet")
    output_of(
        plan_mapreduce("j", BatchWords, "text", "out", base_dir=text, output_format="parquet")
    )
    parts = sorted((text / "out").glob("part-r-*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    words = (text / "text").read_text().split()
    assert {row["word"]: row["count_sum"] for row in rows} == Counter(words)


def test_records_of_parquet_rows(tmp_path: Path, output_of: Run) -> None:
    """Each row is read once, as a dict, whatever the row groups and splits."""
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"n": list(range(100))}), tmp_path / "in.parquet", row_group_size=7)

    class Rows(loading.MapReduce):
        def map(self, key: int, value: dict[str, int]) -> list[tuple[int, dict[str, int]]]:
            return [(value["n"], {"square": value["n"] ** 2})]

    for split_bytes in (1, 200, 1 << 20):
        execution = plan_mapreduce(
            "j",
            Rows,
            "in.parquet",
            f"out-{split_bytes}",
            base_dir=tmp_path,
            input_format="parquet",
            output_format="parquet",
            split_bytes=split_bytes,
        )
        output_of(execution)
        parts = Path(execution.output).glob("part-*.parquet")
        rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
        expected = [{"key": n, "value": {"square": n * n}} for n in range(100)]
        assert sorted(rows, key=lambda row: row["key"]) == expected


def test_a_map_that_gives_no_table_is_named(text: Path, output_of: Run) -> None:
    """A list of rows is no table."""

    class Rows(BatchWords):
        def map(self, table: pa.Table) -> list[int]:
            return [1]

    with pytest.raises(
        TypeError, match="map of Rows must return pyarrow Tables; it returned 1"
    ):
        output_of(plan_mapreduce("j", Rows, "text", "out", base_dir=text))


def test_key_columns_are_asked_for(text: Path, output_of: Run) -> None:
    """A batch program without keys is refused; one whose tables lack them gets a message."""

    class Keyless(BatchWords):
        keys = ()

    class Other(BatchWords):
        keys = ("letter",)

    with pytest.raises(InputError, match="Keyless maps batches and has no key columns"):
        plan_mapreduce("j", Keyless, "text", "out", base_dir=text)
    with pytest.raises(
        TypeError, match="lacks the key column 'letter'; it has the columns word"
    ):
        output_of(plan_mapreduce("j", Other, "text", "out", base_dir=text))


def test_without_pyarrow_the_extra_is_named(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches and Parquet say what to install; word count by records needs nothing."""
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'slotwise\[arrow\]'"):
        plan_mapreduce("j", BatchWords, "text", "out", base_dir=text)
    with pytest.raises(MissingExtraError, match="Parquet output"):
        plan_mapreduce("j", "wordcount", "text", "out", base_dir=text, output_format="parquet")
    plan_mapreduce("j", "wordcount", "text", "out", base_dir=text)
