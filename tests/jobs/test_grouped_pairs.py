"""Pairs whose keys repeat are shuffled as keys with lists of values."""

from __future__ import annotations

from pathlib import Path

from slotwise.jobs.blocks import PartitionedWriter
from slotwise.jobs.shuffle.buffers import SLICE_PAIRS, ValueTable
from slotwise.jobs.shuffle.keys import Order
from slotwise.jobs.shuffle.pairs import Grouped, read_pairs, write_pairs

NAN = float("nan")


def table_of(*pairs):
    """A table of these pairs."""
    table = ValueTable(None, Order("program"), 1 << 20)
    table.take(iter(pairs), 0)
    return table


def through_file(tables, path: Path):
    """A table of all pairs of others, as a reduce reads them."""
    with PartitionedWriter(path, partitions=1) as file:
        for table in tables:
            for columns in table.drain_grouped():
                write_pairs(file, 0, columns, 1 << 20)
    read = table_of()
    for columns in read_pairs(path):
        (read.add_grouped if isinstance(columns, Grouped) else read.add)(*columns)
    return read


def content(table):
    """Its keys with their values, sorted."""
    return [(key, list(values)) for key, values in table.groups()]


def test_values_of_several_maps_stay_in_order(tmp_path):
    """A reduce gets the values of each key in the order of the maps."""
    maps = [[("a", 1), ("b", 2), ("a", 3)], [("b", 4)], [("b", 5), ("a", 6), ("b", 7)]]
    read = through_file([table_of(*pairs) for pairs in maps], tmp_path / "file")
    assert content(read) == [("a", [1, 3, 6]), ("b", [2, 4, 5, 7])]


def test_a_long_list_is_cut_and_joined(tmp_path):
    """A list longer than a slice is written in several chunks, which are joined in order."""
    numbers = range(2 * SLICE_PAIRS + 5)
    table = table_of(*(("key", number) for number in numbers))
    sizes = [sum(map(len, grouped.lists)) for grouped in table.drain_grouped()]
    assert sizes == [SLICE_PAIRS, SLICE_PAIRS, 5]
    again = table_of(*(("key", number) for number in numbers))
    assert content(through_file([again], tmp_path / "file")) == [("key", list(numbers))]


def test_all_nan_are_one_key_after_the_shuffle(tmp_path):
    """A NaN does not equal itself, and still all its values come together."""
    maps = [[(NAN, 1), (NAN, 2), (0.5, 3)], [(float("nan"), 4), (float("nan"), 5)]]
    read = through_file([table_of(*pairs) for pairs in maps], tmp_path / "file")
    assert [values for _, values in content(read)] == [[3], [1, 2, 4, 5]]


def test_the_limit_counts_values_in_lists():
    """A table is full after large lists, as after the same pairs one by one."""
    table = ValueTable(None, Order("program"), 1 << 20)
    table.add_grouped(["a", "b"], [["x" * 1000] * 2, [f"{n:1000}" for n in range(100)]])
    assert not table.is_full()
    table.add_grouped(["a"], [[f"{n:1000}" for n in range(1000)]])
    assert table.is_full()
