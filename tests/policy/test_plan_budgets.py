"""The default budget of plans: the same on a busy machine, and enough for unseen flows."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from experiments.flex.best_order import best_order
from experiments.flowflex.generator import FlowGenerator
from slotwise import plans
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job
from slotwise.core.objective import Objective
from slotwise.core.pools import PoolTree
from slotwise.plans import plan
from slotwise.policy import planning, reservations_compiled
from slotwise.policy.compiled import compiled
from slotwise.policy.flex import Flex
from slotwise.policy.flowflex import list_schedule
from slotwise.policy.flowflex.list_schedule import COMPILED_FROM
from slotwise.policy.planning import plain_claims
from slotwise.results import Plan

SLOTS = 25


def flows(seed: int, deadline_most: float = 1.0, **limits: int) -> tuple[Job, ...]:
    """Random flows as in FlowFlex 5.1."""
    generator = FlowGenerator(deadline_most=deadline_most, **limits)
    return generator.draw(np.random.default_rng([seed, int(deadline_most * 10)]))


def planned(jobs: tuple[Job, ...], penalty: str, **budget: int) -> Plan:
    """The plan of FlowFlex for the sum."""
    return plan(jobs, "flowflex", objective=Objective(penalty), slots=SLOTS, **budget)


@pytest.mark.parametrize("allocator", ["flex", "flowflex"])
def test_a_plan_does_not_depend_on_the_clock(
    allocator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine so busy that an hour passes between two looks at the clock."""
    jobs = flows(1, 0.5, flows_most=6, phases_least=1, phases_most=1)
    aim = Objective("tardiness")
    idle = plan(jobs, allocator, objective=aim, slots=SLOTS)
    hours = count(step=3600.0)
    monkeypatch.setattr(plans.time, "perf_counter", hours.__next__)
    busy = plan(jobs, allocator, objective=aim, slots=SLOTS)
    assert busy.schedule == idle.schedule
    assert (busy.value, busy.may_improve) == (idle.value, idle.may_improve)
    assert busy.seconds >= 3600


@pytest.mark.parametrize(("has_numba", "steps"), [(True, 8000), (False, 1000)])
def test_a_plan_of_20_flows_of_20_phases_has_steps_for_half_a_second(
    has_numba: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes about 0.04 ms, or 0.6 ms without compiled code."""
    budgets: list[Any] = []
    solve = planning.solve_flows

    def solved(problem: Any, budget: Any, *rest: Any, **named: Any) -> Any:
        budgets.append(budget.steps)
        budget.steps = 0  # Without the search itself.
        return solve(problem, budget, *rest, **named)

    monkeypatch.setattr(planning, "solve_flows", solved)
    monkeypatch.setattr(planning, "has_numba", lambda: has_numba)
    jobs = flows(1, flows_least=20, flows_most=20, phases_least=20, phases_most=20)
    assert sum(len(job.phases) for job in jobs) == 400
    assert planned(jobs, "response").may_improve
    assert budgets == [steps]


def test_a_plan_of_few_phases_does_not_wait_for_numba() -> None:
    """Its default steps take less time without compiled code than the import takes."""
    phases = planning.MAX_PLAIN
    assert phases * planning.flow_budget(phases).steps < COMPILED_FROM


@pytest.mark.parametrize("penalty", ["response", "tardiness", "sla"])
@pytest.mark.slow
def test_the_same_steps_give_the_same_plan_without_machine_code(
    penalty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, with all parts of the search."""
    pytest.importorskip("numba", reason="needs slotwise[fast]")
    jobs = flows(3, 0.5, flows_least=20, flows_most=20, phases_least=10, phases_most=10)
    kernels: list[str] = []

    def counted(function: Any, *rest: Any, **named: Any) -> Any:
        kernels.append(function.__name__)
        return compiled(function, *rest, **named)

    for module in (list_schedule, reservations_compiled):
        monkeypatch.setattr(module, "compiled", counted)
    fast = planned(jobs, penalty, budget_steps=1200)
    assert "run_list" in kernels
    kernels.clear()
    for module in (list_schedule, reservations_compiled):
        monkeypatch.setattr(module, "has_numba", lambda: False)
    plain = planned(jobs, penalty, budget_steps=1200)
    assert not kernels
    assert (plain.value, plain.schedule) == (fast.value, fast.schedule)


def test_a_sum_starts_from_the_plan_of_its_maximum() -> None:
    """From other starts alone, the search ended with a cost of 6 after 200,000 steps."""
    found = planned(flows(102), "tardy")
    assert (found.value, found.is_exact, found.may_improve) == (1, True, False)


@pytest.mark.parametrize("seed", [101, 104])
@pytest.mark.parametrize("penalty", ["tardiness", "tardy"])
def test_due_dates_that_can_all_be_met_are_met(seed: int, penalty: str) -> None:
    """And the search ends there, with steps left."""
    found = planned(flows(seed), penalty)
    assert (found.value, found.may_improve) == (0, False)


def test_a_spent_budget_shows_in_the_result() -> None:
    """If the value is not proven optimal, and only then."""
    jobs = flows(102)
    short = planned(jobs, "response", budget_steps=1)
    assert short.to_plain()["may_improve"]
    single = flows(1, flows_least=1, flows_most=1, phases_least=1, phases_most=1)
    assert not planned(single, "response", budget_steps=1).to_plain()["may_improve"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("penalty", ["response", "tardiness"])
@pytest.mark.sampled(4)
def test_a_sum_of_few_jobs_is_not_above_any_order_or_says_that_more_steps_could_help(
    penalty: str, seed: int
) -> None:
    """Local search alone ended above the best of all orders in three of 40 sums of hinges."""
    jobs = flows(seed + 50, 0.4, flows_least=8, flows_most=8, phases_least=1, phases_most=1)
    aim = Objective(penalty)
    problem = Flex(aim).problem(
        plain_claims(jobs, Cluster.of_slots(SLOTS), PoolTree(()).with_pools(["default"]))
    )
    _, best = best_order(problem)
    found = plan(jobs, "flex", objective=aim, slots=SLOTS, budget_steps=1_000_000)
    assert not found.may_improve
    assert found.value <= best * (1 + 1e-9)
    short = plan(jobs, "flex", objective=aim, slots=SLOTS, budget_steps=3)
    assert short.value <= best * (1 + 1e-9) or short.may_improve
