"""One experiment of the FLEX paper's simulations: jobs are drawn, and each scheme plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from experiments.flex.best_order import best_order
from slotwise.core.costs import Floats
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import PENALTIES, Aggregate, Cost, Size
from slotwise.core.tolerances import ROUNDING
from slotwise.policy.allocator import Allocator, Claims
from slotwise.policy.bounds import BoundJobs, lower_bound
from slotwise.policy.fair import Fair
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import completions
from slotwise.policy.search.solve import solve
from slotwise.workload.generators import DrawnJobs, FlexGenerator

MEETS = 1e-6
"""A value meets a bound if it exceeds it by no more than this, relatively."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The criterion of a comparison: a penalty, weighted or not, and its sum or maximum."""

    name: str
    penalty: str
    aggregate: Aggregate = "sum"
    weighted: bool = False


MEAN_RESPONSE = Metric("mean response", "response")


@dataclass(frozen=True, slots=True)
class FlexSetting:
    """The generator of the jobs of an experiment, and the metric."""

    generator: FlexGenerator = field(default_factory=FlexGenerator)
    metric: Metric = MEAN_RESPONSE


@dataclass(frozen=True, slots=True)
class SchemeValues:
    """The value of each scheme in one experiment, and the reference values.

    best_order  the least value of all priority orders: the paper's reference
    bound       a lower bound for schedules that keep the min shares; FIFO need not keep them
    """

    fifo: float
    fair: float
    flex: float
    best_order: float
    bound: float

    def is_optimal(self, value: float) -> bool:
        """Whether a schedule of this value is proven optimal: it meets the bound."""
        return value - self.bound <= MEETS * max(1.0, abs(self.bound))


def experiment(setting: FlexSetting, seed: int, run: int) -> SchemeValues:
    """Experiment number `run` of a seed. The same for the same numbers."""
    rng = np.random.default_rng([seed, run])
    problem = problem_of(setting.generator.draw(rng), setting.metric)
    solution = solve(problem)
    return SchemeValues(
        fifo=problem.value(fifo_completion(problem)),
        fair=problem.value(fair_completion(problem)),
        flex=solution.value,
        best_order=best_order(problem)[1],
        bound=max(solution.bound, bound_of(problem, solution.value)),
    )


def problem_of(drawn: DrawnJobs, metric: Metric) -> Malleable:
    """The numeric problem of these jobs under this metric."""
    return Malleable.of(
        drawn.slots,
        drawn.work,
        drawn.least,
        drawn.most,
        [_cost(drawn, metric, j) for j in range(len(drawn))],
        metric.aggregate,
    )


def bound_of(problem: Malleable, value: float) -> float:
    """A lower bound for schedules that keep the min shares; `value` is the cost of one."""
    jobs = BoundJobs.of(
        problem.costs,
        np.zeros(len(problem)),
        problem.work,
        problem.max_share,
        problem.heights,
        problem.min_share,
    )
    return lower_bound(jobs, problem.capacity, problem.aggregate, value)


def fifo_completion(problem: Malleable) -> Floats:
    """The completion times under FIFO: the packing scheme in the order of the jobs.

    Without min shares, but with max shares (FLEX 4). O(J log J).
    """
    nothing, order = np.zeros(len(problem)), range(len(problem))
    return completions(problem.capacity, problem.work, nothing, problem.max_share, order)


def fair_completion(problem: Malleable) -> Floats:
    """The completion times under FAIR, which does not use the metric: all weights are equal."""
    claims = Claims.of(
        int(problem.capacity),
        problem.work.tolist(),
        min_share=problem.min_share.tolist(),
        max_share=problem.max_share.tolist(),
    )
    return completion_times(claims, Fair())


def completion_times(claims: Claims, allocator: Allocator) -> Floats:
    """When each claim completes, seconds, if slots may be divided: `fluid_schedule` in numbers.

    Min and max shares may be any numbers. One allocation for each completion.
    """
    completion, left = np.zeros(len(claims)), np.array(claims.work, dtype=float)
    active, now = np.arange(len(claims)), 0.0
    while len(active):
        slots = np.array(allocator.share(_only(claims, active.tolist(), left)))
        runs = slots > 0
        length = float(np.min(left[active[runs]] / slots[runs]))
        left[active] -= slots * length
        now += length
        is_done = left[active] <= ROUNDING * np.asarray(claims.work)[active]
        completion[active[is_done]] = now
        active = active[~is_done]
    return completion


def _only(claims: Claims, numbers: Sequence[int], left: Floats) -> Claims:
    """Some of the claims, with the work that is left."""
    columns = ("weight", "arrival", "min_share", "max_share", "group", "owner", "priority")
    some: dict[str, Any] = {
        name: [column[n] for n in numbers] if (column := getattr(claims, name)) else column
        for name in columns
    }
    return replace(claims, work=left[numbers].tolist(), **some)


def _cost(drawn: DrawnJobs, metric: Metric, j: int) -> Cost:
    work = float(drawn.work[j])
    job = Job(
        f"job-{j}",
        (Phase("map", Tasks(1, work)),),
        weight=float(drawn.weight[j]) if metric.weighted else 1.0,
        deadline=float(drawn.deadline[j]),
        steps=tuple(
            zip(drawn.step_instants[j].tolist(), drawn.step_heights[j].tolist(), strict=True)
        ),
    )
    return PENALTIES[metric.penalty](job, Size(work, work / float(drawn.most[j])))
