"""User programs by records: what they may yield, and the messages for all else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slotwise.jobs import MapReduce, plan_mapreduce
from slotwise.jobs.staged import StagedExecution

Run = Callable[[StagedExecution], bytes]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A file with one letter a line."""
    (tmp_path / "letters").write_text("b\na\nc\na\nb\na\n")
    return tmp_path


class Numbered(MapReduce):
    """Each letter with where it stands."""

    def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
        """The letter and its offset."""
        yield value, key

    def reduce(self, key: str, values: Iterator[int]) -> Iterable[tuple[str, str]]:
        """All offsets of a letter."""
        yield key, ",".join(map(str, values))


class NumberedAndCombined(Numbered):
    """The same with a combiner."""

    def combine(self, key: str, values: Iterator[str]) -> Iterable[tuple[str, str]]:
        """The offsets so far."""
        return super().reduce(key, values)


class NumberedAndAdded(Numbered):
    """The same with add."""

    def add(self, one: object, other: object) -> str:
        """Two lists of offsets in one."""
        return f"{one},{other}"


@pytest.mark.parametrize("program", [Numbered, NumberedAndCombined, NumberedAndAdded])
@pytest.mark.parametrize("split_bytes", [1, 5, 100])
def test_values_come_in_the_order_of_the_input(
    letters: Path, output_of: Run, program: type[MapReduce], split_bytes: int
) -> None:
    """With a combiner or without, keys come sorted and their values in input order."""
    execution = plan_mapreduce(
        "j", program, "letters", "out", base_dir=letters, reducers=1, split_bytes=split_bytes
    )
    assert output_of(execution) == b"a\t2,6,10\nb\t0,8\nc\t4\n"


def run_map(letters: Path, output_of: Run, body: Callable[..., Any], **options: Any) -> bytes:
    """Run a program whose map is `body`."""
    program = type("Mine", (MapReduce,), {"map": lambda self, key, value: body(value)})
    execution = plan_mapreduce(
        "j", program, "letters", "out", base_dir=letters, **{"reducers": 1, **options}
    )
    return output_of(execution)


def test_map_may_return_a_list_or_nothing(letters: Path, output_of: Run) -> None:
    """A list of pairs is as good as a generator; None and an empty list mean no pairs."""
    assert run_map(letters, output_of, lambda v: [(v, 1)] if v == "c" else None) == b"c\t1\n"


@pytest.mark.parametrize("item", ["ab", ("a",), ("a", 1, 2), 7, ["a", 1]])
def test_a_map_that_yields_no_pair_is_named(letters: Path, output_of: Run, item: Any) -> None:
    """What is not a tuple of two is refused, with the program and the thing."""
    with pytest.raises(TypeError, match=r"map of Mine must yield pairs .* it yielded "):
        run_map(letters, output_of, lambda value: [item])
    assert not (letters / "out").exists()


def test_a_map_that_returns_a_number_is_named(letters: Path, output_of: Run) -> None:
    """What cannot be iterated is refused as well."""
    with pytest.raises(TypeError, match=r"map of Mine must yield pairs .* not iterable"):
        run_map(letters, output_of, lambda value: 7)


def test_errors_of_the_program_go_through(letters: Path, output_of: Run) -> None:
    """A TypeError from within user code is not taken for another."""
    with pytest.raises(TypeError, match="can only concatenate"):
        run_map(letters, output_of, lambda value: [(value + 1, 1)])


def test_keys_without_an_order_are_named(letters: Path, output_of: Run) -> None:
    """Text and numbers cannot be sorted together; the message says what helps."""
    with pytest.raises(TypeError, match=r"Mine: its keys cannot be sorted .* sort_key"):
        run_map(letters, output_of, lambda value: [(value, 1), (1, 1)])


def test_keys_without_a_hash_are_named(letters: Path, output_of: Run) -> None:
    """A list is no key."""
    with pytest.raises(TypeError, match="Mine: a key cannot be hashed"):
        run_map(letters, output_of, lambda value: [([value], 1)])


class ByLength(MapReduce):
    """Sorts mixed keys by its own order."""

    descending = True

    def map(self, key: int, value: str) -> Iterable[tuple[object, None]]:
        """The letter, repeated by its place, or None."""
        yield (value * (key + 1) if key else None), None

    def sort_key(self, key: str | None) -> int:
        """The length."""
        return len(key or "")

    def partition(self, key: str | None, reducers: int) -> int:
        """Long keys to the last reduce."""
        return min(len(key or "") // 8, reducers - 1)


def test_own_order_and_partition(letters: Path, output_of: Run) -> None:
    """sort_key, descending and partition are asked."""
    execution = plan_mapreduce("j", ByLength, "letters", "out", base_dir=letters)
    assert output_of(execution).decode().split("\n") == [
        "aaaaaaa", "ccccc", "aaa", "", "aaaaaaaaaaa", "bbbbbbbbb", ""
    ]  # fmt: skip


def test_a_partition_out_of_range_is_named(letters: Path, output_of: Run) -> None:
    """A partition that is no reduce's number is refused."""

    class Wild(Numbered):
        def partition(self, key: str, reducers: int) -> int:
            return reducers

    with pytest.raises(ValueError, match=r"partition of Wild returned 2 .* from 0 to 1"):
        output_of(plan_mapreduce("j", Wild, "letters", "out", base_dir=letters))


def test_map_only(letters: Path, output_of: Run) -> None:
    """Without reduces the mapped pairs are the output, in order, one part a split."""
    out = run_map(letters, output_of, lambda v: [(v, (1, 2))], reducers=0, split_bytes=4)
    assert out == b"b\t1\t2\na\t1\t2\nc\t1\t2\na\t1\t2\nb\t1\t2\na\t1\t2\n"
    assert sorted(p.name for p in (letters / "out").iterdir()) == [
        "_SUCCESS", "part-m-00000", "part-m-00001", "part-m-00002"
    ]  # fmt: skip


def test_a_program_defined_in_a_function_can_be_sent(letters: Path, output_of: Run) -> None:
    """Objects of local classes with closures are good programs."""
    word = "found"

    class Local(MapReduce):
        def __init__(self, least: int) -> None:
            self.least = least

        def map(self, key: int, value: str) -> Iterable[tuple[str, str]]:
            if key >= self.least:
                yield word, value

    execution = plan_mapreduce("j", Local(8), "letters", "out", base_dir=letters)
    assert output_of(execution) == b"found\tb\nfound\ta\n"


@pytest.mark.parametrize("optional", [{}, {"add": lambda self, one, other: one + other}])
@pytest.mark.parametrize(
    ("last", "message"),
    [
        ([("a", 1, 2)], "map of Late must yield pairs"),
        (["ab"], "map of Late must yield pairs .* it yielded 'ab'"),
        (7, "map of Late must yield pairs .* not iterable"),
    ],
)
def test_a_late_error_is_reported_like_an_early_one(
    tmp_path: Path, output_of: Run, optional: dict[str, Any], last: Any, message: str
) -> None:
    """After thousands of good pairs with numbers, one that is none is still found."""
    (tmp_path / "numbers").write_text("".join(f"{i}\n" for i in range(20_000)))

    def body(self: MapReduce, key: int, value: str) -> Any:
        return last if value == "15000" else [(value, 1)]

    program = type("Late", (MapReduce,), {"map": body, **optional})
    with pytest.raises(TypeError, match=message):
        output_of(plan_mapreduce("j", program, "numbers", "out", base_dir=tmp_path))


@pytest.mark.parametrize("optional", [{}, {"add": lambda self, one, other: one + other}])
def test_many_pairs_are_all_counted(
    tmp_path: Path, output_of: Run, optional: dict[str, Any]
) -> None:
    """Streams of small pairs, with larger ones among them, lose nothing."""
    (tmp_path / "numbers").write_text("".join(f"{i % 1000}\n" for i in range(50_000)))

    class Sums(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[str, int]]:
            yield value, 1
            yield value, 10**6

        def reduce(self, key: str, values: Iterator[int]) -> Iterable[tuple[str, int]]:
            yield key, sum(values)

    program = type("MoreSums", (Sums,), optional)
    execution = plan_mapreduce("j", program, "numbers", "out", base_dir=tmp_path, reducers=1)
    expected = sorted(f"{i}\t{50 * (10**6 + 1)}\n" for i in range(1000))
    assert sorted(output_of(execution).decode().splitlines(keepends=True)) == expected
