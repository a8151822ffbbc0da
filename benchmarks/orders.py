"""The quality of the orders of FLEX before any search, for weighted response.

The value of each order over that of plain area (Smith's rule on the squashed area), mean over
problems: jobs as in FLEX 4.1, with weights and with those of stretch, and jobs whose max
shares are independent of their work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import fmean

from slotwise.core.objective import Line
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import completions
from slotwise.policy.search.orders import by_area, by_contended_area, by_height

SIZES = (10, 50, 200)
PROBLEMS = 12
ORDERS = {"contended area": by_contended_area, "height": by_height}


def main() -> None:
    print(f"Weighted response by that of plain area, mean of {PROBLEMS} problems")
    print(f"{'jobs':32} {'number':>7} " + " ".join(f"{name:>10}" for name in ORDERS))
    for kind, generate in GENERATORS.items():
        for count in SIZES:
            problems = [generate(random.Random(seed), count) for seed in range(PROBLEMS)]
            ratios = (
                fmean(value(p, order(p)) / value(p, by_area(p)) for p in problems)
                for order in ORDERS.values()
            )
            print(f"{kind:32} {count:7} " + " ".join(f"{ratio:10.4f}" for ratio in ratios))


def value(problem: Malleable, order: list[int]) -> float:
    ends = completions(
        problem.capacity, problem.work, problem.min_share, problem.max_share, order
    )
    return problem.value(ends)


def of_the_paper(rng: random.Random, count: int, by_stretch: bool = False) -> Malleable:
    """80 % small jobs and 20 % ten times larger, tasks of 2, 5 or 20 seconds."""
    work = [
        max(1.0, rng.gauss(m, m / 3)) for m in rng.choices((100, 1000), (0.8, 0.2), k=count)
    ]
    max_share = [max(1.0, amount // rng.choice((2, 5, 20))) for amount in work]
    min_share = [float(min(top, rng.choice((0, 1, 2, 3)))) for top in max_share]
    weight = [1 / amount if by_stretch else rng.uniform(0.05, 1) for amount in work]
    return Malleable.of(10 * count, work, min_share, max_share, [Line(w) for w in weight])


def of_any_shape(rng: random.Random, count: int) -> Malleable:
    """Work of 2.5 to 200 seconds, 1 to 10 slots at most, half a slot for each job."""
    work = [rng.choice((5, 10, 100)) * rng.uniform(0.5, 2) for _ in range(count)]
    max_share = [float(rng.randint(1, 10)) for _ in work]
    costs = [Line(rng.uniform(0.1, 1)) for _ in work]
    return Malleable.of(count // 2 + 1, work, [0.0] * count, max_share, costs)


GENERATORS: dict[str, Callable[[random.Random, int], Malleable]] = {
    "FLEX 4.1": of_the_paper,
    "FLEX 4.1, stretch": lambda rng, count: of_the_paper(rng, count, by_stretch=True),
    "independent max shares": of_any_shape,
}


if __name__ == "__main__":
    main()
