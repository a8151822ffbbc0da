"""What bounds know of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slotwise.allocation.bounds.besides import least_times
from slotwise.allocation.bounds.early import earlier
from slotwise.objective.cost import Cost
from slotwise.objective.costs import Costs, Floats


@dataclass(frozen=True, slots=True)
class BoundJobs:
    """J jobs as parallel arrays; made by `BoundJobs.of`.

    costs    of each job by the instant of its completion
    arrival  seconds, >= 0; nothing of it is done before
    work     seconds at speed 1, >= 0
    rate     the most work that it can have done in a second, > 0
    height   the least time from arrival to completion that it needs alone, seconds
    least    the work that it has done at least in a second, from its arrival to its completion;
             0 where it is guaranteed nothing, together at most the capacity
    """

    costs: Costs
    arrival: Floats
    work: Floats
    rate: Floats
    height: Floats
    least: Floats

    @classmethod
    def of(
        cls,
        costs: Sequence[Cost],
        arrival: Sequence[float] | Floats,
        work: Sequence[float] | Floats,
        rate: Sequence[float] | Floats,
        height: Sequence[float] | Floats,
        least: Sequence[float] | Floats | None = None,
    ) -> BoundJobs:
        """The jobs; without `least` none is guaranteed anything."""
        low = np.zeros(len(costs)) if least is None else least
        arrays = [np.asarray(v, dtype=float) for v in (arrival, work, rate, height, low)]
        return cls(Costs(costs), *arrays)

    def __len__(self) -> int:
        return len(self.work)

    def fitted(self, capacity: float) -> BoundJobs:
        """The same jobs, none of them faster than capacity and guarantees allow."""
        rate = np.minimum(self.rate, capacity)
        least = np.minimum(self.least, rate)
        height = np.maximum(self.height, self.work / rate)
        if np.all(self.arrival == self.arrival[:1]):
            height = np.maximum(height, least_times(capacity, self.work, least, rate))
        return replace(self, rate=rate, height=height, least=least)

    def early(self) -> BoundJobs:
        """The same jobs at costs that are lower by more than the rounding of any clock."""
        return replace(self, costs=earlier(self.costs))

    @property
    def soonest(self) -> Floats:
        """The earliest instant at which each job can be complete."""
        return self.arrival + self.height

    @property
    def latest(self) -> Floats:
        """The instant at which its least share completes each job at the latest, or inf."""
        held = np.where(self.least > 0, self.least, 1.0)
        ends = np.where(self.least > 0, self.arrival + self.work / held, np.inf)
        return np.maximum(ends, self.soonest)
