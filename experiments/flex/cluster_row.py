"""A row of the figures of FLEX on a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """Mean responses of a point in minutes: means and deviations over its experiments.

    better        the reduction of the mean response by FLEX, relative to FAIR's
    better_least  the same in the experiment in which it is least; below, where it is most
    """

    panel: str
    x: float
    experiments: int
    fair: float
    fair_deviation: float
    flex: float
    flex_deviation: float
    better: float
    better_least: float
    better_most: float
