"""Dataflow jobs beside the same functions in one process: `python benchmarks/dataflow.py`.

A pipeline of three nodes, with channels of one kind between them, is a job in an open session.
One process calls the functions one inside the other. "empty" has no records: it is the cost of
the job itself. Everything is measured in turns in this run, and the shortest time counts.

If other programs compete for the processors, Linux may give all processes of one worker as much
time as one other session gets. Shared memory then takes longer than on an idle machine.

records  words that are split from lines, paired with their lengths, and counted
arrow    Arrow batches of 1 MB: two columns are added, and the sum is summed

An argument is the number of rounds: `python benchmarks/dataflow.py 10`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import slotwise

ROUNDS = 3
LINES = 60_000
BATCHES = 400
LINE = "the quick brown fox jumps over the lazy dog and runs"
KINDS = ("file", "tcp", "shm")


def words(number: int) -> Iterator[str]:
    """The words of so many lines."""
    for _ in range(number):
        yield from LINE.split()


def lengths(words: Iterator[str]) -> Iterator[tuple[str, int]]:
    """Each word with its length."""
    for word in words:
        yield word, len(word)


def counted(pairs: Iterator[tuple[str, int]]) -> Iterator[object]:
    """How often each pair occurs."""
    yield from sorted(Counter(pairs).items())


def batches(number: int) -> Iterator[pa.RecordBatch]:
    """Batches of two columns."""
    for _ in range(number):
        yield pa.record_batch({"a": np.arange(1 << 16), "b": np.ones(1 << 16, np.int64)})


def added(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch with the sum of its columns."""
    for batch in batches:
        total = pc.add(batch.column(0), batch.column(1))
        yield pa.record_batch({"sum": total, "b": batch.column(1)})


def summed(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """The sum of all."""
    yield sum(pc.sum(batch.column(0)).as_py() for batch in batches)


PIPELINES: dict[str, tuple[tuple[Callable[..., Any], ...], int]] = {
    "records": ((words, lengths, counted), LINES),
    "arrow": ((batches, added, summed), BATCHES),
    "empty": ((words, lengths, counted), 0),
}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder, slotwise.Session(3) as session:
        numbers = count()

        def job(name: str, kind: str) -> None:
            (first, second, third), size = PIPELINES[name]
            flow = slotwise.Dataflow()
            made = flow.node(first, parameters={"number": size})
            changed = flow.node(second, getattr(made, kind)())
            flow.write(flow.node(third, getattr(changed, kind)()))
            number = next(numbers)
            session.run(flow.job(f"{kind}-{number}", Path(folder, str(number)))).result()

        for kind in KINDS:
            job("empty", kind)  # All workers have imported what they need.
        for name in PIPELINES:
            best = dict.fromkeys(("one process", *KINDS), float("inf"))
            for _ in range(rounds):
                for how in best:
                    begin = time.perf_counter()
                    if how == "one process":
                        bare(name)
                    else:
                        job(name, how)
                    best[how] = min(best[how], time.perf_counter() - begin)
            print(f"\n{name}")
            for how, seconds in best.items():
                ratio = seconds / best["one process"]
                beside = "" if name == "empty" else f"{ratio:6.2f} of one process"
                print(f"  {how:12} {seconds:8.3f} s {beside}")


def bare(name: str) -> list[object]:
    """The functions of a pipeline, one inside the other."""
    (first, second, third), size = PIPELINES[name]
    return list(third(second(first(size))))


if __name__ == "__main__":
    main()
