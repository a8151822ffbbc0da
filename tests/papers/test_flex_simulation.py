"""FLEX, section 4.1: the base case of its simulations, with fewer jobs.

100 slots; small jobs of one mean and large ones of ten times that, normal with a deviation of
a third, cut off at zero; 80 % small; least shares such that 75 % of the slots are slack. The
paper has 10 jobs and 100 experiments, and an optimum by brute force over all orders of the
packing scheme. Here are 6 jobs, so that 720 orders can be packed for each; its numbers are
quoted beside ours.
"""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from slotwise.allocation.fair import Fair
from slotwise.allocation.fifo import Fifo
from slotwise.allocation.flex import Flex
from slotwise.allocation.packing import pack
from slotwise.allocation.planning import plan_schedules
from slotwise.allocation.problem import Allocator
from slotwise.model.cluster import Cluster
from slotwise.model.job import Job, Phase, Tasks
from slotwise.model.pool import Pool

SLOTS, JOBS, EXPERIMENTS = 100, 6, 40
SMALL, SLACK = 0.8, 0.75
WORK_TOTAL, TASK = 10_000.0, 10.0
"""Seconds of work of all jobs of an experiment, and of one task."""


def cut_normal(random: Random, mean: float) -> float:
    """From a normal distribution with a deviation of a third, without what is not above 0."""
    while True:
        value = random.gauss(mean, mean / 3)
        if value > 0:
            return value


def experiment(seed: int) -> list[Job]:
    """The jobs of one experiment, in a random order of arrival."""
    random = Random(seed)
    drawn = [cut_normal(random, 1.0 if random.random() < SMALL else 10.0) for _ in range(JOBS)]
    jobs = []
    for number, share in enumerate(drawn):
        work = share * WORK_TOTAL / sum(drawn)
        tasks = max(1, round(work / TASK))
        most = min(SLOTS, tasks)
        while True:
            mean = (1 - SLACK) * SLOTS / JOBS
            least = max(1, round(cut_normal(random, mean)))
            if least <= most:
                break
            if most == 1:
                least = 1
        phase = Phase("map", Tasks(tasks, work / tasks), slots_min=least, slots_max=most)
        jobs.append(Job(f"j{number}", (phase,)))
    return jobs


def mean_response(jobs: list[Job], allocator: Allocator) -> float:
    """The best mean response of the schedules that an allocator offers."""
    planned = plan_schedules(jobs, Cluster.of_slots(SLOTS), {"default": Pool()}, allocator)
    return min(sum(s.completion().values()) / len(jobs) for s in planned.schedules)


def best_mean_response(jobs: list[Job]) -> float:
    """The best over all orders through the packing scheme: the paper's optimum."""
    phases = [job.phases[0] for job in jobs]
    work = [phase.tasks.work_total() or 0.0 for phase in phases]
    least = [float(phase.slots_min) for phase in phases]
    most = [float(phase.slots_most) for phase in phases]
    return min(
        sum(pieces[-1][1] for pieces in pack(SLOTS, work, least, most, order)) / len(jobs)
        for order in permutations(range(len(jobs)))
    )


@pytest.fixture(scope="module")
def ratios() -> dict[str, list[float]]:
    """For each scheduler its mean response over the best, experiment by experiment."""
    found: dict[str, list[float]] = {"fifo": [], "fair": [], "flex": []}
    for seed in range(EXPERIMENTS):
        jobs = experiment(seed)
        if sum(job.phases[0].slots_min for job in jobs) > SLOTS:
            continue
        best = best_mean_response(jobs)
        for name, allocator in (("fifo", Fifo()), ("fair", Fair()), ("flex", Flex())):
            found[name].append(mean_response(jobs, allocator) / best)
    return found


def mean(values: list[float]) -> float:
    """The average."""
    return sum(values) / len(values)


def test_flex_is_virtually_optimal(ratios: dict[str, list[float]]) -> None:
    """The paper: less than .1 % above the optimum. Ours: .09 % on average, .6 % at worst.

    The paper does not say how long a task is, and so how far most shares limit its jobs; it
    feeds one more order to its packing scheme.
    """
    assert mean(ratios["flex"]) < 1.002
    assert max(ratios["flex"]) < 1.01
    assert min(ratios["flex"]) >= 1 - 1e-9


def test_fair_is_half_as_long_again(ratios: dict[str, list[float]]) -> None:
    """The paper: 154 % of the optimum on average, 161 % at worst. Ours: 141 and 161 %."""
    assert 1.2 < mean(ratios["fair"]) < 1.7


def test_fifo_is_worst_and_depends_on_the_order_of_arrivals(
    ratios: dict[str, list[float]],
) -> None:
    """The paper: 207 % of the optimum on average, 324 % at worst. Ours: 153 and 310 %."""
    assert mean(ratios["fifo"]) > mean(ratios["fair"])
    assert max(ratios["fifo"]) - min(ratios["fifo"]) > max(ratios["fair"]) - min(ratios["fair"])
