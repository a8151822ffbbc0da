"""The parts of jobs: phases, with the earliest start and the least time behind the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slotwise.objective.costs import Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Parts:
    """N parts of J jobs as parallel arrays; those of a job lie side by side.

    job   of each part: 0 to J - 1
    work  seconds at speed 1, >= 0
    rate  the most work of it that can be done in a second, > 0
    head  seconds from the arrival of its job during which nothing of it can be done
    tail  seconds that the job needs at least from the end of the part to its own completion
    """

    job: Ints
    work: Floats
    rate: Floats
    head: Floats
    tail: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, float, float, float]]) -> Parts:
        """From one row a part: job, work, rate, head, tail."""
        table = np.array(rows, dtype=float).reshape(-1, 5).T
        return cls(table[0].astype(np.int64), *table[1:])

    @classmethod
    def whole(cls, work: Floats, rate: Floats) -> Parts:
        """Each job as one part, with nothing before and behind it."""
        nothing = np.zeros(len(work))
        return cls(np.arange(len(work)), work, rate, nothing, nothing)

    def __len__(self) -> int:
        return len(self.work)

    @property
    def are_whole(self) -> bool:
        """Whether each is all that is known of the work of its job."""
        return bool(np.all(np.diff(self.job) > 0) and not np.any(self.head + self.tail))

    def fitted(self, capacity: float) -> Parts:
        """None of them faster than the capacity allows."""
        return replace(self, rate=np.minimum(self.rate, capacity))
