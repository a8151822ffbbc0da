"""The time of the resource allocation problem of FLEX 3.2, by solver.

First the sum of convex costs, weight * work / units, then the greatest of them, as ratios to
Frederickson and Johnson's selection in the same run. Then the resulting orders, with the
dynamic programme where it is fast enough, and their quality compared with other orders. Goals
for the generic order with convex costs: 2 ms at 10 jobs on 100 slots, 10 ms at 172 on 1,000,
100 ms at 1,000 on 10,000.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations, product

import numpy as np

from oracles.lowest_level import lowest_level
from slotwise.core.objective import Aggregate, Cost, Hinge, Line, Steps
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import pack
from slotwise.policy.rap import (
    Gains,
    dynamic_programme,
    fox,
    frederickson_johnson,
    galil_megiddo,
    is_convex,
    minimax_gains,
    minisum_gains,
)
from slotwise.policy.search.orders import Moldable, generic_order

SIZES = ((10, 100), (172, 1_000), (1_000, 10_000), (10_000, 100_000), (10_000, 1_000))
KINDS = ("response", "tardiness", "tardy", "SLA")
AGGREGATES: tuple[Aggregate, Aggregate] = ("sum", "max")
MAX_PROGRAMME = 200_000_000  # The largest J S^2 for which the dynamic programme is run.


def main() -> None:
    solvers()
    print()
    orders()
    print()
    quality()


def solvers() -> None:
    columns = ("FJ", "GM / FJ", "Fox / FJ", "DP / FJ", "check / FJ", "max: FJ", "levels / FJ")
    print(f"{'jobs':>7} {'slots':>8} " + " ".join(f"{column:>12}" for column in columns))
    for count, slots in SIZES:
        resources = Moldable.of(generate(count, slots, "response")).resources
        gains, greatest = minisum_gains(resources), minimax_gains(resources)
        fast = best_of(partial(frederickson_johnson, gains))
        ratios = [best_of(partial(act, gains)) / fast for act in (galil_megiddo, fox)]
        if count * resources.slack**2 <= MAX_PROGRAMME:
            ratios.append(best_of(partial(dynamic_programme, resources)) / fast)
        else:
            ratios.append(float("nan"))
        ratios.append(best_of(partial(is_convex, resources)) / fast)
        level = best_of(partial(frederickson_johnson, greatest))
        line = f"{count:7} {slots:8} {fast * 1e3:9.2f} ms "
        line += " ".join(f"{ratio:12.1f}" for ratio in ratios)
        line += (
            f" {level * 1e3:9.2f} ms {best_of(partial(lowest_level, resources)) / level:12.1f}"
        )
        print(
            line,
            f"  gains looked at: {looked_at(gains) / bound(count, gains.units):.1f} x bound",
        )


def orders() -> None:
    print("generic order, sum and maximum:")
    print(f"{'jobs':>7} {'slots':>8} " + " ".join(f"{kind:>21}" for kind in KINDS))
    for count, slots in SIZES:
        cells = []
        for kind, aggregate in product(KINDS, AGGREGATES):
            problem = generate(count, slots, kind, aggregate)
            cells.append(f"{best_of(partial(generic_order, problem)) * 1e3:7.2f} ms")
        print(f"{count:7} {slots:8}  " + "  ".join(cells))


def quality(problems: int = 40, count: int = 6, slots: int = 40) -> None:
    """The generic order and the shortest work first, compared with the best of all orders."""
    print(f"value by the packing scheme, {problems} problems of {count} jobs on {slots} slots:")
    for kind, aggregate in product(KINDS, AGGREGATES):
        totals = np.zeros(4)
        for seed in range(problems):
            problem = generate(count, slots, kind, aggregate, seed)
            values = [packed(problem, order) for order in permutations(range(count))]
            totals += (
                min(values),
                packed(problem, generic_order(problem)),
                packed(problem, np.argsort(problem.work).tolist()),
                np.mean(values),
            )
        generic, shortest, mean = totals[1:] / totals[0]
        print(
            f"{kind:>10} {aggregate}: generic {generic:.3f} x best order,"
            f" shortest first {shortest:.3f} x, mean of all orders {mean:.2f} x"
        )


def packed(problem: Malleable, order: Sequence[int]) -> float:
    """The value of an order under the packing scheme."""
    shares = (problem.work.tolist(), problem.min_share.tolist(), problem.max_share.tolist())
    pieces = pack(problem.capacity, *shares, order)
    return problem.value(np.array([of_job[-1][1] for of_job in pieces]))


def looked_at(gains: Gains) -> int:
    """The number of gains that Frederickson and Johnson's selection examines."""
    asked = 0

    def gain(jobs: np.ndarray, given: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(jobs)
        return gains.gain(jobs, given)

    frederickson_johnson(Gains(gains.units, gains.room, gain))
    return asked


def bound(jobs: int, units: int) -> float:
    """max(J, J log2(S / J))."""
    return max(jobs, jobs * float(np.log2(max(1.0, units / jobs))))


def generate(
    count: int, slots: int, kind: str, aggregate: Aggregate = "sum", seed: int = 0
) -> Malleable:
    """Jobs as in FLEX 4.1: 80 % small and 20 % ten times larger, slack 75 %."""
    random = np.random.default_rng(seed)
    mean = np.where(random.random(count) < 0.8, 100.0, 1000.0)
    work = np.maximum(random.normal(mean, mean / 3), 1.0)
    max_share = np.clip(np.floor(work / 5), 1, slots)
    min_share = np.minimum(max_share, random.integers(0, slots // (2 * count) + 1, count))
    weight = random.uniform(0.1, 1, count)
    due = random.uniform(0, 2 * work.sum() / slots, count)

    def cost(j: int) -> Cost:
        slope, instant = float(weight[j]), float(due[j])
        match kind:
            case "response":
                return Line(slope)
            case "tardiness":
                return Hinge(slope, instant)
            case "tardy":
                return Steps(((instant, slope),))
            case _:
                return Steps(tuple((instant * part, slope * part) for part in (0.5, 1, 2)))

    return Malleable.of(
        slots, work, min_share, max_share, [cost(j) for j in range(count)], aggregate
    )


def best_of(act: Callable[[], object], seconds: float = 0.3) -> float:
    """The shortest of the runs that fit into a third of a second, at least two."""
    best, begun, runs = float("inf"), time.perf_counter(), 0
    while runs < 2 or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


if __name__ == "__main__":
    main()
