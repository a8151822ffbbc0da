"""DMRS: seconds for its linear program and for HiGHS, for whole plans, and gains of search.

Jobs of maps and reduces on fast and slow machines, as in DMRS VI: two groups of releases,
weights from 1 to 5. HiGHS solves the same program with a variable for each pair of jobs, which
is equivalent to the inequalities of all sets; above 200 jobs these are too many for it. With
--quick the schedulers are not compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from math import inf, isfinite, nan
from typing import TypeVar

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from check import COUNTED, Result, serve
from measuring import LOOP, in_yardsticks, yardsticks
from slotwise.policy.dmrs.algorithm import by_completion, guarantee, linear_program, skewness
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.dmrs.planning import PLANNERS
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage
from slotwise.policy.search.budget import Budget

RELEASES = ("together", "two groups", "spread")
HIGHS_UP_TO = 200
HIGHS_SECONDS = 30.0

Found = TypeVar("Found")


def main() -> None:
    programs()
    plans()
    if "--quick" not in sys.argv:
        schedulers()


def check() -> Iterator[Result]:
    """The linear program in 1, 10 and 1,000 ms, beside HiGHS, and a whole plan in 1 s."""
    for jobs, goal in ((200, 1.0), (2_000, 10.0), (20_000, 1_000.0)):
        for releases in ("two groups", "spread"):
            problem = draw(jobs, 16, 4, 20, releases, jobs)

            def solve(problem: RelatedMachines = problem) -> float:
                fresh = RelatedMachines(problem.speed, problem.jobs)
                return linear_program(fresh, with_tails=False).value

            best_of(solve, 1)
            value = in_yardsticks(solve)
            title = f"program of {jobs:,} jobs, {releases}"
            cause = ARRAYS if jobs < 20_000 else ""
            yield Result(title, value, yardsticks(goal), LOOP, cause=cause)
    problem = draw(200, 16, 4, 20, "two groups", 200)
    ours, value = best_of(lambda: linear_program(problem, with_tails=False).value)
    spent, found = best_of(lambda: by_highs(problem), 1)
    yield Result("HiGHS, 200 jobs", spent / ours, 20.0, "x our time", "higher")
    yield Result("the same value", 100 * abs(found / value - 1), 1e-6, "% off", noise=COUNTED)
    problem = draw(1000, 90, 10, 200, "two groups", 1)

    def whole() -> None:
        fresh = RelatedMachines(problem.speed, problem.jobs)
        order = by_completion(linear_program(fresh).completion)
        TaskLister(fresh).runs(order, True)

    whole()
    title = "a plan of 1,000 jobs of 100 tasks"
    yield Result(title, in_yardsticks(whole, 3), yardsticks(1_000), LOOP)


ARRAYS = (
    "Python makes arrays of the tasks of all jobs: 40 % of the time at 200 jobs, where the rest"
    " is compiled code, and 72 % at 2,000"
)


def draw(
    jobs: int, maps: int, reduces: int, machines: int, releases: str, seed: int
) -> RelatedMachines:
    """Half of the machines are fast; tasks spread by half around a mean of 60 s a map."""
    rng = np.random.default_rng(seed)
    speed = np.where(np.arange(machines) % 2, 0.25, 1.0)

    def job(release: float) -> NumericJob:
        size = rng.choice([0.5, 1.0, 2.0])
        return NumericJob(
            (
                Stage(size * rng.uniform(30, 90, maps)),
                Stage(size * rng.uniform(60, 180, reduces), (0,)),
            ),
            release,
            float(rng.integers(1, 6)),
        )

    length = jobs * (60 * maps + 120 * reduces) * 7 / 6 / speed.sum()
    match releases:
        case "together":
            at = np.zeros(jobs)
        case "two groups":
            at = np.where(np.arange(jobs) % 2, length / 4, 0.0)
        case _:
            at = rng.uniform(0, length, jobs)
    return RelatedMachines(speed, [job(float(release)) for release in at])


def programs() -> None:
    """Each problem is new to the program, so its cached values are computed again."""
    print("The linear program, milliseconds (goals: 1, 10, 1000)")
    print(f"{'jobs':>6} {'releases':>11} {'ours':>9} {'HiGHS':>10} {'ratio':>8} {'differs':>9}")
    for jobs in (50, 200, 2000, 20000):
        for releases in RELEASES:
            problem = draw(jobs, 16, 4, 20, releases, jobs)

            def solve(problem: RelatedMachines = problem) -> float:
                fresh = RelatedMachines(problem.speed, problem.jobs)
                return linear_program(fresh, with_tails=False).value

            ours, value = best_of(solve)
            line = f"{jobs:6} {releases:>11} {ours * 1e3:9.2f} "
            if jobs <= HIGHS_UP_TO:
                spent, found = best_of(lambda p=problem: by_highs(p), 1)
                if isfinite(found):
                    differs = abs(found / value - 1)
                    line += f"{spent * 1e3:10.0f} {spent / ours:8.0f} {differs:9.0e}"
                else:
                    line += f"{'> ' + format(spent * 1e3, '.0f'):>10}"
            print(line, flush=True)


def by_highs(problem: RelatedMachines) -> float:
    """The value of the same program, with its 2^N inequalities expressed by N rows.

    Each pair of jobs divides their mutual delay: x and 1 - x of P_i P_j / mu. Then

        P_j C_j >= A_j + P_j^2 / (2 mu) + sum over the others i of x_ij P_i P_j / mu

    added up over a set gives (2), and each C that keeps (2) has such shares, since a
    supermodular function's inequalities are those of its orders, mixed.
    """
    work, mu = problem.work, float(problem.speed.sum())
    at_once = np.array([max(len(stage.work) for stage in job.stages) for job in problem.jobs])
    alone = work**2 / (2 * problem.rate(at_once))
    fastest = float(problem.speed.max())

    def soonest(job: NumericJob) -> float:
        rates = problem.rate(np.array([len(stage.work) for stage in job.stages]))
        stages = zip(job.stages, rates.tolist(), strict=True)
        return job.release + sum(
            max(float(stage.work.sum()) / rate, float(stage.work.max()) / fastest)
            for stage, rate in stages
        )

    low = np.array([soonest(job) for job in problem.jobs])
    unit = float(low.max() + work.sum() / mu)
    jobs = len(work)
    one, other = np.triu_indices(jobs, 1)
    pairs = np.arange(len(one)) + jobs
    # C_j - sum of x P_i / mu >= ...: x delays the second job of a pair, 1 - x the first.
    rows = np.concatenate([np.arange(jobs), other, one])
    columns = np.concatenate([np.arange(jobs), pairs, pairs])
    entries = np.concatenate([np.full(jobs, unit), -work[one] / mu, work[other] / mu]) / unit
    at_least = alone / work + work / (2 * mu)
    at_least += np.bincount(one, weights=work[other] / mu, minlength=jobs)
    found = linprog(
        np.concatenate([problem.weight, np.zeros(len(one))]),
        A_ub=-coo_array((entries, (rows, columns)), shape=(jobs, jobs + len(one))).tocsr(),
        b_ub=-at_least / unit,
        bounds=np.column_stack(
            [
                np.r_[low / unit, np.zeros(len(one))],
                np.r_[np.full(jobs, inf), np.ones(len(one))],
            ]
        ),
        method="highs",
        options={"time_limit": HIGHS_SECONDS},
    )
    return float(found.fun * unit) if found.status == 0 else nan


def plans() -> None:
    """Program, order and all runs; the first line includes loading the machine code."""
    print("\nA whole plan, seconds (goal: under 1): 1,000 jobs of 100 tasks, 200 machines")
    print(f"{'releases':>11} {'gaps':>6} {'seconds':>8} {'value / bound':>14} {'at most':>8}")
    for releases in RELEASES:
        for fills in (False, True):
            problem = draw(1000, 90, 10, 200, releases, 1)
            begun = time.perf_counter()
            program = linear_program(problem)
            runs = TaskLister(problem).runs(by_completion(program.completion), fills)
            spent = time.perf_counter() - begun
            ratio = problem.value(runs.completion) / program.value
            filled = "filled" if fills else "left"
            line = f"{releases:>11} {filled:>6} {spent:8.2f} {ratio:14.3f}"
            print(f"{line} {guarantee(problem):8.2f}", flush=True)


def schedulers() -> None:
    """Means of value over bound; the searches have 500 steps."""
    print("\nMean of value over bound, of 20 problems each (search: 500 steps)")
    print(f"{'jobs':>5} {'maps':>5} {'machines':>8} {'releases':>11} {'D':>5}", end="")
    print("".join(f"{name:>18}" for name in PLANNERS))
    for jobs, maps, machines in ((20, 16, 10), (20, 16, 40), (100, 16, 40), (20, 4, 10)):
        for releases in RELEASES[:2]:
            ratios: dict[str, list[float]] = {name: [] for name in PLANNERS}
            skew = []
            for seed in range(20):
                problem = draw(jobs, maps, 4, machines, releases, seed)
                bound = linear_program(problem).value
                skew.append(skewness(problem))
                for name, found in ratios.items():
                    runs = PLANNERS[name](problem, Budget(500))
                    found.append(problem.value(runs.completion) / bound)
            means = "".join(f"{np.mean(found):18.4f}" for found in ratios.values())
            line = f"{jobs:5} {maps:5} {machines:8} {releases:>11} {np.mean(skew):5.1f}"
            print(line + means, flush=True)


def best_of(act: Callable[[], Found], runs: int = 5) -> tuple[float, Found]:
    """The shortest of some runs, seconds, and its result."""
    best = inf
    for _ in range(runs):
        begun = time.perf_counter()
        found = act()
        best = min(best, time.perf_counter() - begun)
    return best, found


if __name__ == "__main__":
    serve(main, check)
