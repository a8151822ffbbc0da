"""How a copier learns of finished maps, and reads what they wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.jobs.blocks import PartitionedReader, PartitionedWriter
from slotwise.jobs.mapreduce.program import MapReduceLayout
from slotwise.jobs.shuffle.sources import MAX_PAUSE, FinishedMaps, copy_partition, finished_maps
from tiers import examples


def test_copiers_get_each_map_once_and_in_order(tmp_path: Path) -> None:
    """They take what is there, then wait longer and longer, and for less after news."""
    maps, pauses = FinishedMaps(tmp_path / "f"), list[float]()
    maps.announce(7, 1)
    maps.announce(3, 2)

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) in (8, 10):
            maps.announce(len(pauses), 70_000)

    assert list(finished_maps(tmp_path / "f", 4, sleep)) == [
        (7, 1), (3, 2), (8, 70_000), (10, 70_000)
    ]  # fmt: skip
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, MAX_PAUSE, MAX_PAUSE,
                      0.001, 0.002]  # fmt: skip


def test_a_partial_entry_is_ignored(tmp_path: Path) -> None:
    """What a full disk cut off is not read, and is written over when there is room again."""
    maps = FinishedMaps(tmp_path / "f")
    maps.announce(1, 1)
    with (tmp_path / "f").open("ab") as file:
        file.write(b"abc")
    seen: list[tuple[int, int]] = []
    follow = finished_maps(tmp_path / "f", 2, lambda seconds: maps.announce(2, 5))
    seen.append(next(follow))
    seen.append(next(follow))
    assert seen == [(1, 1), (2, 5)]


@settings(max_examples=examples(20, slow=1000))
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=9))), min_size=1),
    st.randoms(use_true_random=False),
)
def test_a_copy_reads_like_the_files_it_was_made_of(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[list[tuple[int, bytes]]],
    rng: random.Random,
) -> None:
    """Three reduces of two buckets each: chunks by map, then as they were appended."""
    place = tmp_path_factory.mktemp("copy")
    layout = MapReduceLayout(str(place), "out", True, ".txt")
    order = list(range(len(written)))
    rng.shuffle(order)
    maps = FinishedMaps(layout.finished_maps)
    for number in order:
        layout.attempt_dir("map", number, 1).mkdir()
        with PartitionedWriter(layout.map_file(number, 1), 6) as file:
            for partition, data in written[number]:
                file.append(partition, data)
        maps.announce(number, 1)
    for task in range(3):
        copied = copy_partition(layout, task, place / "copy", 2, len(order))
        reader = PartitionedReader(place / "copy")
        for bucket in range(2):
            expected = [data for w in written for p, data in w if p == 2 * task + bucket]
            assert list(reader.chunks(bucket)) == expected
        assert copied == sum(len(d) for w in written for p, d in w if p // 2 == task)
