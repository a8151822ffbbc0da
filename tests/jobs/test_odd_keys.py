"""Keys that Python cannot tell apart or put in order: NaN, sets, and tuples with either."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.jobs import BatchMapReduce, Execution, MapReduce, plan_mapreduce
from slotwise.jobs.mapreduce.program import stable_hash
from slotwise.jobs.shuffle.keys import one, total
from tiers import examples

Drive = Callable[[Execution], None]

MEMORY = 1 << 20
PAD = b"x" * 12_000
"""So large a value comes with each key that a hundred of them do not fit into memory."""


class Point(NamedTuple):
    """A key of a class that a user has made."""

    x: Any
    y: Any


def label(key: Any) -> str:
    """A name for all keys that are one: it knows nothing of how keys are compared."""
    if isinstance(key, tuple):
        return f"({' '.join(map(label, key))})"
    if isinstance(key, frozenset):
        return f"<{' '.join(sorted(set(map(label, key))))}>"
    if isinstance(key, str):
        return repr(key)
    return str(float(key) + 0.0)  # -0.0 becomes 0.0.


class Grouping(MapReduce):
    """Makes a record of each key; writes the numbers of the records that each key was given."""

    def __init__(self, keys: list[Any], **settings: Any) -> None:
        self.made = keys
        self.records_made = len(keys)
        vars(self).update(settings)

    def map(self, key: int, value: None) -> Iterable[tuple[Any, Any]]:
        """The key, and a value that takes memory."""
        yield self.made[key], (key, PAD)

    def reduce(self, key: Any, values: Iterator[Any]) -> Iterable[tuple[None, Any]]:
        """The label and the numbers."""
        yield None, {"label": label(key), "numbers": [number for number, _ in values]}


class Combining(Grouping):
    """The same with a combine that changes nothing."""

    def combine(self, key: Any, values: Iterator[Any]) -> Iterable[tuple[Any, Any]]:
        """Each value."""
        return ((key, value) for value in values)


class Adding(Grouping):
    """The same with values that are added up in order, as lists of numbers."""

    def map(self, key: int, value: None) -> Iterable[tuple[Any, Any]]:
        """The key, and a value that takes memory."""
        yield self.made[key], ([key], PAD)

    def add(self, one: Any, other: Any) -> Any:
        """All numbers, and all memory."""
        return one[0] + other[0], one[1] + other[1]

    def reduce(self, key: Any, values: Iterator[Any]) -> Iterable[tuple[None, Any]]:
        """The label and the numbers of the only value."""
        ((numbers, _),) = values
        yield None, {"label": label(key), "numbers": numbers}


class BySortKey(Grouping):
    """The same with its own order of keys: that of tuples with the key inside."""

    def sort_key(self, key: Any) -> Any:
        """Something that is as hard to compare as the key."""
        return (key, frozenset([key]))


def grouped(drive: Drive, folder: Path, program: MapReduce, reducers: int = 2) -> list[Any]:
    """What the reduces of a job of several maps have written."""
    job = plan_mapreduce(
        "j", program, (), "out", base_dir=folder, work_dir=folder, reducers=reducers,
        memory_bytes=MEMORY, split_bytes=70, output_format="jsonl", overwrite=True,
    )  # fmt: skip
    drive(job)
    parts = sorted((folder / "out").glob("part-*"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def expected(keys: list[Any]) -> dict[str, list[int]]:
    """The numbers of the records of each key, by a plain dict."""
    numbers: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        numbers.setdefault(label(key), []).append(number)
    return numbers


def check(drive: Drive, folder: Path, program: MapReduce, reducers: int = 2) -> None:
    """Every key was reduced once, with all its values in the order of the input."""
    found = grouped(drive, folder, program, reducers)
    assert len({row["label"] for row in found}) == len(found)
    assert {row["label"]: row["numbers"] for row in found} == expected(program.made)  # type: ignore[attr-defined]


SAME_NAN = float("nan")
NANS = (
    lambda: float("nan"),
    lambda: SAME_NAN,
    lambda: -math.nan,
    lambda: np.float64("nan"),
    lambda: np.float32("nan"),
    lambda: Decimal("NaN"),
)
numbers = st.sampled_from([0.0, -0.0, 1.0, 1, 2.5, -3, math.inf, -math.inf, Decimal("2.5")])
nan = st.sampled_from(NANS).map(lambda make: make())
numeric = numbers | nan
pairs = st.tuples(st.sampled_from(["a", "b"]), numeric)
points = st.builds(Point, numeric, numeric)
sets = st.frozensets(st.sampled_from("abcd")) | st.frozensets(numeric, max_size=3)
KINDS = [numeric, pairs, points, sets, st.tuples(sets, pairs)]

PROGRAMS: list[Callable[[list[Any]], Grouping]] = [
    Grouping,
    Combining,
    Adding,
    BySortKey,
    lambda keys: Grouping(keys, total_order=True),
    lambda keys: Grouping(keys, total_order=True, descending=True),
    lambda keys: BySortKey(keys, descending=True),
]


@pytest.mark.parametrize("program", PROGRAMS)
@given(data=st.data(), seed=st.integers(0, 2**32), reducers=st.integers(1, 3))
@settings(max_examples=examples(3, slow=6))
def test_each_key_is_reduced_once(
    drive: Drive,
    tmp_path_factory: pytest.TempPathFactory,
    program: Callable[[list[Any]], Grouping],
    data: Any,
    seed: int,
    reducers: int,
) -> None:
    """Whatever keys of a kind there are, and however often what does not fit is spilled."""
    some = data.draw(st.lists(data.draw(st.sampled_from(KINDS)), min_size=1, max_size=9))
    keys = random.Random(seed).choices(some, k=200)
    check(drive, tmp_path_factory.mktemp("job"), program(keys), reducers)


@pytest.mark.parametrize("program", [Grouping, Combining, Adding])
def test_nan_does_not_split_other_keys(
    drive: Drive, tmp_path: Path, program: type[Grouping]
) -> None:
    """Many keys with NaN among them, of which each record makes a new one."""
    keys = [float("nan") if n % 3 == 0 else float(n % 7) for n in range(400)]
    check(drive, tmp_path, program(keys))


@pytest.mark.parametrize("descending", [False, True])
def test_nan_has_one_place_behind_the_numbers(
    drive: Drive, tmp_path: Path, descending: bool
) -> None:
    """The parts of a total order, one after another, are sorted, NaN last or first."""
    keys = [random.Random(n).choice([float("nan"), n % 11 - 5.0, math.inf]) for n in range(300)]
    program = Grouping(keys, total_order=True, descending=descending)
    labels = [row["label"] for row in grouped(drive, tmp_path, program, reducers=3)]
    rising = [*map(str, map(float, range(-5, 6))), "inf", "nan"]
    assert labels == (rising[::-1] if descending else rising)


def test_a_table_filled_by_the_program(drive: Drive, tmp_path: Path) -> None:
    """Keys that fold_chunk has put into its table are made one, too."""

    class Folding(MapReduce):
        def map(self, key: int, value: str) -> Iterable[tuple[float, int]]:
            yield float(value), 1

        def add(self, one: int, other: int) -> int:
            return one + other

        def fold_chunk(self, text: str, table: Any) -> None:
            for line in text.splitlines():
                table[float(line)] += 1

    (tmp_path / "in").write_text("nan\n1\nnan\n" * 100)
    job = plan_mapreduce("j", Folding(), "in", "out", base_dir=tmp_path, reducers=1)
    drive(job)
    assert (tmp_path / "out" / "part-r-00000").read_text() == "1.0\t100\nnan\t200\n"


def test_tables_keep_nan_and_zeros_together(drive: Drive, tmp_path: Path) -> None:
    """A program by batches finds all rows of a key in one table, sorted."""
    pa = pytest.importorskip("pyarrow")

    class Batches(BatchMapReduce):
        keys = ("key",)
        records_made = 3000

        def map(self, table: Any) -> Any:
            kinds = [float("nan"), 0.0, -0.0, 1.5, None]
            chosen = [kinds[n % 5] for n in table["number"].to_pylist()]
            return pa.table({"key": chosen, "pad": ["x" * 1000] * len(chosen)})

        def reduce(self, table: Any) -> Any:
            labels = [str(key).replace("-0.0", "0.0") for key in table["key"].to_pylist()]
            assert sum(a != b for a, b in pairwise(labels)) == len(set(labels)) - 1
            counts = {name: labels.count(name) for name in set(labels)}
            return pa.table({"key": list(counts), "count": list(counts.values())})

    job = plan_mapreduce(
        "j", Batches(), (), "out", base_dir=tmp_path, reducers=3, memory_bytes=MEMORY
    )
    drive(job)
    parts = sorted((tmp_path / "out").glob("part-*"))
    rows = sorted(line for part in parts for line in part.read_text().splitlines())
    assert rows == ["0.0\t1200", "1.5\t600", "None\t600", "nan\t600"]


@given(st.lists(st.one_of(*KINDS), max_size=2))
def test_equal_keys_agree_in_hash_and_order(keys: list[Any]) -> None:
    """In their partition, their place in the order, and the object that stands for them."""
    for one_key in keys:
        for other in keys:
            is_one = label(one_key) == label(other)
            assert is_one == (len({one(one_key), one(other)}) == 1)
            if type(one_key) is type(other):
                assert is_one == (total(one_key) == total(other))
            if is_one:
                assert stable_hash(one_key) == stable_hash(other)


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.lists(kind, max_size=12)))
def test_the_order_is_total(keys: list[Any]) -> None:
    """Of two keys that are not one, exactly one comes before the other, whatever is between."""
    ranks = sorted(map(total, keys))
    assert all(not later < earlier for i, earlier in enumerate(ranks) for later in ranks[i:])
    for a in ranks:
        for b in ranks:
            assert (a < b) + (b < a) + (a == b) == 1
