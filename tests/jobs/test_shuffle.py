"""Hashes, orders, sorted runs, and the memory that tasks take."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.jobs.mapreduce.program import hash_partitions, stable_hash
from slotwise.jobs.shuffle.buffers import FAN_IN, SortedRuns
from slotwise.jobs.shuffle.keys import Order
from slotwise.jobs.shuffle.pairs import column_bytes
from tiers import examples

HASHES = """
import sys; from slotwise.jobs.mapreduce.program import stable_hash
print([stable_hash(k) for k in ("a", b"a", 1.5, None, ("a", 2), frozenset("abc"))])
"""


def test_hashes_do_not_depend_on_the_process() -> None:
    """Two processes with other hash seeds send a key to the same reduce."""
    outputs = {
        subprocess.check_output(
            [sys.executable, "-c", HASHES], env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_equal_keys_hash_alike() -> None:
    """Numbers of other types, instants in other zones, values that are not a number."""
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    later = noon.astimezone(timezone(timedelta(hours=5)))
    for one, other in [(1, 1.0), (True, 1), (0.0, -0.0), ((1, "a"), (1.0, "a")), (noon, later)]:
        assert one == other
        assert stable_hash(one) == stable_hash(other)
    assert stable_hash(float("nan")) == stable_hash(float("nan"))
    assert stable_hash(date(2024, 1, 1)) != stable_hash(date(2024, 1, 2))
    with pytest.raises(
        TypeError, match=r"no stable hash for a key of type object: .* partition"
    ):
        stable_hash(object())


@settings(max_examples=examples(20, slow=1000))
@given(st.lists(st.text() | st.integers() | st.none()))
def test_the_fast_path_gives_the_same_partitions(keys: list[object]) -> None:
    """Partitions of a batch are those of its keys one by one."""
    assert hash_partitions(keys, 5) == [stable_hash(key) % 5 for key in keys]


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9), max_size=4), st.booleans())
def test_ranges_follow_the_order(keys: list[int], points: list[int], descending: bool) -> None:
    """The ranges of sorted keys never fall, and equal keys share one."""
    order = Order("p", descending=descending)
    ranges = order.ranges(order.keys(keys), order.keys(points))
    assert ranges == sorted(ranges)
    assert all(0 <= number <= len(points) for number in ranges)


@pytest.mark.parametrize("count", [1, FAN_IN, FAN_IN + 1, 2 * FAN_IN + 3])
def test_any_number_of_runs_merges_in_order(tmp_path: Path, count: int) -> None:
    """More runs than are merged at once take more passes; equal keys keep their order."""
    rng = random.Random(count)
    runs = SortedRuns(tmp_path, Order("p"), chunk_bytes=300)
    pairs = []
    for run in range(count):
        keys = sorted(rng.choices(range(50), k=20))
        values = [(run, i) for i in range(20)]
        pairs += zip(keys, values, strict=True)
        runs.spill(iter([(keys[:7], values[:7]), (keys[7:], values[7:])]))
    assert list(runs.merged()) == sorted(pairs)


def test_estimated_sizes_of_columns_are_close() -> None:
    """Text counts by its lengths, also beyond ASCII; one huge value is not overlooked."""
    for values in (["ab" * 50] * 100, ["ä" * 1000] * 10, ["日" * 10] * 100, [b"x" * 9] * 50):
        exact = sum(map(sys.getsizeof, values))
        assert exact * 0.8 <= column_bytes(values) <= exact * 1.4
    assert column_bytes(["a"] * 99 + ["b" * 10**6]) > 10**6
    assert column_bytes([1] * 100) == 0
    assert column_bytes([[1.5] * 100] * 32) > 32 * 24 * 100


MEMORY = """
import json, resource, sys
from slotwise.jobs import plan_mapreduce
program, directory, memory_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
execution = plan_mapreduce("j", program, "text", f"out-{program}", base_dir=directory,
                           reducers=1, memory_bytes=memory_bytes, split_bytes=1 << 40)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
import numpy, slotwise.jobs.mapreduce.tasks
begin, peaks = peak(), {}
for phase in execution.job.topological:
    result = execution.runner(*execution.arguments(phase.name, 0, 0))
    execution.finished(phase.name, 0, 0, result)
    peaks[phase.name] = peak() - begin
execution.close(True)
print(json.dumps(peaks))
"""


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text of many words, all of them different."""
    folder = tmp_path_factory.mktemp("text")
    rng = random.Random(2)
    with (folder / "text").open("w") as file:
        for i in range(examples(18_000, slow=60_000)):
            file.write(" ".join(f"{rng.randrange(10**12):012}-{i}" for _ in range(10)) + "\n")
    return folder


@pytest.mark.parametrize("program", ["wordcount", "sort", "inverted-index"])
@pytest.mark.slow
def test_memory_is_bounded(text_folder: Path, program: str) -> None:
    """Data that would take several times the bound stay within it, by the process's peak."""
    bound = examples(12, slow=40) << 20
    output = subprocess.check_output(
        [sys.executable, "-c", MEMORY, program, str(text_folder), str(bound)]
    )
    peaks = json.loads(output)
    assert max(peaks.values()) <= bound, peaks
