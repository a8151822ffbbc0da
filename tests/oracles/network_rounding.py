"""How far the cheapest flow of a network of whole units is from that of the exact network."""

from __future__ import annotations

import numpy as np

from slotwise.core.costs import Floats
from slotwise.policy.flowflex.flows import FlowProblem
from slotwise.policy.flowflex.paper import LeastCost

NEAR = 1e-9
"""The relative error of times and costs."""


def rounding(problem: FlowProblem, network: LeastCost) -> float:
    """The effect of whole units of work and cost on the value of the network."""
    highest = (
        problem.costs.at(np.maximum(network.ends[-1], problem.alone)) - base(problem)
    ).max()
    units = problem.volume.sum() / problem.volume
    return highest * (float(units.max()) * 2.0**-28 + len(problem) * 2.0**-29) + NEAR * abs(
        network.bound
    )


def base(problem: FlowProblem) -> Floats:
    """The minimum cost of each flow."""
    return problem.costs.at(problem.alone)
