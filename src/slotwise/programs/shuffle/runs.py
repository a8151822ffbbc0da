"""Sorted runs on disk, and their merge, for pairs that do not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from slotwise.programs.mapreduce.program import Pair
from slotwise.programs.shuffle.chunks import CHUNK_PAIRS, Columns, read_pairs, write_pairs
from slotwise.programs.shuffle.keys import ones
from slotwise.programs.shuffle.order import Order
from slotwise.programs.shuffle.partitioned import PartitionedWriter

FAN_IN = 32
"""The number of runs merged at once, and so of chunks in memory and of open files."""


class SortedRuns:
    """The runs of one reduce task; equal keys keep the order in which they were spilled."""

    def __init__(self, directory: Path, order: Order, chunk_bytes: int) -> None:
        self._directory = directory
        self._order = order
        self._chunk_bytes = chunk_bytes
        self._paths: list[Path] = []
        self._written = 0
        self._is_total = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing was spilled."""
        return not self._paths

    def spill(self, slices: Iterator[Columns]) -> None:
        """Write sorted slices as one run."""
        self._paths.append(self._write(slices))

    def merged(self) -> Iterator[Pair]:
        """All pairs in order; call it once. Costs log32(number of runs) passes over them."""
        while len(self._paths) > FAN_IN:
            groups = [self._paths[i : i + FAN_IN] for i in range(0, len(self._paths), FAN_IN)]
            self._paths = [self._merge_to_run(group) for group in groups]
        return self._merge(self._paths)

    def _merge(self, paths: list[Path]) -> Iterator[Pair]:
        streams = [self._pairs(path) for path in paths]
        return self._order.merged(streams, self._is_total)

    def _pairs(self, path: Path) -> Iterator[Pair]:
        # Keys that are one key but not equal were the same object before they were written.
        is_total = self._is_total
        return chain.from_iterable(
            zip(keys if is_total else ones(keys), values, strict=True)
            for keys, values in read_pairs(path)
        )

    def _merge_to_run(self, paths: list[Path]) -> Path:
        merged = self._write(_slices(self._merge(paths)))
        for path in paths:
            path.unlink()
        return merged

    def _write(self, slices: Iterator[Columns]) -> Path:
        path = self._directory / f"run-{self._written}"
        self._written += 1
        with PartitionedWriter(path, partitions=1) as file:
            for columns in slices:
                self._is_total = self._is_total and self._order.is_total(columns[0])
                write_pairs(file, 0, columns, self._chunk_bytes)
        return path


def _slices(pairs: Iterator[Pair]) -> Iterator[Columns]:
    while batch := list(islice(pairs, CHUNK_PAIRS)):
        keys, values = zip(*batch, strict=True)
        yield keys, values
