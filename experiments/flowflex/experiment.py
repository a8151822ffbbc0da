"""One experiment of the FlowFlex paper's simulations: flows are drawn, each scheme plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from experiments.flex.experiment import MEETS, Metric
from experiments.flowflex.generator import FlowGenerator, unweighted
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job
from slotwise.core.objective import Objective
from slotwise.insight.bound import Work, sizes_of
from slotwise.plans import plan
from slotwise.results import Plan

BUDGET_STEPS = 10_000
"""Search steps of FlowFlex in each plan, so that every machine finds the same plan. They take
less than half a second on average."""

AGNOSTIC = ("fair", "fifo")
"""Ready-list schemes that do not use the metric: each plans once for all metrics."""

FLOWFLEX, ALONE = "flowflex", "paper's method"
SCHEMES = (FLOWFLEX, ALONE, *AGNOSTIC)
"""FlowFlex with all that goes beyond the paper, the method of the paper alone, and others."""

_Planner = Callable[[Sequence[Job], Objective, int, int], Plan]


def _flowflex(jobs: Sequence[Job], objective: Objective, slots: int, steps: int) -> Plan:
    return plan(jobs, "flowflex", objective=objective, slots=slots, budget_steps=steps)


def _alone(jobs: Sequence[Job], objective: Objective, slots: int, steps: int) -> Plan:
    return plan(jobs, "flowflex-paper", objective=objective, slots=slots, budget_steps=steps)


PLANNERS: Mapping[str, _Planner] = MappingProxyType({FLOWFLEX: _flowflex, ALONE: _alone})
"""The schemes that plan for a metric."""


@dataclass(frozen=True, slots=True)
class FlowSetting:
    """The flows to plan, and the metrics.

    steps  of search, for each plan of FlowFlex
    """

    metrics: tuple[Metric, ...]
    generator: FlowGenerator = field(default_factory=FlowGenerator)
    steps: int = BUDGET_STEPS


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """The results of the schemes in one experiment by one metric.

    values  of each scheme
    bound   the highest lower bound that any plan has proven
    """

    values: Mapping[str, float]
    bound: float

    def is_proven(self, scheme: str) -> bool:
        """Whether the value of a scheme meets the bound, so that it is the optimum."""
        return self.values[scheme] - self.bound <= MEETS * max(1.0, abs(self.bound))

    def ratio(self, scheme: str, added: float) -> float:
        """Value by bound, with something added to both (FlowFlex, footnote 10)."""
        # Bounds are lowered slightly for rounding, so they may be just below 0.
        return (self.values[scheme] + added) / (max(self.bound, 0.0) + added)


def experiment(setting: FlowSetting, seed: int, number: int) -> dict[str, FlowOutcome]:
    """The experiment of this number and seed, by the name of the metric; deterministic.

    All metrics use the same flows.
    """
    jobs = setting.generator.draw(np.random.default_rng([seed, number]))
    slots, plain = setting.generator.slots, unweighted(jobs)
    completed = {
        scheme: plan(plain, scheme, slots=slots).schedule.completion() for scheme in AGNOSTIC
    }
    return {
        metric.name: _outcome(
            jobs if metric.weighted else plain, metric, slots, setting.steps, completed
        )
        for metric in setting.metrics
    }


def _outcome(
    jobs: Sequence[Job],
    metric: Metric,
    slots: int,
    steps: int,
    completed: Mapping[str, Mapping[str, float]],
) -> FlowOutcome:
    objective = Objective(metric.penalty, metric.aggregate)
    plans = {name: make(jobs, objective, slots, steps) for name, make in PLANNERS.items()}
    size = sizes_of(jobs, Cluster.of_slots(slots), Work.estimated(jobs))
    by_id = {job.id: job for job in jobs}
    values = {name: made.value for name, made in plans.items()}
    values |= {name: objective.value(by_id, done, size) for name, done in completed.items()}
    return FlowOutcome(values, max(made.bound for made in plans.values()))
