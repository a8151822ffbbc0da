"""The base case of FLEX, Fig. 5, by random seed, and by the range of its deadlines.

First the ratios of FIFO and FAIR to the better of two orders (area and least time alone) over
many seeds; then metrics with deadlines by the latest deadline, as a fraction of the time that
all work takes, relative to the best order of all.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np

from experiments.flex.best_order import best_order
from experiments.flex.experiment import (
    MEAN_RESPONSE,
    Metric,
    fair_completion,
    fifo_completion,
    problem_of,
)
from slotwise.policy.packing import completions
from slotwise.policy.search.orders import by_area, by_height
from slotwise.workload.generators import FlexGenerator

SEEDS = 40
RUNS = 100
RANGES = (0.5, 1.0, 2.0)
METRICS = (
    Metric("tardy jobs", "tardy"),
    Metric("mean tardiness", "tardiness"),
    Metric("max lateness", "lateness", "max"),
    Metric("SLA cost", "sla"),
)


def main() -> None:
    print(f"Base case, {SEEDS} seeds of {RUNS} experiments: least to greatest")
    ratios = np.array([[base_case(seed, run) for run in range(RUNS)] for seed in range(SEEDS)])
    for scheme, name in enumerate(("FIFO", "FAIR")):
        means, worst = ratios[:, :, scheme].mean(axis=1), ratios[:, :, scheme].max(axis=1)
        print(
            f"{name}: mean {means.min():.3f} to {means.max():.3f}, in all {means.mean():.3f};"
            f" worst {worst.min():.2f} to {worst.max():.2f};"
            f" deviation of one experiment {ratios[:, :, scheme].std():.2f}"
        )
    print(
        f"\nDeadlines up to a multiple of the time of all work, {RUNS} experiments: FIFO, FAIR"
    )
    for metric in METRICS:
        cells = (by_range(metric, latest) for latest in RANGES)
        print(f"{metric.name:16}", "  ".join(cells))


def base_case(seed: int, run: int) -> tuple[float, float]:
    drawn = FlexGenerator().draw(np.random.default_rng([seed, run]))
    problem = problem_of(drawn, MEAN_RESPONSE)
    numbers = (problem.capacity, problem.work, problem.min_share, problem.max_share)
    best = min(
        problem.value(completions(*numbers, order(problem))) for order in (by_area, by_height)
    )
    schemes = (fifo_completion(problem), fair_completion(problem))
    fifo, fair = (problem.value(completion) / best for completion in schemes)
    return fifo, fair


def by_range(metric: Metric, latest: float) -> str:
    """Mean ratios of FIFO and FAIR to the best order, where that is above 0."""
    base = FlexGenerator()
    generator = replace(base, deadline_most=latest * base.deadline_most)
    ratios = []
    for run in range(RUNS):
        problem = problem_of(generator.draw(np.random.default_rng([0, run])), metric)
        best = best_order(problem)[1]
        if best > 0:
            schemes = (fifo_completion(problem), fair_completion(problem))
            ratios.append([problem.value(completion) / best for completion in schemes])
    fifo, fair = (fmean(column) for column in zip(*ratios, strict=True))
    return f"{latest:g}: {fifo:.2f}, {fair:.2f} ({RUNS - len(ratios)} ignored)"


if __name__ == "__main__":
    main()
