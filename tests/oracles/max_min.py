"""Max-min fair rates by linear programmes, one level after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

CLOSE = 1e-7


def max_min_rates(paths: Sequence[Sequence[int]], capacity: Sequence[float]) -> list[float]:
    """The rates of which the least is as great as can be, then the next one, and so on.

    Each flow passes some link. The smallest rate of the unsettled flows is raised; a flow that
    cannot have more while the others have that much is settled.
    """
    count = len(paths)
    uses = np.zeros((len(capacity), count))
    for flow, path in enumerate(paths):
        uses[list(path), flow] = 1.0
    settled: dict[int, float] = {}
    while len(settled) < count:
        level = _greatest_level(uses, capacity, settled)
        rates_min = [settled.get(flow, level) for flow in range(count)]
        for flow in range(count):
            if flow not in settled and _most(uses, capacity, rates_min, flow) <= level + CLOSE:
                settled[flow] = level
    return [settled[flow] for flow in range(count)]


def _greatest_level(
    uses: np.ndarray, capacity: Sequence[float], settled: dict[int, float]
) -> float:
    """The greatest rate that all flows that are not settled can have."""
    links, count = uses.shape
    rows = np.hstack([uses, np.zeros((links, 1))])
    bounds = [(settled.get(f, 0.0), settled.get(f)) for f in range(count)] + [(0.0, None)]
    below = np.zeros((0, count + 1))
    for flow in set(range(count)) - settled.keys():
        row = np.zeros((1, count + 1))
        row[0, flow], row[0, -1] = -1.0, 1.0
        below = np.vstack([below, row])
    rows = np.vstack([rows, below])
    limits = [*(c * (1 + 1e-12) for c in capacity), *[0.0] * len(below)]
    solved = linprog([0.0] * count + [-1.0], rows, limits, bounds=bounds)
    assert solved.success, solved.message
    return float(-solved.fun)


def _most(
    uses: np.ndarray, capacity: Sequence[float], rates_min: Sequence[float], flow: int
) -> float:
    """The most that a flow can have while all have at least so much."""
    goal = np.zeros(len(rates_min))
    goal[flow] = -1.0
    limits = [c * (1 + 1e-9) for c in capacity]
    solved = linprog(
        goal, uses, limits, bounds=[(value * (1 - 1e-9), None) for value in rates_min]
    )
    assert solved.success, solved.message
    return float(-solved.fun)
