"""The jobs as input of the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slotwise.allocation.bounds.early import earlier
from slotwise.allocation.bounds.parts import Parts
from slotwise.allocation.bounds.residual_time import least_times
from slotwise.objective.cost import Cost
from slotwise.objective.costs import Costs, Floats


@dataclass(frozen=True, slots=True)
class BoundJobs:
    """J jobs as parallel arrays; created by `BoundJobs.of`.

    costs      of each job by the instant of its completion
    arrival    seconds, >= 0; no work is done before
    work       seconds at speed 1, >= 0
    rate       the maximum work per second, > 0
    height     the minimum time from arrival to completion alone, seconds
    min_share  the minimum work per second from arrival to completion; 0 without a guarantee,
               together at most the capacity
    parts      its phases; by default the whole job is one part
    """

    costs: Costs
    arrival: Floats
    work: Floats
    rate: Floats
    height: Floats
    min_share: Floats
    parts: Parts

    @classmethod
    def of(
        cls,
        costs: Sequence[Cost],
        arrival: Sequence[float] | Floats,
        work: Sequence[float] | Floats,
        rate: Sequence[float] | Floats,
        height: Sequence[float] | Floats,
        min_share: Sequence[float] | Floats | None = None,
        parts: Parts | None = None,
    ) -> BoundJobs:
        """The jobs; by default without min shares, and each job is one part."""
        low = np.zeros(len(costs)) if min_share is None else min_share
        came, amount, pace, alone, held = (
            np.asarray(values, dtype=float) for values in (arrival, work, rate, height, low)
        )
        some = parts or Parts.whole(amount, pace)
        return cls(Costs(costs), came, amount, pace, alone, held, some)

    def __len__(self) -> int:
        return len(self.work)

    def fitted(self, capacity: float) -> BoundJobs:
        """The same jobs, with rates and heights limited by the capacity and min shares."""
        rate = np.minimum(self.rate, capacity)
        min_share = np.minimum(self.min_share, rate)
        height = np.maximum(self.height, self.work / rate)
        if np.all(self.arrival == self.arrival[:1]):
            height = np.maximum(height, least_times(capacity, self.work, min_share, rate))
        parts = self.parts.fitted(capacity)
        return replace(self, rate=rate, height=height, min_share=min_share, parts=parts)

    def early(self) -> BoundJobs:
        """The same jobs with costs lowered by more than the rounding of instants."""
        return replace(self, costs=earlier(self.costs))

    def since(self, instant: float) -> BoundJobs:
        """The same jobs on a clock that shows 0 at this instant."""
        costs = Costs([cost.since(instant) for cost in self.costs]) if instant else self.costs
        return replace(self, costs=costs, arrival=self.arrival - instant)

    def least_of(self, parts: Parts) -> Floats:
        """The min share of each part: that of the job if it is the whole job, otherwise 0."""
        count = np.bincount(parts.job, minlength=len(self))
        is_all = (count[parts.job] == 1) & (parts.head + parts.tail == 0)
        return np.where(is_all, self.min_share[parts.job], 0.0)

    @property
    def soonest(self) -> Floats:
        """The earliest instant at which each job can be complete."""
        return self.arrival + self.height

    @property
    def latest(self) -> Floats:
        """The latest completion of each job, which its min share implies, or inf."""
        held = np.where(self.min_share > 0, self.min_share, 1.0)
        ends = np.where(self.min_share > 0, self.arrival + self.work / held, np.inf)
        return np.maximum(ends, self.soonest)
