"""The distance of the bounds from the best known values, and their computing times.

Jobs as in FLEX 4.1: 80 % small and 20 % ten times larger. Each bound is compared with the best
schedule that FLEX finds; the optimum lies between the two. Without min shares, and with min
shares that take a quarter of the slots. Then seconds for jobs that are DAGs of phases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from math import inf

import numpy as np

from check import COUNTED, Result, serve
from experiments.flowflex.generator import FlowGenerator
from measuring import best_of
from slotwise.core.cluster import Cluster
from slotwise.core.objective import Aggregate, Cost, Hinge, Line, Objective, Steps
from slotwise.insight.bound import Work, objective_bound
from slotwise.policy.bounds import (
    BoundJobs,
    busy_time_bound,
    caps_bound,
    due_date_bound,
    height_bound_sum,
    lower_bound,
    price_bound,
)
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.solve import solve

SLOTS_A_JOB = 10
METRICS = (
    ("response", "sum"),
    ("stretch", "sum"),
    ("tardiness", "sum"),
    ("tardy", "sum"),
    ("sla", "sum"),
    ("response", "max"),
    ("tardiness", "max"),
    ("sla", "max"),
)


def main() -> None:
    print("Best known over bound, of the sums of all problems and the worst of them")
    print(f"{'':>18} {'8 jobs':>9} {'worst':>7} {'least':>9} {'worst':>7}", end=" ")
    print(f"{'100 jobs':>9} {'worst':>7} {'least':>9} {'worst':>7}")
    for metric, aggregate in METRICS:
        line = f"{aggregate} of {metric:>11}"
        for jobs, problems in ((8, 20), (100, 3)):
            for part in (0.0, 0.25):
                mean, worst = quality(metric, aggregate, jobs, part, problems)
                line += f" {mean:9.4f} {worst:7.3f}"
        print(line, flush=True)
    print("\nMilliseconds a bound, with min shares")
    print(f"{'jobs':>6}" + "".join(f"{name:>12}" for name in BOUNDS))
    for jobs in (10, 100, 1000):
        print(f"{jobs:6}" + "".join(f"{spent(bound, jobs):12.2f}" for bound in BOUNDS.values()))
    of_flows()


def check() -> Iterator[Result]:
    """The distance of values from their bounds at 1,000 jobs; it bounds that of the optimum."""
    for metric in ("response", "stretch"):
        gap = 100 * (quality(metric, "sum", 1_000, 0.25, 1)[0] - 1)
        name = f"weighted {metric} of 1,000 jobs"
        yield Result(name, gap, 0.2, "% above the lower bound", noise=COUNTED)


def of_flows() -> None:
    """Seconds for jobs that are DAGs of 20 phases each, as in FlowFlex 5.1, on 100 slots."""
    print("\nSeconds a bound, for jobs of 20 phases each")
    print(f"{'jobs':>6}" + "".join(f"{f'{end} of {name}':>18}" for name, end in METRICS))
    cluster = Cluster.of_slots(100)
    for count in (20, 200, 2000):
        drawn = FlowGenerator(count, count, phases_least=20, phases_most=20, slots=100)
        jobs = drawn.draw(np.random.default_rng(0))
        line = f"{count:6}"
        for name, aggregate in METRICS:
            bound = partial(objective_bound, Objective(name, aggregate), jobs, cluster)
            line += f"{best_of(partial(bound, Work.estimated(jobs)), 1):18.3f}"
        print(line, flush=True)


def quality(
    metric: str, aggregate: Aggregate, jobs: int, part: float, problems: int
) -> tuple[float, float]:
    """Best known value over bound: of the sums, and the worst."""
    values, bounds = [], []
    for seed in range(problems):
        problem = generate(jobs, metric, aggregate, part, seed)
        found = solve(problem)
        values.append(found.value)
        bounds.append(lower_bound(jobs_of(problem), problem.capacity, aggregate, found.value))
    worst = max((v / b for v, b in zip(values, bounds, strict=True) if b > 0), default=inf)
    return sum(values) / sum(bounds), worst


def generate(jobs: int, metric: str, aggregate: Aggregate, part: float, seed: int) -> Malleable:
    """A problem whose min shares take a fraction of the slots."""
    rng = random.Random(f"{jobs} {metric} {aggregate} {part} {seed}")
    slots = float(SLOTS_A_JOB * jobs)
    drawn = [truncated(rng, 1.0 if rng.random() < 0.8 else 10.0) for _ in range(jobs)]
    work = [share * 10 * slots / sum(drawn) for share in drawn]
    max_share = [min(slots, max(1.0, round(amount / 3))) for amount in work]
    min_share = [0.0] * jobs
    if part:
        min_share = [min(top, truncated(rng, part * slots / jobs)) for top in max_share]
    costs = [cost(rng, metric, amount) for amount in work]
    return Malleable.of(slots, work, min_share, max_share, costs, aggregate)


def cost(rng: random.Random, metric: str, work: float) -> Cost:
    """With a weight from (0, 1], and deadlines over the time that all work takes."""
    weight = 1 - rng.random()
    match metric:
        case "response":
            return Line(weight)
        case "stretch":
            return Line(1 / work)
        case "tardiness":
            return Hinge(weight, rng.uniform(0, 10))
        case "tardy":
            return Steps(((rng.uniform(0, 10), weight),))
        case _:
            instants = sorted(rng.uniform(0, 12) for _ in range(3))
            fees = sorted(rng.random() for _ in range(3))
            return Steps(tuple(zip(instants, fees, strict=True)))


def truncated(rng: random.Random, mean: float) -> float:
    while (amount := rng.gauss(mean, mean / 3)) <= 0:
        pass
    return amount


def jobs_of(problem: Malleable) -> BoundJobs:
    start = np.zeros(len(problem))
    return BoundJobs.of(
        problem.costs,
        start,
        problem.work,
        problem.max_share,
        problem.heights,
        problem.min_share,
    )


BOUNDS: dict[str, tuple[str, Callable[[BoundJobs, float], float]]] = {
    "height": ("response", lambda jobs, _: height_bound_sum(jobs)),
    "busy time": ("response", busy_time_bound),
    "caps": ("response", caps_bound),
    "prices": ("response", price_bound),
    "of tardiness": ("tardiness", price_bound),
    "of SLA": ("sla", price_bound),
    "due dates": ("response", due_date_bound),
    "max SLA": ("sla", due_date_bound),
}
"""A name, the metric for the timing, and the bound."""


def spent(timed: tuple[str, Callable[[BoundJobs, float], float]], jobs: int) -> float:
    metric, bound = timed
    problem = generate(jobs, metric, "sum", 0.25, 0)
    return best_of(partial(bound, jobs_of(problem), problem.capacity), 5) * 1e3


if __name__ == "__main__":
    serve(main, check)
