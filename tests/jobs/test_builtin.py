"""The installed programs against independent computations."""

from __future__ import annotations

import gzip
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from slotwise.jobs import plan_mapreduce
from slotwise.jobs.staged import StagedExecution
from tiers import examples

Run = Callable[[StagedExecution], bytes]
SPLITS = [7, 1000, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 64, 1 << 26))]
TEXTS = {
    "a.txt": "the quick brown fox\nthe lazy dog\n\nno end of line",
    "b.txt": "crlf line\r\nthe end\r\n",
    "c.txt": "",
    "d.txt": "größe und straße\n日本語 日本語\u2028das\x85ist\n\n\n  indented\ttabs\n",
}


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Files with all that is hard about lines, one of them empty."""
    directory = tmp_path / "books"
    directory.mkdir()
    for name, text in TEXTS.items():
        (directory / name).write_bytes(text.encode())
    return directory


@pytest.mark.parametrize("split_bytes", SPLITS)
@pytest.mark.parametrize("reducers", [1, 3])
def test_wordcount(books: Path, output_of: Run, split_bytes: int, reducers: int) -> None:
    """Words are counted as str.split() and a Counter count them; parts are sorted."""
    execution = plan_mapreduce(
        "j",
        "wordcount",
        str(books / "*.txt"),
        books.parent / "out",
        split_bytes=split_bytes,
        reducers=reducers,
    )
    lines = output_of(execution).decode().removesuffix("\n").split("\n")
    counts = {word: int(count) for word, count in (line.rsplit("\t", 1) for line in lines)}
    assert counts == Counter(word for text in TEXTS.values() for word in text.split())
    assert len(lines) == len(counts)
    part = (books.parent / "out" / "part-r-00000").read_text().split("\n")[:-1]
    assert part == sorted(part, key=lambda line: line.rsplit("\t", 1)[0])


@pytest.mark.parametrize("split_bytes", SPLITS)
@pytest.mark.parametrize(
    ("parameters", "flags"),
    [
        ({"pattern": "the"}, ["the"]),
        ({"pattern": "the", "fixed": True}, ["-F", "the"]),
        ({"pattern": "a.*e", "invert": True}, ["-v", "a.*e"]),
        ({"pattern": "THE", "fixed": True, "ignore_case": True}, ["-i", "-F", "THE"]),
        ({"pattern": "本", "fixed": True}, ["-F", "本"]),
    ],
)
def test_grep(
    books: Path,
    output_of: Run,
    split_bytes: int,
    parameters: dict[str, object],
    flags: list[str],
) -> None:
    """The matching lines and their order are those of the grep command."""
    execution = plan_mapreduce(
        "j",
        "grep",
        str(books / "*.txt"),
        books.parent / "out",
        parameters=parameters,
        split_bytes=split_bytes,
    )
    files = sorted(map(str, books.glob("*.txt")))
    found = subprocess.run(
        ["grep", "-h", *flags, *files],
        stdout=subprocess.PIPE,
        check=False,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    ).stdout
    # Slotwise takes the return before a line break for a part of the break.
    assert output_of(execution) == found.replace(b"\r\n", b"\n")


def test_grep_names_files(books: Path, output_of: Run) -> None:
    """With filename the path stands before each line."""
    execution = plan_mapreduce(
        "j",
        "grep",
        str(books),
        books.parent / "out",
        parameters={"pattern": "the e", "filename": True},
    )
    assert output_of(execution).decode() == f"{books}/b.txt\tthe end\n"


@pytest.mark.parametrize("split_bytes", SPLITS)
@pytest.mark.parametrize("descending", [False, True])
def test_sort(books: Path, output_of: Run, split_bytes: int, descending: bool) -> None:
    """The parts one after another are all lines in order of code points."""
    execution = plan_mapreduce(
        "j",
        "sort",
        str(books / "*.txt"),
        books.parent / "out",
        split_bytes=split_bytes,
        reducers=3,
        parameters={"descending": descending},
    )
    texts = (text.replace("\r\n", "\n").removesuffix("\n") for text in TEXTS.values() if text)
    lines = sorted((line for text in texts for line in text.split("\n")), reverse=descending)
    assert output_of(execution).decode() == "".join(f"{line}\n" for line in lines)


def test_terasort_sorts_what_teragen_makes(tmp_path: Path, output_of: Run) -> None:
    """Records are 100 bytes, the same however they are split, and get totally sorted."""
    made = plan_mapreduce(
        "g", "teragen", (), tmp_path / "gen", parameters={"records": 5000}, split_bytes=99_999
    )
    again = plan_mapreduce(
        "g",
        "teragen",
        (),
        tmp_path / "again",
        parameters={"records": 5000},
        memory_bytes=1 << 20,
    )
    records = output_of(made)
    assert records == output_of(again)
    assert {len(line) for line in records.splitlines(keepends=True)} == {100}
    sort = plan_mapreduce(
        "s", "terasort", str(tmp_path / "gen"), tmp_path / "out", reducers=4, split_bytes=70_001
    )
    assert output_of(sort) == b"".join(sorted(records.splitlines(keepends=True)))
    sizes = [part.stat().st_size for part in (tmp_path / "out").glob("part-*")]
    assert len(sizes) == 4
    assert min(sizes) > 0.5 * max(sizes)


@pytest.mark.parametrize("split_bytes", SPLITS)
def test_inverted_index(books: Path, output_of: Run, split_bytes: int) -> None:
    """Each word comes with the sorted files that hold it."""
    execution = plan_mapreduce(
        "j", "inverted-index", str(books), books.parent / "out", split_bytes=split_bytes
    )
    index = {
        word: files
        for word, *files in (
            line.split("\t") for line in output_of(execution).decode().split("\n")
        )
        if word
    }
    words = {word for text in TEXTS.values() for word in text.split()}
    assert index == {
        word: [str(books / name) for name, text in TEXTS.items() if word in text.split()]
        for word in words
    }


def test_gzip_files_are_read(tmp_path: Path, output_of: Run) -> None:
    """A compressed file counts as its content."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"b a\nb\n"))
    execution = plan_mapreduce(
        "j", "wordcount", "*.gz", "out", base_dir=tmp_path, reducers=1, split_bytes=1
    )
    assert output_of(execution) == b"a\t1\nb\t2\n"


def test_only_empty_files(tmp_path: Path, output_of: Run) -> None:
    """A job without any record ends well, with empty parts and _SUCCESS."""
    (tmp_path / "a").touch()
    for program in ("wordcount", "sort", "inverted-index"):
        execution = plan_mapreduce("j", program, "a", program, base_dir=tmp_path)
        assert output_of(execution) == b""
        assert (tmp_path / program / "_SUCCESS").exists()


@pytest.mark.parametrize("program", ["wordcount", "inverted-index", "sort"])
def test_input_larger_than_memory(tmp_path: Path, output_of: Run, program: str) -> None:
    """With the least memory, tasks spill, and the output is the same as with plenty."""
    rng = random.Random(1)
    words = [f"{rng.randrange(10**9):x}-{i}" for i in range(40_000)]
    lines = [" ".join(rng.choices(words, k=8)) for _ in range(examples(5_000, slow=20_000))]
    (tmp_path / "text").write_text("\n".join(lines))
    outputs = [
        output_of(
            plan_mapreduce(
                "j", program, "text", f"out-{memory}", base_dir=tmp_path, memory_bytes=memory
            )
        )
        for memory in (1 << 20, 256 << 20)
    ]
    assert outputs[0] == outputs[1]
