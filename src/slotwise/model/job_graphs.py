"""The stages of several jobs as arrays: which job they belong to, and which wait for which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class JobGraphs:
    """Jobs as DAGs of stages. The stages of a job are in topological order, job after job.

    first         the index of the first stage of each job, followed by the number of stages
    before_first  of each stage, where its part of `before` begins; then the length of that
    before        the stages before each stage, by index among all
    """

    first: Ints
    before_first: Ints
    before: Ints

    @classmethod
    def of(cls, stages: list[int], before: list[list[int]]) -> JobGraphs:
        """Jobs of these numbers of stages; `before` has the stages before each stage."""
        return cls(
            np.cumsum([0, *stages]),
            np.cumsum([0, *map(len, before)]),
            np.array([other for others in before for other in others], dtype=np.int64),
        )

    @cached_property
    def place(self) -> Ints:
        """The place of each stage within its job."""
        stages = np.diff(self.first)
        return np.arange(int(self.first[-1])) - np.repeat(self.first[:-1], stages)

    @cached_property
    def arcs(self) -> list[Ints]:
        """For each place within a job, pairs of the stage there and one before it."""
        behind = np.repeat(np.arange(len(self.place)), np.diff(self.before_first))
        pairs, place = np.column_stack([behind, self.before]), self.place[behind]
        return [pairs[place == number] for number in range(int(self.place.max()) + 1)]

    @cached_property
    def is_chain(self) -> npt.NDArray[np.bool_]:
        """For each job, whether each stage waits for exactly the stage before it."""
        waits = np.diff(self.before_first)
        is_next = waits == (self.place > 0)
        one = np.flatnonzero(is_next & (waits == 1))
        is_next[one] = self.before[self.before_first[one]] == one - 1
        return np.logical_and.reduceat(is_next, self.first[:-1])
