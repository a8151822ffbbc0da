"""The parts of jobs: phases, with their earliest start and the minimum time after their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slotwise.objective.costs import Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Parts:
    """N parts of J jobs as parallel arrays; the parts of a job are adjacent.

    job   of each part: 0 to J - 1
    work  seconds at speed 1, >= 0
    rate  the maximum work per second, > 0
    head  minimum seconds from the arrival of the job to the start of the part
    tail  minimum seconds from the end of the part to the completion of the job
    """

    job: Ints
    work: Floats
    rate: Floats
    head: Floats
    tail: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, float, float, float]]) -> Parts:
        """From one row per part: job, work, rate, head, tail."""
        table = np.array(rows, dtype=float).reshape(-1, 5).T
        return cls(table[0].astype(np.int64), *table[1:])

    @classmethod
    def whole(cls, work: Floats, rate: Floats) -> Parts:
        """Each job as one part, with head and tail 0."""
        nothing = np.zeros(len(work))
        return cls(np.arange(len(work)), work, rate, nothing, nothing)

    def __len__(self) -> int:
        return len(self.work)

    @property
    def are_whole(self) -> bool:
        """Whether each part is a whole job."""
        return bool(np.all(np.diff(self.job) > 0) and not np.any(self.head + self.tail))

    def fitted(self, capacity: float) -> Parts:
        """The parts with rates limited by the capacity."""
        return replace(self, rate=np.minimum(self.rate, capacity))
