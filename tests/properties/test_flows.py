"""What holds for every plan of jobs that are DAGs: random flows, every metric, degenerate ones.

The optimum comes from tests/oracles, which share nothing with how plans are made. What is
proven of FlowFlex is tested stage by stage against what no schedule can beat.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dag_lists import list_schedule
from oracles.dag_optimum import optimum
from oracles.dags import OBJECTIVES, Flows, flows
from oracles.network_rounding import rounding
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.core.schedule import Schedule
from slotwise.insight.bound import Work, objective_bound
from slotwise.plans import plan
from slotwise.policy.flowflex.allocator import whole_flows
from slotwise.policy.flowflex.flows import FlowProblem as Problem
from slotwise.policy.flowflex.flows import chains_of
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.paper import (
    bounding_completions,
    by_deadline,
    by_flows,
    deadlines_at,
    least_cost,
    least_level,
    shape_shift,
)
from slotwise.policy.malleable import merged
from slotwise.results import Plan
from tiers import examples

SOME, FEW = examples(4, slow=200), examples(2, slow=50)
"""Of plans, which take longer than their parts; and for each metric."""

FLOWFLEX = ("flowflex", "flowflex-fast", "flowflex-paper")
NAMES = (*FLOWFLEX, "fair", "fifo")
STEPS = 40
"""Of search: the same plan on every machine."""

HIGHS = 1e-7
"""For what HiGHS is good."""

EXACT = 1e-9
"""What rounding may add."""

THROUGH_ZERO = [
    Objective(penalty, aggregate)
    for aggregate in ("sum", "max")
    for penalty in ("response", "stretch", "slowdown")
]
"""Metrics for which slots that are twice as fast halve what anything costs."""

any_name = pytest.mark.parametrize("name", NAMES)
any_objective = st.sampled_from(OBJECTIVES)
one_kind = flows(jobs_most=5)
any_flows = flows(jobs_most=5, with_kinds=True)
tiny_flows = flows(jobs_most=3, phases_most=3, total_most=5, mixed=True, with_kinds=True)


def name_of(objective: Objective) -> str:
    """As tests are called."""
    return f"{objective.aggregate} {objective.penalty}"


def problem_of(
    case: Flows, objective: Objective | None = None
) -> tuple[Problem, list[PhaseId]]:
    """The numeric problem of jobs, and the names of its phases."""
    return whole_flows(case.jobs, case.cluster, objective or Objective())


def shuffled(count: int, seed: int) -> np.ndarray:
    """The numbers below this in any order."""
    return np.random.default_rng(seed).permutation(count)


def plan_of(case: Flows, name: str, objective: Objective) -> Plan:
    """A plan that is looked at: its schedule is one, and its bound is not above its value."""
    found = plan(case.jobs, name, objective=objective, slots=case.capacity, budget_steps=STEPS)
    found.schedule.check(case.jobs, case.cluster)
    assert set(found.schedule.completion()) == {job.id for job in case.jobs}
    assert found.bound <= found.value + EXACT * abs(found.value)
    return found


@any_name
@given(case=flows(mixed=True, with_kinds=True), objective=any_objective)
@settings(max_examples=SOME)
def test_every_plan_is_a_schedule(name: str, case: Flows, objective: Objective) -> None:
    """Capacity, max shares, precedence and work are kept; no bound is above the value."""
    plan_of(case, name, objective)


@any_name
def test_phases_without_work_are_refused(name: str) -> None:
    """By the name of the phase, and with what to do."""
    job = Job("j", (Phase("a", Tasks(1, 1.0)), Phase("b", Tasks(2, 0.0), after="a")))
    with pytest.raises(InputError, match=r"job 'j', phase 'b'.* work > 0, not 0; leave out"):
        plan(job, name, slots=2)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=name_of)
@given(case=tiny_flows)
@settings(max_examples=examples(2, slow=25))
def test_bounds_are_below_the_optimum_and_plans_above(
    objective: Objective, case: Flows
) -> None:
    """Bound <= optimum <= value, the optimum being that of all malleable schedules."""
    best = optimum(case.jobs, case.cluster, objective)
    slip = HIGHS * max(1.0, abs(best))
    for name in NAMES:
        found = plan_of(case, name, objective)
        assert found.bound <= best + slip
        assert best <= found.value + slip


@given(case=any_flows, seed=st.integers(0, 99))
@settings(max_examples=SOME)
def test_each_flow_ends_by_area_and_critical_path(case: Flows, seed: int) -> None:
    """In any order: by (work of the flows up to it) / P + its critical path, chained or not.

    With kinds of slots, the first is the sum of that over the kinds.
    """
    problem, _ = problem_of(case)
    order = shuffled(len(problem), seed)
    limit = problem.critical_path.copy()
    for kind, slots in enumerate(problem.capacity):
        volume = np.bincount(problem.flow, problem.work * (problem.kind == kind))
        limit[order] += np.cumsum(volume[order]) / slots
    for one in [problem] if case.has_kinds else [problem, chains_of(problem).problem]:
        assert np.all(PhaseLister(one).completions(by_flows(one, order)) <= limit * (1 + EXACT))


@given(case=any_flows, seed=st.integers(0, 99))
@settings(max_examples=SOME)
def test_a_list_is_scheduled_as_by_hand(case: Flows, seed: int) -> None:
    """Any ranking of all phases: the same ends as by the simple simulation of the oracle."""
    problem, ids = problem_of(case)
    ranking = shuffled(len(ids), seed)
    by_id = {job.id: job for job in case.jobs}
    listed = [(by_id[ids[n].job], by_id[ids[n].job].by_name[ids[n].phase]) for n in ranking]
    expected = list_schedule(listed, case.cluster)
    ends = PhaseLister(problem).ends(ranking)
    assert dict(zip(ids, ends.tolist(), strict=True)) == pytest.approx(dict(expected), rel=1e-9)


@given(case=one_kind)
@settings(max_examples=SOME)
def test_a_chain_has_the_area_and_the_critical_path_of_its_flow(case: Flows) -> None:
    """Stage 1: sum of work and least time are those of the flow, phase by phase too."""
    problem, _ = problem_of(case)
    chains = chains_of(problem)
    chained = chains.problem
    assert chained.volume == pytest.approx(problem.volume, rel=EXACT)
    assert chained.critical_path == pytest.approx(problem.critical_path, rel=EXACT)
    done = np.zeros(len(problem.work))
    lengths = chained.length
    for number, (phases, length) in enumerate(zip(chains.members, lengths, strict=True)):
        assert phases
        assert {int(problem.flow[phase]) for phase in phases} == {int(chained.flow[number])}
        for phase in phases:
            assert not set(problem.before[phase]) & set(phases), "what runs together is apart"
            done[phase] += problem.max_share[phase] * length
    assert done == pytest.approx(problem.work, rel=EXACT)
    per_flow = np.bincount(problem.flow)
    assert np.all(np.bincount(chained.flow) <= 2 * per_flow - 1)


@given(case=one_kind, seed=st.integers(0, 99))
@settings(max_examples=SOME)
def test_shape_shifting_keeps_everything(case: Flows, seed: int) -> None:
    """Stage 3: pseudo-jobs in any order become a schedule that completes as they do."""
    problem, ids = problem_of(case)
    chains = chains_of(problem)
    order = shuffled(len(problem), seed)
    listed = PhaseLister(chains.problem).schedule(by_flows(chains.problem, order))
    schedule = Schedule(merged(shape_shift(problem, chains, listed, ids)))
    schedule.check(case.jobs, case.cluster)
    ends = np.maximum.reduceat(listed.end, chains.problem.first[:-1])
    names = [job.id for job in case.jobs]
    assert schedule.completion() == pytest.approx(dict(zip(names, ends.tolist(), strict=True)))


@given(case=one_kind, seed=st.integers(0, 99))
@settings(max_examples=SOME)
def test_deadlines_that_can_be_met_are_met_on_slots_twice_as_fast(
    case: Flows, seed: int
) -> None:
    """Theorem 2, (1, 2): deadlines are the completions of some schedule, found at random."""
    problem, ids = problem_of(case)
    ranking = shuffled(len(ids), seed)
    due = PhaseLister(problem).completions(ranking)
    for one in (problem, chains_of(problem).problem):
        completion = PhaseLister(one).completions(by_deadline(one, due))
        assert np.all(completion / 2 <= due * (1 + EXACT))


@pytest.mark.parametrize("penalty", ["response", "stretch", "tardiness", "tardy", "sla"])
@given(case=one_kind)
@settings(max_examples=2 * FEW)
def test_half_of_a_network_costs_twice_on_slots_three_times_as_fast(
    penalty: str, case: Flows
) -> None:
    """Theorem 3, (2, 3): what counts as half done costs at most twice the least, as of when
    its interval begins; by three times the end of it, all is done."""
    problem, _ = problem_of(case, Objective(penalty))
    network = least_cost(problem)
    due = network.deadlines(0.5)
    begin = np.concatenate([[0.0], network.ends])[np.searchsorted(network.ends, due)]
    begin = np.maximum(np.nextafter(begin, np.inf), problem.alone)
    least = network.bound + rounding(problem, network)
    assert problem.value(begin) <= 2 * least * (1 + 1e-6) + 1e-6
    due = np.maximum(due, problem.alone)
    for one in (problem, chains_of(problem).problem):
        completion = PhaseLister(one).completions(by_deadline(one, due))
        assert np.all(completion / 3 <= due * (1 + 1e-6))


@pytest.mark.parametrize("penalty", ["response", "stretch", "tardiness", "tardy", "sla"])
@given(case=flows(jobs_most=3, phases_most=3, total_most=5))
@settings(max_examples=2 * FEW)
def test_levels_below_the_optimum_are_kept_on_slots_twice_as_fast(
    penalty: str, case: Flows
) -> None:
    """Theorem 4, (1, 2): bisection ends at a level that no schedule is below; its deadlines
    are met by twice themselves."""
    objective = Objective(penalty, "max")
    problem, _ = problem_of(case, objective)
    chained = chains_of(problem).problem
    lister = PhaseLister(chained)

    def is_met(due: np.ndarray) -> bool:
        return bool(np.all(lister.completions(by_deadline(chained, due)) <= 2 * due))

    high = problem.value(lister.completions(by_deadline(chained, problem.alone)))
    level, due = least_level(problem, high, is_met)
    best = optimum(case.jobs, case.cluster, objective)
    assert level <= best + 1e-5 * max(1.0, abs(best))
    assert np.all(lister.completions(by_deadline(chained, due)) <= 2 * due)
    assert np.all(due == deadlines_at(problem, level))


@pytest.mark.parametrize("objective", THROUGH_ZERO, ids=name_of)
@pytest.mark.parametrize("name", FLOWFLEX)
@given(case=one_kind)
@settings(max_examples=FEW)
def test_lines_cost_at_most_a_factor_more_than_the_bound(
    name: str, objective: Objective, case: Flows
) -> None:
    """Sums at most 3 times, 6 by the paper's way alone; maxima, so the makespan, 2 times."""
    found = plan_of(case, name, objective)
    factor = 2 if objective.aggregate == "max" else 6 if name == "flowflex-paper" else 3
    assert found.value <= factor * found.bound * (1 + 1e-5)


@pytest.mark.parametrize("penalty", ["response", "stretch", "slowdown"])
@given(case=one_kind)
@settings(max_examples=2 * FEW)
def test_lists_by_bounding_completions_cost_three_times_the_bound(
    penalty: str, case: Flows
) -> None:
    """Without search: each flow is complete by three times its end in the program."""
    problem, _ = problem_of(case, Objective(penalty))
    program = bounding_completions(problem)
    completion = PhaseLister(problem).completions(by_deadline(problem, program))
    assert np.all(completion <= 3 * program * (1 + EXACT))
    bound = objective_bound(
        Objective(penalty), case.jobs, case.cluster, Work.estimated(case.jobs)
    )
    assert problem.value(program) <= bound * (1 + 1e-6), "the program is part of the bound"
