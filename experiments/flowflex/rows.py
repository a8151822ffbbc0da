"""Rows of the figures of FlowFlex."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowRow:
    """The results of all experiments by one metric, for one scheme.

    mean, worst, least  of the ratios of its value to the bound
    deviation           of that sample of ratios, 0 for a single experiment
    added               to value and bound: 0 or 1
    proven              experiments in which its value is proven to be the optimum
    behind              those in which it is above the value of the paper's method alone
    nothing             those in which the bound is 0
    """

    metric: str
    scheme: str
    mean: float
    worst: float
    least: float
    deviation: float
    added: float
    proven: int
    behind: int
    nothing: int
    experiments: int


@dataclass(frozen=True, slots=True)
class FlowClusterRow:
    """A metric of FlowFlex, planning for it, and of the others: means over the sets of flows.

    better_S          the reduction of the mean by FlowFlex, relative to that of scheme S
    better_S_least    the same in the set in which it is least; below, where it is most
    """

    arrivals: str
    metric: str
    sets: int
    flowflex: float
    fair: float
    fifo: float
    better_fair: float
    better_fair_least: float
    better_fair_most: float
    better_fifo: float
    better_fifo_least: float
    better_fifo_most: float
