"""Which code is kept beside a readable form of the same: processor time of the two, as ratios.

Each line compares a special form with the readable one for 1,000 and for 10,000 jobs: the
readable one is measured before the special one in each of three rounds, and the median of the
ratios is printed. A form that is not done within a limit of processor time shows a ratio that
is at least so much. The linear programs of the price bound are compared with HiGHS (scipy).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, cast

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

import bounds
import flex
from dmrs import draw
from experiments.flowflex.generator import FlowGenerator
from measuring import best_of
from slotwise.core.cluster import Cluster
from slotwise.core.costs import Floats
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.schedule import Schedule
from slotwise.policy.allocator import Allocator, Claims
from slotwise.policy.bounds.interior import best_prices
from slotwise.policy.bounds.prices import GAP, STEPS, choices_of
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.fair import Fair, Fifo
from slotwise.policy.flowflex.allocator import whole_flows
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.paper import by_deadline
from slotwise.policy.fluid import fluid_schedule, progress_of
from slotwise.policy.fluid_fair import fair_schedule
from slotwise.policy.packing import Packer
from slotwise.policy.planning import fifo_schedule, plain_claims
from slotwise.policy.reservations_compiled import _by_arrays, _compiled
from slotwise.policy.search.orders import by_area

SIZES = (1_000, 10_000)
ROUNDS = 3
LIMIT = 60.0
"""Processor seconds after which the readable form of a plan is ended."""

SLOTS = 100

Act = Callable[[], object]
Pair = tuple[Act, Act]
"""The readable form, and the special one."""


def main() -> None:
    chosen = sys.argv[1:]
    print(f"{'readable / special':46}" + "".join(f"{size:>24,}" for size in SIZES))
    for name, pairs in CASES.items():
        if chosen and not any(word in name for word in chosen):
            continue
        print(f"{name:46}", end="")
        for size in SIZES:
            readable, special = pairs(size)
            special()  # Loads machine code.
            print(f"{_ratio(readable, special):>24}", end="", flush=True)
        print()


def _ratio(readable: Act, special: Act) -> str:
    """The median ratio of processor times of some rounds, and the time of the special form."""
    ratios, times, is_ended = [], [], False
    for _ in range(ROUNDS):
        begun = time.process_time()
        try:
            readable()
        except _Ended:
            is_ended = True
        slow = time.process_time() - begun
        few = best_of(special, 1, min(0.2, slow), time.process_time)
        ratios.append(slow / few)
        times.append(few)
        if is_ended:
            break
    sign = "> " if is_ended else ""
    return f"{sign}{median(ratios):.1f} x {median(times) * 1e3:.2f} ms"


class _Ended(Exception):
    """The readable form took too long."""


class _Until:
    """An allocator that ends a plan at a limit of processor time."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator, self._end = allocator, time.process_time() + LIMIT

    def __getattr__(self, name: str) -> object:
        return getattr(self._allocator, name)

    def share(self, claims: Claims) -> list[float]:
        if time.process_time() > self._end:
            raise _Ended
        return list(self._allocator.share(claims))


def ending(allocator: Allocator) -> Allocator:
    return cast(Allocator, _Until(allocator))


# The cases.


def packing(count: int) -> Pair:
    claims = flex.generate(count)
    order = flex.contended_first(claims, claims.weight)
    numbers = claims.capacity, claims.work, claims.min_share, claims.max_share
    slow, fast = (Packer(*numbers, is_fast=is_fast) for is_fast in (False, True))
    return partial(slow.pieces, order), partial(fast.pieces, order)


def promises(count: int) -> Pair:
    problem = bounds.generate(count, "sla", "sum", 0.25, 0)
    order = by_area(problem)
    return partial(_by_arrays(problem), order), partial(_compiled(problem), order)


def flows(count: int) -> Pair:
    phases = {"phases_least": 5, "phases_most": 5}
    drawn = FlowGenerator(count, count, slots=SLOTS, **phases)
    jobs = drawn.draw(np.random.default_rng(count))
    problem = whole_flows(jobs, Cluster.of_slots(SLOTS), Objective())[0]
    ranking = by_deadline(problem, problem.alone)
    slow, fast = (PhaseLister(problem, is_fast=is_fast) for is_fast in (False, True))
    return partial(slow.ends, ranking), partial(fast.ends, ranking)


def machines(count: int) -> Pair:
    problem = draw(count, 16, 4, 20, "together", 1)
    order = np.argsort(problem.work / problem.weight, kind="stable")
    listers = []
    for is_fast in (False, True):
        lister = TaskLister(problem, 1e9)
        if not is_fast:
            lister._is_fast = False
            lister._numbers = [numbers.tolist() for numbers in lister._numbers]
        listers.append(lister)
    ways = (partial(one._computed, order, False, np.zeros(one._stages)) for one in listers)
    return next(ways), next(ways)


def plan_jobs(count: int) -> list[Job]:
    rng = np.random.default_rng(1)
    return [
        Job(
            f"j{n}",
            (Phase("p", Tasks(int(rng.integers(1, 50)), float(rng.uniform(0.5, 2)))),),
            weight=float(rng.choice([0.5, 1.0, 2.0])),
        )
        for n in range(count)
    ]


def fair_plan(count: int) -> Pair:
    jobs, cluster, pools = (
        plan_jobs(count),
        Cluster.of_slots(SLOTS),
        PoolTree([Pool("default")]),
    )

    def special() -> Schedule:
        claims = plain_claims(jobs, cluster, pools)
        assert claims is not None
        return fair_schedule([progress_of(job, phase) for job, phase in claims.owner], claims)

    return lambda: fluid_schedule(jobs, cluster, pools, ending(Fair())), special


def fifo_plan(count: int) -> Pair:
    jobs, cluster, pools = (
        plan_jobs(count),
        Cluster.of_slots(SLOTS),
        PoolTree([Pool("default")]),
    )
    return (
        lambda: fluid_schedule(jobs, cluster, pools, ending(Fifo())),
        partial(fifo_schedule, jobs, cluster),
    )


def prices(metric: str, count: int) -> Pair:
    problem = bounds.generate(count, metric, "sum", 0.25, 0)
    choices = choices_of(bounds.jobs_of(problem), problem.capacity)
    assert choices is not None
    numbers = choices.cost, choices.needs, choices.room
    own = partial(best_prices, *numbers, choices.scale, STEPS, GAP)
    return partial(by_highs, *numbers), own


def by_highs(costs: Floats, needs: Floats, room: Floats) -> Any:
    """The same linear program by HiGHS: the parts of the options, within the room."""
    jobs, options, kinds = needs.shape
    count = jobs * options
    matrix = csr_array(needs.reshape(count, kinds).T)
    one = csr_array(
        (np.ones(count), (np.repeat(np.arange(jobs), options), np.arange(count))),
        shape=(jobs, count),
    )
    return linprog(
        costs.ravel(), A_ub=matrix, b_ub=room, A_eq=one, b_eq=np.ones(jobs), method="highs-ipm"
    )


CASES: dict[str, Callable[[int], Pair]] = {
    "packing: Python, machine code": packing,
    "due dates: arrays, machine code": promises,
    "flows: Python, machine code": flows,
    "machines: Python, machine code": machines,
    "plan by FAIR: all changes, slices": fair_plan,
    "plan by FIFO: all changes, events": fifo_plan,
    "prices of response: HiGHS, own": partial(prices, "response"),
    "prices of SLA: HiGHS, own": partial(prices, "sla"),
}


if __name__ == "__main__":
    main()
