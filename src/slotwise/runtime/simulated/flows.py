"""What is known of the flows under way, as columns of numbers, so that many change at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from slotwise.runtime.simulated.links import PATH_MOST, Way

NOBODY = -1
_COLUMNS = ("links", "end", "left", "number", "rate", "since", "size", "in_rack", "in_core")


class Flows:
    """A table with a row for each flow. The rows of flows that are over are used again.

    number  in the order of their starts; NOBODY where the row is free
    size    bytes in all
    left    bytes that were missing at the instant `since`
    rate    bytes a second since then; 0 where no link has a limit: then it ends at once
    end     the instant at which it ends at that rate; inf while it has none
    in_rack, in_core    1 where it stays in its rack, where it passes the core; else 0

    A flow whose rate stays the same keeps the instant of its end.
    """

    __slots__ = (*_COLUMNS, "_free", "_nowhere", "_numbers", "paths", "top")

    def __init__(self, nowhere: int, rows: int = 64) -> None:
        self.top = self._numbers = 0  # All rows from `top` on are free.
        self._free: list[int] = []
        self._nowhere = nowhere
        self.paths: list[tuple[int, ...]] = []
        self.links = np.full((rows, PATH_MOST), nowhere)
        self.number = np.full(rows, NOBODY)
        self.end = np.full(rows, inf)
        self.size, self.left, self.since, self.rate = np.zeros((4, rows))
        self.in_rack, self.in_core = np.zeros((2, rows))

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
        self.number[row] = self._numbers
        self._numbers += 1
        self.size[row] = self.left[row] = size
        self.since[row] = now
        self.in_rack[row], self.in_core[row] = way is Way.RACK, way is Way.CORE
        return row

    def clear(self, row: int) -> None:
        """The flow of this row is over."""
        self.paths[row] = ()
        self.links[row] = self._nowhere
        self.number[row] = NOBODY
        self.end[row] = inf
        self.size[row] = self.left[row] = self.rate[row] = 0.0
        self.in_rack[row] = self.in_core[row] = 0.0
        self._free.append(row)

    def change(
        self,
        rows: Sequence[int] | npt.NDArray[np.int64],
        rates: Sequence[float] | npt.NDArray[np.float64],
        now: float,
    ) -> None:
        """From now on these flows have these rates; inf: they end now."""
        at, new = np.asarray(rows), np.asarray(rates)
        is_other = (new != self.rate[at]) | (self.end[at] == inf)
        at, new = at[is_other], new[is_other]
        left = np.maximum(0.0, self.left[at] - self.rate[at] * (now - self.since[at]))
        self.left[at], self.since[at] = left, now
        self.end[at] = now + left / new
        self.rate[at] = np.where(new == inf, 0.0, new)

    def arrived(self, row: int, now: float) -> float:
        """How many bytes of a flow have arrived by now."""
        if self.end[row] <= now:
            return float(self.size[row])
        left = self.left[row] - self.rate[row] * (now - self.since[row])
        return float(self.size[row] - max(0.0, left))

    def ended(self, now: float) -> list[int]:
        """The rows of flows that end until now, in the order in which they started."""
        rows = np.flatnonzero(self.end[: self.top] <= now)
        ordered: list[int] = rows[np.argsort(self.number[rows])].tolist()
        return ordered

    def under_way(self) -> list[int]:
        """The rows of all flows."""
        rows: list[int] = np.flatnonzero(self.number[: self.top] != NOBODY).tolist()
        return rows

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
        more = Flows(self._nowhere, len(self.end))
        for name in _COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))
