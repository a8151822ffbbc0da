"""The proven properties of DMRS on random problems: Lemma 2, Theorem 1 and the bound."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import related_machines
from slotwise.policy.dmrs.algorithm import (
    by_completion,
    dmrs,
    guarantee,
    linear_program,
    list_jobs,
)
from slotwise.policy.dmrs.problem import RelatedMachines
from slotwise.policy.dmrs.search import best_found
from slotwise.policy.search.budget import Budget
from tiers import examples

ROUNDED = 1 + 1e-9


@st.composite
def problems(draw: st.DrawFn, most_jobs: int = 12) -> RelatedMachines:
    """Jobs of maps and reduces or DAGs, released together or not, on up to nine machines."""
    return related_machines.drawn(
        Random(draw(st.integers(0, 2**32))),
        draw(st.integers(1, most_jobs)),
        draw(st.integers(1, 9)),
        draw(st.integers(1, 20)),
        released=draw(st.sampled_from([0.0, 10.0, 300.0])),
        dags=draw(st.booleans()),
    )


def lemma_two(problem: RelatedMachines, order: list[int]) -> list[float]:
    """(9): the upper bound on the completion of each job of an order, for any stages."""
    others = len(problem.speed) - 1
    areas = accumulate(
        related_machines.work_of(problem.jobs[j])
        + others * sum(float(stage.work.max()) for stage in problem.jobs[j].stages)
        for j in order
    )
    released = accumulate((problem.jobs[j].release for j in order), max)
    mu = float(problem.speed.sum())
    return [at + area / mu for at, area in zip(released, areas, strict=True)]


@settings(max_examples=examples(15, slow=1000))
@given(problems(), st.randoms(use_true_random=False))
def test_lemma_two_holds_for_every_job_in_any_order(
    problem: RelatedMachines, random: Random
) -> None:
    """(9) holds for every order."""
    order = list(range(len(problem)))
    random.shuffle(order)
    runs = list_jobs(problem, order)
    runs.check(problem)
    for number, most in zip(order, lemma_two(problem, order), strict=True):
        assert runs.completion[number] <= most * ROUNDED


@settings(max_examples=examples(15, slow=1000))
@given(problems())
def test_theorem_one_holds_for_every_job_and_in_sum(problem: RelatedMachines) -> None:
    """No completion is more than the factor times that of the program, released or not."""
    program, factor = linear_program(problem), guarantee(problem)
    completion = dmrs(problem).completion
    assert np.all(completion <= factor * program.completion * ROUNDED)
    value = problem.value(completion)
    assert program.value <= value * ROUNDED
    assert value <= factor * program.value * ROUNDED


@settings(max_examples=examples(15, slow=1000))
@given(problems())
def test_theorem_one_holds_with_the_program_of_the_paper(problem: RelatedMachines) -> None:
    """Without tails the order may differ; the factor is the same."""
    program = linear_program(problem, with_tails=False)
    completion = list_jobs(problem, by_completion(program.completion)).completion
    assert np.all(completion <= guarantee(problem) * program.completion * ROUNDED)


@settings(max_examples=examples(15, slow=1000))
@given(problems(), st.randoms(use_true_random=False))
def test_any_schedule_keeps_every_inequality(problem: RelatedMachines, random: Random) -> None:
    """Even those of random orders: (2) with tails for random sets of jobs, and (7)."""
    order = list(range(len(problem)))
    random.shuffle(order)
    completion = list_jobs(problem, order).completion
    program = related_machines.Inequalities(problem, related_machines.alone_with_tails)
    assert np.all(completion >= program.soonest / ROUNDED)
    assert program.most_violated(completion) is None


@pytest.mark.parametrize("seed", range(examples(10, slow=40)))
def test_the_optimum_lies_between_the_bound_and_what_is_found(seed: int) -> None:
    """Up to six tasks on two or three machines; every schedule is tried."""
    random = Random(seed)
    while True:
        problem = related_machines.drawn(
            random,
            random.randint(1, 3),
            random.choice([2, 2, 3]),
            tasks=3,
            released=random.choice([0.0, 20.0]),
            dags=random.random() < 0.3,
        )
        if sum(len(stage.work) for job in problem.jobs for stage in job.stages) <= 6:
            break
    best = related_machines.optimum(problem)
    found = problem.value(best_found(problem, Budget(300)).completion)
    listed = problem.value(dmrs(problem).completion)
    assert linear_program(problem).value <= best * ROUNDED
    assert best <= found * ROUNDED
    assert found <= listed


def test_the_optimum_by_hand() -> None:
    """One job of maps 2 and 1 and a reduce 2 on speeds 2 and 1: 1 s and 1 s."""
    stages = [np.array([2.0, 1.0]), np.array([2.0])]
    job = related_machines.NumericJob(
        (related_machines.Stage(stages[0]), related_machines.Stage(stages[1], (0,)))
    )
    assert related_machines.optimum(
        RelatedMachines(np.array([2.0, 1.0]), [job])
    ) == pytest.approx(2.0)
