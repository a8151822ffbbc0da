"""Every line of text is read exactly once, however it is cut."""

from __future__ import annotations

import gzip
import tempfile
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.jobs.formats.files import InputFile
from slotwise.jobs.formats.inputs import JsonLinesInput, TextInput, line_blocks, lines_of
from slotwise.jobs.formats.splits import SplitPiece, pack
from tiers import examples

LINES = st.lists(
    st.sampled_from(["", "a", "two words", "ä", "日本語", "x\r", "\u2028", "\x85"])
)


def expected_lines(data: bytes) -> list[str]:
    """The lines by their definition, one at a time."""
    lines = [raw + b"\n" for raw in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    if not lines[-1]:
        lines.pop()
    ended = (line.removesuffix(b"\r\n") if line.endswith(b"\r\n") else line for line in lines)
    return [line.removesuffix(b"\n").decode("utf-8", "replace") for line in ended]


def read(path: Path, split_bytes: int) -> list[tuple[int, str]]:
    """All records of a file through pieces of a size."""
    text = TextInput()
    pieces = text.pieces(InputFile(str(path), path.stat().st_size), split_bytes)
    return [
        record
        for piece in pieces
        for keys, values in text.records(piece)
        for record in zip(keys, values, strict=True)
    ]


@settings(max_examples=examples(40, slow=150), deadline=None)
@given(lines=LINES, ends=st.booleans(), split_bytes=st.integers(1, 40))
def test_each_line_is_read_once(lines: list[str], ends: bool, split_bytes: int) -> None:
    """Whatever the lines and the size of splits, the lines come whole, once and in order."""
    data = ("\n".join(lines) + ("\n" if ends else "")).encode()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "text"
        path.write_bytes(data)
        records = read(path, split_bytes)
    assert [line for _, line in records] == expected_lines(data)


@settings(max_examples=examples(30, slow=100), deadline=None)
@given(data=st.binary(max_size=60), split_bytes=st.integers(1, 70))
def test_bytes_that_are_not_utf8_are_replaced(data: bytes, split_bytes: int) -> None:
    """Any bytes can be read, and offsets say where lines begin in the bytes."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "text"
        path.write_bytes(data)
        records = read(path, split_bytes)
    assert [line for _, line in records] == expected_lines(data)
    assert all(offset == 0 or data[offset - 1 : offset] == b"\n" for offset, _ in records)


@pytest.mark.parametrize("split_bytes", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("rest", "records"),
    [
        (b"a\nb\n", [(3, "a"), (5, "b")]),
        (b"\na\n", [(3, ""), (4, "a")]),
        (b"", []),
        (BOM_UTF8 + b"a\n" + BOM_UTF8 + b"b", [(3, "\ufeffa"), (8, "\ufeffb")]),
    ],
)
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path: Path, split_bytes: int, suffix: str, rest: bytes, records: list[tuple[int, str]]
) -> None:
    """However the file is cut or compressed. Only the first one is a mark."""
    path = tmp_path / f"text{suffix}"
    data = BOM_UTF8 + rest
    path.write_bytes(gzip.compress(data) if suffix else data)
    assert read(path, split_bytes) == records


def test_a_byte_order_mark_is_no_part_of_json(tmp_path: Path) -> None:
    """Each line of a file of JSON Lines is read."""
    path = tmp_path / "lines.jsonl"
    path.write_bytes(BOM_UTF8 + b'{"a": 1}\n{"a": 2}\n')
    lines = JsonLinesInput()
    (piece,) = lines.pieces(InputFile(str(path), path.stat().st_size), 1000)
    assert list(lines.records(piece)) == [([3, 12], [{"a": 1}, {"a": 2}])]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 100])
def test_blocks_of_any_size_hold_whole_lines(tmp_path: Path, block_bytes: int) -> None:
    """Small blocks give the same lines as a large one."""
    path = tmp_path / "text"
    path.write_bytes("one\ntwo ä\n\nfour".encode())
    piece = SplitPiece(str(path), 0, None, 16)
    blocks = line_blocks(piece, block_bytes)
    lines = [line for offset, block in blocks for line in lines_of(offset, block)[1]]
    assert lines == ["one", "two ä", "", "four"]


def test_gzip_is_one_piece(tmp_path: Path) -> None:
    """A compressed file is not cut, and read decompressed."""
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert len(TextInput().pieces(InputFile(str(path), path.stat().st_size), 1)) == 1
    assert read(path, 1) == [(0, "one"), (4, "two")]


def test_tables_hold_the_same_lines_as_records(tmp_path: Path) -> None:
    """Batches of text have the offsets and lines of the records."""
    path = tmp_path / "text"
    path.write_bytes("one\r\ntwo ä\n\nfour".encode())
    (table,) = TextInput().tables(SplitPiece(str(path), 0, None, 16))
    columns = table.to_pydict()
    assert list(zip(columns["offset"], columns["line"], strict=True)) == read(path, 100)


def test_thousands_of_tiny_files_make_few_splits() -> None:
    """Small pieces share splits, each once and in order."""
    pieces = [SplitPiece(f"f{i}", 0, 1000, 1000) for i in range(2000)]
    splits = pack(pieces, 64 << 20)
    assert [piece for split in splits for piece in split] == pieces
    assert len(splits) == 2


def test_a_few_small_files_stay_apart() -> None:
    """Files of 1 MiB still run in parallel."""
    pieces = [SplitPiece(f"f{i}", 0, 1 << 20, 1 << 20) for i in range(8)]
    assert len(pack(pieces, 64 << 20)) == 8


def test_empty_pieces_are_left_out_unless_all_are() -> None:
    """A job of empty files has one task that reads nothing."""
    empty, filled = SplitPiece("e", 0, None, 0), SplitPiece("f", 0, 5, 5)
    assert pack([empty, filled, empty], 100) == [(filled,)]
    assert pack([empty, empty], 100) == [(empty,)]
