"""The time of the exact least largest cost: due dates alone, and with their slots.

It is compared with HiGHS (scipy, extra `test`) on maximum lateness: there, jobs complete in the
order of their due dates for any lateness, so it is one linear program of J (J + 1) / 2
variables and as many rows. At 172 jobs that is 15,000; at 1,000 half a million.

Quote the ratios of one run; milliseconds depend on the machine and its load.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np

from check import COUNTED, Result, serve
from measuring import LOOP, in_yardsticks, yardsticks
from slotwise.core.objective import Line
from slotwise.policy.due_dates import minimax
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.solve import solve

SIZES = (172, 1_000, 10_000)
MAX_PROGRAM = 172
GOAL = 50.0
"""Milliseconds, at 1,000 jobs."""

REPEATS = 3


def main() -> None:
    print(f"Max lateness, exactly: best of {REPEATS}, in ms; goal {GOAL:.0f} at 1,000 jobs")
    print(f"{'jobs':>8} {'due dates':>11} {'with slots':>11} {'HiGHS':>11}")
    for count in SIZES:
        problem = generate(count)
        value, dates = best_of(lambda problem=problem: problem.value(minimax(problem)))
        _, slots = best_of(lambda problem=problem: solve(problem).value)
        line = f"{count:8} {dates * 1e3:11.1f} {slots * 1e3:11.1f}"
        if count <= MAX_PROGRAM and find_spec("scipy"):
            exact, seconds = by_program(problem)
            line += f" {seconds * 1e3:11.0f}   {seconds / slots:.0f} x; "
            line += f"values differ by {abs(value - exact) / exact:.0e}"
        print(line)


SLOTS = (
    "the due dates take a tenth of it; the rest is the packing that keeps them, which is run"
    " by events for each column of due dates (EXPERIMENTS.md)"
)


def check() -> Iterator[Result]:
    """The exact maximum lateness of 1,000 jobs in 50 ms, and by HiGHS at 172."""
    problem = generate(1_000)
    minimax(problem)
    value = in_yardsticks(lambda: minimax(problem))
    yield Result("due dates of 1,000 jobs", value, yardsticks(GOAL), LOOP)
    solve(problem)
    value = in_yardsticks(lambda: solve(problem))
    title = "the same with the slots that keep them"
    yield Result(title, value, yardsticks(GOAL), LOOP, cause=SLOTS)
    problem = generate(MAX_PROGRAM)
    exact, seconds = by_program(problem)
    found, ours = best_of(lambda: solve(problem).value)
    title = f"HiGHS, {MAX_PROGRAM} jobs"
    yield Result(title, seconds / ours, 3.0, "x our time", "higher")
    yield Result("the same value", 100 * abs(found / exact - 1), 1e-6, "% off", noise=COUNTED)


def generate(count: int) -> Malleable:
    """Jobs as in FLEX 4.1, due within the time that all work takes, without min shares."""
    rng = random.Random(count)
    work = []
    for _ in range(count):
        mean = 100.0 if rng.random() < 0.8 else 1000.0
        work.append(max(1.0, rng.gauss(mean, mean / 3)))
    capacity = float(count)
    max_share = [min(capacity, max(1.0, amount // 5)) for amount in work]
    span = sum(work) / capacity
    costs = [Line(1.0, rng.uniform(0, span)) for _ in work]
    return Malleable.of(capacity, work, [0.0] * count, max_share, costs, "max")


def by_program(problem: Malleable) -> tuple[float, float]:
    """The least maximum lateness L by HiGHS; and its seconds.

    Due dates cut time into columns; L lengthens the first one and no other. Of the job at place
    p, y_pk is done in column k <= p.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    by_due = np.argsort(problem.costs.origin, kind="stable")
    due, work, max_share = (
        v[by_due] for v in (problem.costs.origin, problem.work, problem.max_share)
    )
    count = len(due)
    lengths = np.diff(due, prepend=0.0)
    place, column = np.tril_indices(count)
    pairs = len(place)
    y, first = np.arange(pairs), column == 0
    under = csr_array(
        (
            np.concatenate((np.ones(2 * pairs), -max_share[place[first]], [-problem.capacity])),
            (
                np.concatenate((y, pairs + column, y[first], [pairs])),
                np.concatenate((y, y, np.full(first.sum(), pairs), [pairs])),
            ),
        ),
        shape=(pairs + count, pairs + 1),
    )
    room = np.concatenate((max_share[place] * lengths[column], problem.capacity * lengths))
    done = csr_array((np.ones(pairs), (place, y)), shape=(count, pairs + 1))
    cost = np.zeros(pairs + 1)
    cost[-1] = 1.0
    free = [(0, None)] * pairs + [(-float(due[0]), None)]
    start = time.perf_counter()
    found = linprog(cost, under, room, done, work, free, method="highs")
    return found.fun, time.perf_counter() - start


def best_of(act: Callable[[], float]) -> tuple[float, float]:
    """The result of an action, and the shortest of its times."""
    best, value = float("inf"), 0.0
    for _ in range(REPEATS):
        start = time.perf_counter()
        value = act()
        best = min(best, time.perf_counter() - start)
    return value, best


if __name__ == "__main__":
    serve(main, check)
