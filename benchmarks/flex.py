"""The time of a FLEX decision, for weighted response: ordering, packing, allocation.

A decision is the order (`contended_first`), the whole schedule of the packing scheme in that
order, and the allocation that is applied. It starts from plain lists, as in a scheduler.
The same run measures

- Fig. 3 of the paper line by line instead of the packing by events, where its quadratic time
  allows. The paper reports less than 10 ms at 172 jobs;
- HiGHS (scipy, extra `test`): the linear program of the best schedule of all in which the jobs
  end in the same order, at 172 jobs. It has J (J + 3) / 2 variables and about as many rows:
  ten thousand jobs would have fifty million;
- the exact search for the best order of ten jobs, in Python and compiled;
- the allocation among a thousand equal calls for each objective, beside its plain form.

Quote the ratios of one run; milliseconds depend on the machine and its load.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np

from check import COUNTED, Result, serve
from measuring import LOOP, best_of, in_turn, in_yardsticks, ratio, yardsticks
from oracles.packing_scheme import pack_by_the_book
from oracles.plain_flex import share_plainly
from slotwise.core.cluster import Cluster
from slotwise.core.costs import Floats
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Line, Objective
from slotwise.policy.allocator import Claims
from slotwise.policy.compiled import has_numba
from slotwise.policy.flex import Flex, contended_first
from slotwise.policy.grant import grant
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import COMPILED_FROM, Packer, completions
from slotwise.policy.search.exhaustive import search
from slotwise.policy.search.orders import by_area

GOALS = {172: 1.0, 2_000: 5.0, 10_000: 10.0, 100_000: 100.0}
"""Milliseconds for a decision by phases; the last two with numba."""

MAX_BOOK = 2_000
MAX_PROGRAM = 172
SEARCHES = 20


def main() -> None:
    print("Decision: ordering, packing and allocation, best of several, in ms")
    print(
        f"{'phases':>8} {'goal':>7} {'Python':>9} {'compiled':>9} {'Fig. 3':>9}"
        f" {'HiGHS':>9}   slower alternatives, relative to the form chosen at that size"
    )
    for count, goal in GOALS.items():
        claims = generate(count)
        taken = {"Python": best_of(partial(decide, claims, False), seconds=1.0)}
        if has_numba():
            taken["compiled"] = best_of(partial(decide, claims, True), seconds=1.0)
        ours = taken["compiled" if has_numba() and count >= COMPILED_FROM else "Python"]
        if count <= MAX_BOOK:
            taken["Fig. 3"] = best_of(partial(decide_by_the_book, claims), seconds=1.0)
        remark = ""
        if count <= MAX_PROGRAM and find_spec("scipy"):
            value, taken["HiGHS"] = best_in_order(claims)
            remark = f"; value / HiGHS' value: {value_of(claims) / value:.6f}"
        print(f"{count:8} {goal:7.0f}", *(cell(taken.get(way)) for way in WAYS), end="   ")
        ratios = (f"{way} {t / ours:.0f} x" for way, t in taken.items() if t > ours)
        print(", ".join(ratios) + remark)
    print_searches()
    print_equal_calls()


def check() -> Iterator[Result]:
    """Decisions in yardsticks, beside Fig. 3 and HiGHS, and the plain form of equal calls."""
    for count, goal in GOALS.items():
        claims = generate(count)
        is_fast = has_numba() and count >= COMPILED_FROM
        decide(claims, is_fast)
        value = in_yardsticks(partial(decide, claims, is_fast))
        yield Result(f"a decision about {count:,} phases", value, yardsticks(goal), LOOP)
    claims = generate(172)
    found = in_turn(
        {
            "ours": lambda: best_of(partial(decide, claims, False), 5),
            "Fig. 3": lambda: best_of(partial(decide_by_the_book, claims), 3),
        }
    )
    value = ratio(found, "Fig. 3", "ours")
    yield Result("Fig. 3 line by line, 172 phases", value, 10.0, "x our time", "higher")
    above = 100 * (value_of(claims) / best_in_order(claims)[0] - 1)
    yield Result("weighted response of 172 phases", above, 0.2, "% above HiGHS", noise=COUNTED)
    for penalty in ("slowdown", "tardy", "tardiness", "sla"):
        equal, allocator = equal_calls(100), Flex(Objective(penalty))
        found = in_turn(
            {
                "ours": lambda c=equal, a=allocator: least_ms(partial(a.share, c)),
                "plain": lambda c=equal, a=allocator: least_ms(partial(share_plainly, a, c)),
            },
            1,
        )
        value = ratio(found, "ours", "plain")
        title = f"{penalty} of {CALLS:,} equal calls"
        yield Result(title, value, 1.0, "x the time of the plain form")


WAYS = ("Python", "compiled", "Fig. 3", "HiGHS")


def cell(seconds: float | None) -> str:
    return f"{'-':>9}" if seconds is None else f"{seconds * 1e3:9.2f}"


def generate(count: int) -> Claims:
    """Jobs as in FLEX 4.1: 80 % small and 20 % ten times larger, slack 75 %."""
    rng = random.Random(count)
    capacity = 10 * count
    work, max_share, min_share = [], [], []
    for _ in range(count):
        mean = 100.0 if rng.random() < 0.8 else 1000.0
        amount = -1.0
        while amount <= 0:
            amount = rng.gauss(mean, mean / 3)
        work.append(amount)
        max_share.append(float(max(1, min(capacity, int(amount / 5)))))
        min_share.append(float(min(max_share[-1], rng.choice((2, 2, 3)))))
    weight = [rng.uniform(0.1, 1.0) for _ in range(count)]
    return Claims.of(capacity, work, weight=weight, min_share=min_share, max_share=max_share)


def decide(claims: Claims, is_fast: bool) -> list[float]:
    """The whole schedule, and the slots of each phase now."""
    order = contended_first(claims, claims.weight)
    numbers = claims.capacity, claims.work, claims.min_share, claims.max_share
    Packer(*numbers, is_fast=is_fast).pieces(order)
    return grant(claims, order)


def decide_by_the_book(claims: Claims) -> list[float]:
    """The same by Fig. 3, line by line."""
    order = contended_first(claims, claims.weight)
    pack_by_the_book(claims.capacity, claims.work, claims.min_share, claims.max_share, order)
    return grant(claims, order)


def ends_of(claims: Claims) -> Floats:
    order = contended_first(claims, claims.weight)
    return completions(claims.capacity, claims.work, claims.min_share, claims.max_share, order)


def value_of(claims: Claims) -> float:
    return float(np.dot(claims.weight, ends_of(claims)))


def best_in_order(claims: Claims) -> tuple[float, float]:
    """The least weighted response if jobs end in the order of our schedule; seconds to solve.

    Completions cut time into columns of lengths l_k. Of the job at place p, y_pk is done in
    column k <= p in addition to its min share.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    by_end = np.argsort(ends_of(claims), kind="stable")
    columns = (claims.work, claims.min_share, claims.max_share, claims.weight)
    work, min_share, max_share, weight = (np.asarray(c)[by_end] for c in columns)
    count = len(by_end)
    place, column = np.tril_indices(count)  # of each y; the lengths follow them
    pairs = len(place)
    y, lengths = np.arange(pairs), pairs + np.arange(count)

    def matrix(rows: int, *entries: tuple[Sequence[int], Sequence[int], object]) -> object:
        values = [np.broadcast_to(np.asarray(v, float), np.shape(r)) for r, _, v in entries]
        row, col = (np.concatenate([e[k] for e in entries]) for k in (0, 1))
        return csr_array((np.concatenate(values), (row, col)), shape=(rows, pairs + count))

    from_here = np.cumsum(min_share[::-1])[::-1]
    under = matrix(
        pairs + count,
        (y, y, 1.0),
        (y, lengths[column], -(max_share - min_share)[place]),
        (pairs + column, y, 1.0),
        (lengths, lengths, from_here - claims.capacity),
    )
    done = matrix(count, (place, y, 1.0), (place, lengths[column], min_share[place]))
    cost = np.concatenate((np.zeros(pairs), np.cumsum(weight[::-1])[::-1]))
    start = time.perf_counter()
    found = linprog(cost, under, np.zeros(pairs + count), done, work, method="highs")
    return found.fun, time.perf_counter() - start


def print_searches() -> None:
    """The best order of ten jobs, from Smith's rule on, in Python and compiled."""
    problems = [ten_jobs(seed) for seed in range(SEARCHES)]
    taken = {"Python": mean_of(search, problems)}
    if has_numba():
        from experiments.flex.best_order_compiled import search_compiled

        search_compiled(problems[0], by_area(problems[0]), float("inf"))
        taken["compiled"] = mean_of(search_compiled, problems)
    print(f"\nThe best of all orders of ten jobs, mean of {SEARCHES} problems, in ms")
    print(", ".join(f"{way} {seconds * 1e3:.1f}" for way, seconds in taken.items()), end="")
    if "compiled" in taken:
        print(f": {taken['Python'] / taken['compiled']:.0f} x", end="")
    print()


def ten_jobs(seed: int) -> Malleable:
    """Two large jobs and eight small ones on 100 slots, three quarters of them slack."""
    rng = random.Random(seed)
    work = [max(1.0, rng.gauss(mean, mean / 3)) for mean in [1000.0] * 2 + [100.0] * 8]
    work = [amount * 1000 / sum(work) for amount in work]
    max_share = [min(100.0, max(1.0, round(amount / 2))) for amount in work]
    min_share = [min(m, max(1.0, round(rng.gauss(2.5, 0.8)))) for m in max_share]
    costs = [Line(rng.uniform(0.01, 1)) for _ in work]
    return Malleable.of(100, work, min_share, max_share, costs)


def mean_of(
    way: Callable[[Malleable, list[int], float], list[int]], problems: list[Malleable]
) -> float:
    start = time.perf_counter()
    for problem in problems:
        p, order = problem, by_area(problem)
        ends = completions(p.capacity, p.work, p.min_share, p.max_share, order)
        way(problem, order, problem.value(ends))
    return (time.perf_counter() - start) / len(problems)


def print_equal_calls() -> None:
    """The slots of jobs of one task, and the same in the plain form, which decides the same."""
    print(f"\nAllocation among {CALLS:,} equal jobs of one task, in ms of processor time")
    print(f"{'':10}" + "".join(f"{f'{slots} slots':>10}{'plain':>10}" for slots in CALL_SLOTS))
    for penalty in ("slowdown", "tardy", "tardiness", "sla"):
        print(f"{penalty:10}", end="")
        ratios = []
        for slots in CALL_SLOTS:
            claims, allocator = equal_calls(slots), Flex(Objective(penalty))
            ours = least_ms(partial(allocator.share, claims))
            plain = least_ms(partial(share_plainly, allocator, claims))
            print(f"{ours:10.1f}{plain:10.1f}", end="", flush=True)
            ratios.append(plain / ours)
        print("   plain:", ", ".join(f"{ratio:.1f} x" for ratio in ratios))


CALLS, CALL_SLOTS = 1_000, (2, 100)


def least_ms(act: Callable[[], object]) -> float:
    """The least processor time of three runs, ms."""
    return 1e3 * best_of(act, clock=time.process_time)


def equal_calls(slots: int) -> Claims:
    """Calls that arrived one after another, each due at the same time after its arrival."""
    phase, owner = Phase("task", Tasks(1, 1.0)), []
    for number in range(CALLS):
        at = number / CALLS
        steps = ((at + 100.0, 1.0), (at + 300.0, 2.0))
        owner.append((Job(f"{number}", (phase,), at, deadline=at + 100.0, steps=steps), phase))
    claims = Claims.of(slots, [1.0] * CALLS, max_share=[1.0] * CALLS)
    return replace(claims, owner=owner, cluster=Cluster.of_slots(slots), now=1.0)


if __name__ == "__main__":
    serve(main, check)
