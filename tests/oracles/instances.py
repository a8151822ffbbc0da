"""Random problems in miniature after FLEX 4.1, one generator for each of its metrics.

Small and large jobs, normal with a deviation of a third, the large ones ten times the small;
often max shares below the capacity; min shares that leave 25 to 90 % of the slots as slack;
weights from (0, 1]; deadlines and the steps of SLAs uniform over about a makespan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from slotwise.core.objective import Cost, Hinge, Line, Steps
from slotwise.policy.malleable import Malleable

SLOTS, MAKESPAN = 20.0, 10.0
SHARE_SMALL = 0.6
JOBS = (2, 2, 3, 3, 3, 3, 4, 4, 5)
"""Numbers of jobs to draw from; J! linear programs are to be solved for each problem."""


@dataclass(frozen=True, slots=True)
class HasInputSizes:
    """A job as far as a penalty sees it: its work, its least time alone, and its weight."""

    work: float
    alone: float
    weight: float


Penalty = Callable[[Random, HasInputSizes], Cost]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of FLEX 2.1: a penalty for each job, and the sum or the maximum of them."""

    name: str
    aggregate: Literal["sum", "max"]
    weighted: bool
    penalty: Penalty


def instances(metric: Metric, seed: int, count: int, with_least: bool) -> Iterator[Malleable]:
    """Random problems of a metric, the same for the same arguments."""
    random = Random(f"{metric.aggregate} {metric.name} {seed} {with_least}")
    for _ in range(count):
        yield _instance(metric, random, with_least)


def _instance(metric: Metric, random: Random, with_least: bool) -> Malleable:
    jobs = random.choice(JOBS)
    drawn = [_cut(random, 1.0 if random.random() < SHARE_SMALL else 10.0) for _ in range(jobs)]
    work = [share * SLOTS * MAKESPAN / sum(drawn) for share in drawn]
    max_share = [SLOTS * random.choice([1.0, random.uniform(0.05, 1.0)]) for _ in range(jobs)]
    if random.random() < 0.3:  # Tasks of 2 s: the demand limits small jobs.
        max_share = [min(SLOTS, max(1.0, w / 2)) for w in work]
    min_share = _min_share(random, max_share) if with_least else [0.0] * jobs
    costs = []
    for size, share in zip(work, max_share, strict=True):
        weight = 1 - random.random() if metric.weighted else 1.0
        costs.append(metric.penalty(random, HasInputSizes(size, size / share, weight)))
    return Malleable.of(SLOTS, work, min_share, max_share, costs, metric.aggregate)


def _min_share(random: Random, max_share: list[float]) -> list[float]:
    """Min shares such that a part of the slots is slack; some jobs may have none."""
    mean = (1 - random.uniform(0.25, 0.9)) * SLOTS / len(max_share)
    drawn = [min(share, _cut(random, mean)) for share in max_share]
    if random.random() < 0.25:
        drawn[random.randrange(len(max_share))] = 0.0
    return [share * min(1.0, SLOTS / sum(drawn)) for share in drawn]


def _cut(random: Random, mean: float) -> float:
    """From a normal distribution with a deviation of a third, without what is not above 0."""
    while (value := random.gauss(mean, mean / 3)) <= 0:
        pass
    return value


def _due(random: Random) -> float:
    return random.uniform(0, 1.2 * MAKESPAN)


def _response(random: Random, job: HasInputSizes) -> Cost:
    return Line(job.weight)


def _stretch(random: Random, job: HasInputSizes) -> Cost:
    return Line(job.weight / job.work)


def _slowdown(random: Random, job: HasInputSizes) -> Cost:
    return Line(job.weight / job.alone)


def _tardy(random: Random, job: HasInputSizes) -> Cost:
    return Steps(((_due(random), job.weight),))


def _tardiness(random: Random, job: HasInputSizes) -> Cost:
    return Hinge(job.weight, _due(random))


def _lateness(random: Random, job: HasInputSizes) -> Cost:
    return Line(job.weight, _due(random))


def _sla(random: Random, job: HasInputSizes) -> Cost:
    count = random.randint(1, 3)
    instants = sorted(_due(random) for _ in range(count))
    charges = sorted(1 - random.random() for _ in range(count))
    return Steps(tuple(zip(instants, charges, strict=True)))


def _mixed(random: Random, job: HasInputSizes) -> Cost:
    """A penalty of the job's own, such that none outweighs all others."""
    match random.choice(("time", "late", "steps", "sla")):
        case "time":
            return Line(job.weight / MAKESPAN)
        case "late":
            return Hinge(2 * job.weight / MAKESPAN, _due(random))
        case "steps":
            return _tardy(random, job)
        case _:
            return _sla(random, job)


MINISUM = (
    Metric("response", "sum", False, _response),
    Metric("weighted response", "sum", True, _response),
    Metric("stretch", "sum", False, _stretch),
    Metric("weighted stretch", "sum", True, _stretch),
    Metric("slowdown", "sum", False, _slowdown),
    Metric("lateness", "sum", False, _lateness),
    Metric("tardy", "sum", False, _tardy),
    Metric("weighted tardy", "sum", True, _tardy),
    Metric("tardiness", "sum", False, _tardiness),
    Metric("weighted tardiness", "sum", True, _tardiness),
    Metric("sla", "sum", False, _sla),
    Metric("mixed", "sum", True, _mixed),
)
MINIMAX = (
    Metric("makespan", "max", False, _response),
    Metric("weighted response", "max", True, _response),
    Metric("stretch", "max", False, _stretch),
    Metric("slowdown", "max", False, _slowdown),
    Metric("lateness", "max", False, _lateness),
    Metric("weighted lateness", "max", True, _lateness),
    Metric("tardy", "max", True, _tardy),
    Metric("tardiness", "max", False, _tardiness),
    Metric("weighted tardiness", "max", True, _tardiness),
    Metric("sla", "max", False, _sla),
    Metric("mixed", "max", True, _mixed),
)
