"""Finding input, JSON Lines, and what lines of output look like."""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from slotwise.core.errors import InputError, OutputError
from slotwise.core.tracebacks import format_traceback
from slotwise.jobs import MapReduce, plan_mapreduce
from slotwise.jobs.formats.files import find_inputs
from slotwise.jobs.formats.outputs import OUTPUT_FORMATS
from slotwise.jobs.staged import StagedExecution

Run = Callable[[StagedExecution], bytes]

NAMES = ("one.txt", "two.gz")


class Ages(MapReduce):
    """The ages by name."""

    def map(self, key: int, value: dict[str, Any]) -> Iterable[tuple[str, int]]:
        """Name and age."""
        yield value["name"], value["age"]


@pytest.mark.parametrize("split_bytes", [1, 30, 1000])
def test_json_lines(tmp_path: Path, output_of: Run, split_bytes: int) -> None:
    """Each object is read once; empty lines are skipped; output is objects again."""
    rows = [{"name": "Zoë", "age": 3}, {"name": "Al", "age": 5}]
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "in.jsonl").write_text(text)
    execution = plan_mapreduce(
        "j",
        Ages,
        "in.jsonl",
        "out",
        base_dir=tmp_path,
        input_format="jsonl",
        output_format="jsonl",
        reducers=1,
        split_bytes=split_bytes,
    )
    lines = output_of(execution).decode().split("\n")
    assert lines == ['{"key": "Al", "value": 5}', '{"key": "Zoë", "value": 3}', ""]
    assert (tmp_path / "out" / "part-r-00000.jsonl").exists()


def test_a_line_that_is_not_json_is_named(tmp_path: Path, output_of: Run) -> None:
    """The message says file and byte."""
    (tmp_path / "in.jsonl").write_text('{"name": "a", "age": 1}\n{oops\n')
    execution = plan_mapreduce(
        "j", Ages, "in.jsonl", "out", base_dir=tmp_path, input_format="jsonl"
    )
    with pytest.raises(ValueError, match=r"in.jsonl, byte 24: not a line of JSON"):
        output_of(execution)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("a", 1, "a\t1\n"),
        (None, "v", "v\n"),
        ("k", None, "k\n"),
        ("k", ("x", 2), "k\tx\t2\n"),
        (("a", 1), 2.5, "('a', 1)\t2.5\n"),
        ("\ud800", 1, "?\t1\n"),
    ],
)
def test_lines_of_text_output(tmp_path: Path, key: object, value: object, line: str) -> None:
    """Key, tab, value; None is left out; tuples as values are spread."""
    writer = OUTPUT_FORMATS["text"](str(tmp_path / "part"))
    writer.write([key], [value])
    writer.close()
    assert (tmp_path / "part").read_text() == line
    assert writer.rows == 1


def test_rows_that_do_not_fit_parquet_are_named(tmp_path: Path) -> None:
    """The first rows set the types; later ones that do not fit are refused clearly."""
    pytest.importorskip("pyarrow")
    writer = OUTPUT_FORMATS["parquet"](str(tmp_path / "part"))
    writer.write(["a"] * (1 << 16), [1] * (1 << 16))
    writer.write(["b"], ["text"])
    with pytest.raises(ValueError, match="rows do not fit the types of the first rows"):
        writer.close()


def test_inputs_are_found(tmp_path: Path) -> None:
    """Paths, globs, directories and URLs; hidden files are left out; each file comes once."""
    for name in ("b.txt", "a.txt", "c[1].txt", "_SUCCESS", ".hidden"):
        (tmp_path / name).write_text("x")
    names = ["a.txt", "b.txt", "c[1].txt"]
    everywhere = [str(tmp_path / name) for name in names]
    for patterns in (["*.txt"], ["."], [f"file://{tmp_path}/*.txt"], ["a.txt", "*.txt"]):
        found = find_inputs(patterns, tmp_path)
        assert [str(Path(file.path)) for file in found] == everywhere
        assert [file.size_bytes for file in found] == [1, 1, 1]
    assert len(find_inputs(["c[1].txt"], tmp_path)) == 1


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "in/b.txt"]),
        ("*/*.txt", ["in/b.txt"]),
        ("._*", ["._a.txt"]),
        (".*", ["._a.txt", ".hidden"]),
        ("_*.txt", ["_logs.txt"]),
        ("in/.c*", ["in/.c.txt"]),
        (".git/*", [".git/d.txt"]),
        ("._a.txt", ["._a.txt"]),
        ("*n", ["in/b.txt"]),
    ],
)
def test_globs_skip_hidden_files(tmp_path: Path, pattern: str, names: list[str]) -> None:
    """As directories do, also in hidden folders, unless the pattern states the character."""
    files = ("a.txt", "._a.txt", ".hidden", "_logs.txt", "in/b.txt", "in/.c.txt", ".git/d.txt")
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    for form in (str(tmp_path / pattern), f"file://{tmp_path}/{pattern}"):
        assert [file.path for file in find_inputs([form])] == [f"{tmp_path}/{n}" for n in names]


def test_a_glob_that_matches_only_hidden_files_says_so(tmp_path: Path) -> None:
    """A folder that macOS has copied may have nothing else."""
    (tmp_path / "._a.txt").write_text("x")
    with pytest.raises(InputError, match=r"names that begin with '_' or '\.' are skipped"):
        find_inputs(["*.txt"], tmp_path)


def test_output_on_another_file_system(tmp_path: Path, drive: Callable[..., None]) -> None:
    """Input and output may be URLs of any file system that fsspec knows."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/in/text", b"b a\nb\n")
    execution = plan_mapreduce(
        "j", "wordcount", "memory://in/*", "memory://out/wc", reducers=1, work_dir=tmp_path
    )
    drive(execution)
    assert memory.cat("/out/wc/part-r-00000") == b"a\t1\nb\t2\n"
    assert sorted(memory.ls("/out/wc", detail=False)) == [
        "/out/wc/_SUCCESS", "/out/wc/part-r-00000"
    ]  # fmt: skip


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """A folder with in.zip and in.tar, which hold a text and one that is compressed."""
    (tmp_path / "one.txt").write_text("a b a\n")
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"b\nc\n"))
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as packed:
        for name in NAMES:
            packed.write(tmp_path / name, f"in/{name}")
    with tarfile.open(tmp_path / "in.tar", "w") as bundled:
        bundled.add(tmp_path / "one.txt", "one.txt")
    return tmp_path


@pytest.mark.parametrize(
    ("url", "names", "counts"),
    [
        ("simplecache::file://{}/*.txt", ["simplecache::file://{}/one.txt"], "a 2 b 1"),
        ("zip://in/one.txt::{}/in.zip", ["zip://in/one.txt::{}/in.zip"], "a 2 b 1"),
        ("tar://*::file://{}/in.tar", ["tar://one.txt::file://{}/in.tar"], "a 2 b 1"),
        (
            "zip://in/*::simplecache::file://{}/in.zip",
            [f"zip://in/{name}::simplecache::file://{{}}/in.zip" for name in NAMES],
            "a 2 b 2 c 1",
        ),
        (
            "simplecache::zip://in::file://{}/in.zip",
            [f"simplecache::zip://in/{name}::file://{{}}/in.zip" for name in NAMES],
            "a 2 b 2 c 1",
        ),
    ],
)
def test_input_by_a_chain_of_urls(
    archives: Path, output_of: Run, url: str, names: list[str], counts: str
) -> None:
    """Files in archives, and files that fsspec copies to this machine first."""
    found = find_inputs([url.format(archives)])
    assert [file.path for file in found] == [name.format(archives) for name in names]
    assert [file.is_compressed for file in found] == ["gz" in name for name in names]
    out = archives / "out"
    execution = plan_mapreduce(
        "j", "wordcount", url.format(archives), out, reducers=1, work_dir=archives
    )
    assert output_of(execution).decode().split() == counts.split()


@pytest.mark.parametrize("path", ["/no/such/folder/part", "/dev/full"])
def test_output_that_cannot_be_written_is_told_in_one_sentence(path: str) -> None:
    """Without the frames of slotwise, when it is created and when it is written."""

    def write() -> None:
        part = OUTPUT_FORMATS["text"](path)
        part.write(["key"], ["value"])
        part.close()

    with pytest.raises(OutputError, match=f"its output cannot be written to {path}: No") as one:
        write()
    assert format_traceback(one.value) == str(one.value)
