"""The state of all flows as columns of numbers, so that many can change at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from slotwise.runtime.simulated.links import MAX_PATH, Way

NOBODY = -1
_NUMBERS = ("end", "left", "number", "rate", "since", "size", "in_rack", "in_core")


class Cells:
    """The same columns as memory views, which are several times faster for single numbers."""

    __slots__ = _NUMBERS

    end: memoryview[float]
    left: memoryview[float]
    number: memoryview[int]
    rate: memoryview[float]
    since: memoryview[float]
    size: memoryview[float]
    in_rack: memoryview[float]
    in_core: memoryview[float]


class FlowTable:
    """A table with a row for each flow. The rows of ended flows are reused.

    number  in order of start; NOBODY if the row is free
    size    total bytes
    left    bytes that were missing at the instant `since`
    rate    bytes a second since then; 0 if no link has a limit: the flow then ends at once
    end     the instant at which it ends at that rate; inf while it has no rate
    in_rack, in_core    1 if it stays in its rack, or passes the core; otherwise 0

    A flow whose rate does not change keeps its exact end.
    """

    __slots__ = (*_NUMBERS, "_free", "_nowhere", "_numbers", "cells", "links", "paths", "top")

    def __init__(self, nowhere: int, rows: int = 64) -> None:
        self.top = self._numbers = 0  # All rows from `top` on are free.
        self._free: list[int] = []
        self._nowhere = nowhere
        self.paths: list[tuple[int, ...]] = []
        self.links = np.full((rows, MAX_PATH), nowhere)
        self.number = np.full(rows, NOBODY)
        self.end = np.full(rows, inf)
        self.size, self.left, self.since, self.rate = (np.zeros(rows) for _ in range(4))
        self.in_rack, self.in_core = np.zeros(rows), np.zeros(rows)
        self._view()

    def begin(self, path: tuple[int, ...], way: Way, size: float, now: float) -> int:
        """The row of a new flow, which has no rate yet."""
        if self._free:
            row = self._free.pop()
            self.paths[row] = path
        else:
            row, self.top = self.top, self.top + 1
            self.paths.append(path)
            if row == len(self.end):
                self._double()
        self.links[row, : len(path)] = path
        cells = self.cells
        cells.number[row] = self._numbers
        self._numbers += 1
        cells.size[row] = cells.left[row] = size
        cells.since[row] = now
        cells.in_rack[row] = float(way is Way.RACK)
        cells.in_core[row] = float(way is Way.CORE)
        return row

    def clear(self, row: int) -> None:
        """Free the row of a flow that is over."""
        cells = self.cells
        self.paths[row] = ()
        self.links[row] = self._nowhere
        cells.number[row] = NOBODY
        cells.end[row] = inf
        cells.size[row] = cells.left[row] = cells.rate[row] = 0.0
        cells.in_rack[row] = cells.in_core[row] = 0.0
        self._free.append(row)

    def change_few(self, rows: Sequence[int], rates: Sequence[float], now: float) -> None:
        """Set the rates of these flows from now on; inf: the flow ends now."""
        cells = self.cells
        for row, new in zip(rows, rates, strict=True):
            old = cells.rate[row]
            if new != old or cells.end[row] == inf:
                left = max(0.0, cells.left[row] - old * (now - cells.since[row]))
                cells.left[row], cells.since[row] = left, now
                cells.end[row] = now + left / new
                cells.rate[row] = 0.0 if new == inf else new

    def change_many(
        self, rows: npt.NDArray[np.int64], rates: npt.NDArray[np.float64], now: float
    ) -> None:
        """Like `change_few`, with numpy."""
        is_other = (rates != self.rate[rows]) | (self.end[rows] == inf)
        rows, rates = rows[is_other], rates[is_other]
        left = np.maximum(0.0, self.left[rows] - self.rate[rows] * (now - self.since[rows]))
        self.left[rows], self.since[rows] = left, now
        self.end[rows] = now + left / rates
        self.rate[rows] = np.where(rates == inf, 0.0, rates)

    def arrived(self, row: int, now: float) -> float:
        """The bytes of a flow that have arrived by now."""
        cells = self.cells
        if cells.end[row] <= now:
            return cells.size[row]
        left = cells.left[row] - cells.rate[row] * (now - cells.since[row])
        return cells.size[row] - max(0.0, left)

    def ended(self, now: float) -> list[int]:
        """The rows of the flows that end by now, in order of start."""
        rows: list[int] = np.flatnonzero(self.end[: self.top] <= now).tolist()
        return sorted(rows, key=self.cells.number.__getitem__) if len(rows) > 1 else rows

    def under_way(self) -> npt.NDArray[np.int64]:
        """The rows of all flows."""
        return np.flatnonzero(self.number[: self.top] != NOBODY)

    def next_row(self) -> int:
        """The row of the flow that ends first. There must be one."""
        return int(self.end[: self.top].argmin())

    def rate_in_rack(self) -> float:
        """Bytes a second that stay in their racks, over all flows."""
        return float(self.rate[: self.top] @ self.in_rack[: self.top])

    def rate_in_core(self) -> float:
        """Bytes a second that pass the core, over all flows."""
        return float(self.rate[: self.top] @ self.in_core[: self.top])

    def _double(self) -> None:
        more = FlowTable(self._nowhere, len(self.end))
        for name in ("links", *_NUMBERS):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))
        self._view()

    def _view(self) -> None:
        self.cells = Cells()
        for name in _NUMBERS:
            setattr(self.cells, name, memoryview(getattr(self, name)))
