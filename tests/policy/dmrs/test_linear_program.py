"""The linear program of DMRS against HiGHS, and against schedules that it must not exceed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from oracles import related_machines
from slotwise.policy.dmrs.algorithm import guarantee, linear_program, skewness
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage
from tiers import examples


@pytest.mark.parametrize("seed", range(examples(10, slow=40)))
def test_it_is_the_program_with_all_inequalities(seed: int) -> None:
    """Up to eight jobs, 2^N - 1 sets, with the terms of the paper and with the tails."""
    random = Random(seed)
    released = random.choice([0.0, 5.0, 60.0])
    problem = related_machines.drawn(
        random, random.randint(1, 8), random.randint(1, 6), 6, released
    )
    found = linear_program(problem, with_tails=False)
    assert found.value == pytest.approx(related_machines.by_all_sets(problem), rel=1e-9)
    stronger = linear_program(problem)
    exact = related_machines.by_all_sets(problem, related_machines.alone_with_tails)
    assert stronger.value == pytest.approx(exact, rel=1e-9)
    assert stronger.value >= found.value * (1 - 1e-12)


@pytest.mark.parametrize(
    "jobs", [10, 20, *(pytest.param(jobs, marks=pytest.mark.slow) for jobs in (40, 60))]
)
@pytest.mark.parametrize("released", [0.0, 30.0, 600.0])
def test_it_is_what_cutting_planes_find(jobs: int, released: float) -> None:
    """With the separation oracle of Lemma 1, which considers prefixes only."""
    problem = related_machines.drawn(Random(jobs), jobs, 9, released=released)
    found, rounds = related_machines.by_cutting_planes(problem)
    assert linear_program(problem, with_tails=False).value == pytest.approx(found, rel=1e-9)
    assert rounds >= 1
    stronger, _ = related_machines.by_cutting_planes(problem, related_machines.alone_with_tails)
    assert linear_program(problem).value == pytest.approx(stronger, rel=1e-9)


@pytest.mark.parametrize("seed", range(examples(4, slow=12)))
def test_stages_of_any_kind(seed: int) -> None:
    """Jobs that are DAGs: tails go along the longest way to the end."""
    problem = related_machines.drawn(Random(seed), 6, 4, released=20.0, dags=True)
    exact = related_machines.by_all_sets(problem, related_machines.alone_with_tails)
    assert linear_program(problem).value == pytest.approx(exact, rel=1e-9)


def test_the_most_violated_set_is_a_prefix() -> None:
    """Lemma 1, against all sets: the oracle finds as much violation, or there is none."""
    random = Random(1)
    found = 0
    problems = examples(60, slow=300)
    for _ in range(problems):
        problem = related_machines.drawn(random, random.randint(2, 7), 3)
        program = related_machines.Inequalities(problem)
        spread = [random.uniform(1, 2) for _ in problem.jobs]
        completion = program.soonest * spread * random.uniform(0.8, 1.5)

        def missed(chosen: Sequence[int], program=program, at=completion) -> float:
            return program.violation(chosen, at)

        most = max(map(missed, related_machines.subsets(len(problem))))
        cut = program.most_violated(completion)
        if cut is None:
            assert most <= 1e-9 * program.needed(range(len(problem)))
            continue
        found += 1
        assert missed(cut) == pytest.approx(most, rel=1e-9)
    assert problems / 6 < found < problems * 59 / 60


def test_the_key_of_lemma_one_is_not_the_completion() -> None:
    """The most violated set excludes a job that is done before one that it contains.

    Ten machines. Twelve jobs of one task of 10 s have a key 5 s below their completion of 10 s,
    and one more has 9 s for 14 s. All 13 could not be done before 13 s, if this were so; ten
    short tasks that are done at 13.5 s have a key just below, and do not belong.
    """
    long, wide = NumericJob((Stage(np.array([10.0])),)), NumericJob((Stage(np.full(10, 0.1)),))
    problem = RelatedMachines(np.ones(10), [*[long] * 13, wide])
    program = related_machines.Inequalities(problem)
    completion = np.array([*[10.0] * 12, 14.0, 13.5])
    most = max(
        related_machines.subsets(len(problem)),
        key=lambda chosen: program.violation(chosen, completion),
    )
    assert most == tuple(range(13)) == program.most_violated(completion)


def test_a_wrong_program_would_be_detected() -> None:
    """With the speed of one machine for each job the value differs and exceeds an optimum."""
    differs = above = 0
    for seed in range(25):
        problem = related_machines.drawn(Random(seed), 2, 2, tasks=2)
        wrong = related_machines.by_all_sets(problem, related_machines.wrong_alone)
        differs += wrong > linear_program(problem, with_tails=False).value * (1 + 1e-6)
        above += wrong > related_machines.optimum(problem) * (1 + 1e-6)
    assert differs > 5
    assert above > 0


def test_by_hand() -> None:
    """Two jobs, two machines of speed 2 and 1; all numbers as on paper."""
    job = NumericJob((Stage(np.array([2.0, 1.0])), Stage(np.array([2.0]), (0,))))
    problem = RelatedMachines(np.array([2.0, 1.0]), [job, job])
    # Alone: maps max(3 / 3, 2 / 2) = 1 s, the reduce 1 s: 2 s. P = 5, mu = mu_j = 3.
    found = linear_program(problem, with_tails=False)
    # Both together: 5 (C_1 + C_2) >= 2 * 25 / 6 + 100 / 6, so C_1 + C_2 >= 5.
    assert found.value == pytest.approx(5.0)
    # With tails: 3 (1 + 1/2) + 2 (1/2) = 5.5 for 25 / 6: C_1 + C_2 >= (11 + 100 / 6) / 5.
    assert linear_program(problem).value == pytest.approx((11 + 100 / 6) / 5)
    assert skewness(problem) == pytest.approx(5 / 4)
    assert guarantee(problem) == pytest.approx(2 * (1 + 1 / (5 / 4)))


def test_a_release_adds_one_to_the_guarantee() -> None:
    """The rest of the guarantee is the same."""
    stages = (Stage(np.array([3.0, 3.0])), Stage(np.array([1.0]), (0,)))
    speed = np.array([1.0, 1.0, 1.0])
    together = RelatedMachines(speed, [NumericJob(stages), NumericJob(stages)])
    later = RelatedMachines(speed, [NumericJob(stages), NumericJob(stages, release=1.0)])
    assert guarantee(later) == guarantee(together) + 1
