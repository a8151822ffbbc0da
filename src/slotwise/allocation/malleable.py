"""The numeric problem behind a plan: malleable jobs of one kind of slot, all present at 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slotwise.model.errors import InputError
from slotwise.objective.cost import Cost
from slotwise.objective.costs import Costs, Floats
from slotwise.objective.objective import Aggregate


@dataclass(frozen=True)
class Malleable:
    """J jobs that share `capacity` slots from time 0 on; created by `Malleable.of`.

    At every instant an unfinished job holds at least `min_share` and at most `max_share` slots,
    a real number. Its remaining work decreases at the rate of its slots (FLEX 2.3, 2.5).

    work       seconds at speed 1, > 0; shape (J,), as for the shares
    min_share  slots, >= 0, at most `max_share`; together at most the capacity
    max_share  slots, > 0, at most the capacity
    costs      of each job by its completion time
    aggregate  of the costs: "sum" or "max"
    """

    capacity: float
    work: Floats
    min_share: Floats
    max_share: Floats
    costs: Costs
    aggregate: Aggregate

    def __len__(self) -> int:
        return len(self.work)

    @classmethod
    def of(
        cls,
        capacity: float,
        work: Sequence[float] | Floats,
        min_share: Sequence[float] | Floats,
        max_share: Sequence[float] | Floats,
        costs: Sequence[Cost],
        aggregate: Aggregate = "sum",
    ) -> Malleable:
        """The problem with shares that fit, or InputError with place, value and remedy.

        Max shares are cut to the capacity, and min shares to these. Min shares that together
        exceed the capacity are scaled down in proportion ("the minima are simply normalised if
        necessary", FLEX 1), also if there are more jobs than slots. A min share above the
        stated max share is an error.
        """
        works, lows, tops = (np.array(v, dtype=float) for v in (work, min_share, max_share))
        if not 0 < capacity < np.inf:
            raise InputError(f"capacity is {capacity}; give a number of slots > 0")
        if not len(works) == len(lows) == len(tops) == len(costs):
            raise InputError(
                f"{len(works)} works, {len(lows)} min shares, {len(tops)} max shares and"
                f" {len(costs)} costs; give one of each for each job"
            )
        _refuse("work", works, works > 0, "seconds > 0")
        _refuse("min_share", lows, lows >= 0, "slots >= 0")
        _refuse("max_share", tops, tops > 0, "slots > 0", finite=False)
        _refuse("min_share", lows, lows <= tops, "at most max_share")
        tops = np.minimum(tops, capacity)
        lows = np.minimum(lows, tops)
        if (total := lows.sum()) > capacity:
            lows *= capacity / total
        return cls(float(capacity), works, lows, tops, Costs(costs), aggregate)

    @cached_property
    def heights(self) -> Floats:
        """The minimum time that each job needs alone, seconds."""
        return self.work / self.max_share

    @cached_property
    def ends(self) -> Floats:
        """The latest completion of each job, which its min share implies; inf without one."""
        with np.errstate(divide="ignore"):
            return self.work / self.min_share

    def value(self, completion: Floats) -> float:
        """The sum or the maximum of the costs of these completion times; 0 without jobs."""
        if not len(self):
            return 0.0
        costs = self.costs.at(completion)
        return float(costs.max() if self.aggregate == "max" else costs.sum())


def _refuse(name: str, values: Floats, good: object, remedy: str, finite: bool = True) -> None:
    fine = np.asarray(good) & (np.isfinite(values) if finite else ~np.isnan(values))
    if not fine.all():
        at = int(np.argmin(fine))
        raise InputError(f"{name}[{at}] is {values[at]}; give {remedy}")
