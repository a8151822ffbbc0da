"""FAIR: pools first, then their contents; min shares, max shares and inner policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings

from oracles.pools import (
    INF,
    by_filling,
    by_programs,
    children,
    demand,
    held_by,
    inside,
    jobs_in,
    owed,
    pooled,
    trees,
)
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.fair import (
    Fair,
)
from tiers import examples

ALL = Group(1, 0, INF)


def test_pools_share_by_weight_however_many_jobs_they_have() -> None:
    """A pool of weight 2 with one job gets twice what a pool of weight 1 with three gets."""
    problem = pooled(
        90,
        [(0, 0, 90), (1, 0, 90), (1, 0, 90), (1, 0, 90)],
        [Group(2, 0, INF), Group(1, 0, INF)],
    )
    assert Fair().share(problem) == pytest.approx([60, 10, 10, 10])


def test_a_pool_gets_its_min_share_first() -> None:
    """A pool guaranteed 80 of 100 slots gets them although another has ten times its weight."""
    problem = pooled(100, [(0, 0, 100), (1, 0, 100)], [Group(1, 80, INF), Group(10, 0, INF)])
    assert Fair().share(problem) == pytest.approx([80, 20])


def test_a_pool_uses_its_min_share_only_as_far_as_its_jobs_can() -> None:
    """A pool guaranteed 80 whose only job can use 5 leaves 95 to the other."""
    problem = pooled(100, [(0, 0, 5), (1, 0, 100)], [Group(1, 80, INF), Group(1, 0, INF)])
    assert Fair().share(problem) == pytest.approx([5, 95])


def test_a_pool_without_demand_reserves_nothing() -> None:
    """The guarantee of a pool without jobs is not kept free for it."""
    problem = pooled(100, [(0, 0, 100)], [Group(1, 0, INF), Group(9, 90, INF)])
    assert Fair().share(problem) == [100]


def test_a_pool_never_exceeds_its_max_share() -> None:
    """Two jobs in a pool limited to 10 get 5 each, even if slots stay free."""
    problem = pooled(
        100, [(0, 0, 50), (0, 0, 50), (1, 0, 30)], [Group(5, 0, 10), Group(1, 0, INF)]
    )
    assert Fair().share(problem) == pytest.approx([5, 5, 30])


def test_guarantees_that_do_not_fit_are_scaled_down() -> None:
    """Pools guaranteed 90 and 30 of 60 slots get 45 and 15."""
    problem = pooled(60, [(0, 0, 99), (1, 0, 99)], [Group(1, 90, INF), Group(1, 30, INF)])
    assert Fair().share(problem) == pytest.approx([45, 15])


def test_within_a_fair_pool_jobs_share_by_their_weights() -> None:
    """Weights 1 and 3 inside one pool share 40 slots as 10 and 30."""
    problem = pooled(40, [(0, 0, 40), (0, 0, 40)], [Group(1, 0, INF)], weight=[1, 3])
    assert Fair().share(problem) == pytest.approx([10, 30])


def test_a_fifo_pool_serves_the_earliest_job_first_above_min_shares() -> None:
    """The first job takes all slots except for the third job's min share of 2."""
    problem = pooled(
        20, [(0, 0, 15), (0, 0, 15), (0, 2, 15)], [Group(1, 0, INF, policy="fifo")]
    )
    assert Fair().share(problem) == pytest.approx([15, 3, 2])


def test_the_rest_of_a_fifo_pool_goes_by_priority_then_arrival() -> None:
    """Of 20 slots the third job, of high priority, takes 15; the first gets the rest."""
    problem = pooled(
        20,
        [(0, 0, 15), (0, 0, 15), (0, 0, 15)],
        [Group(1, 0, INF, policy="fifo")],
        priority=[1, 1, 2],
    )
    assert Fair().share(problem) == [5, 0, 15]


def test_pools_within_a_pool_share_what_it_gets() -> None:
    """Weights 2 and 1 at the top give 60 and 30; the 60 are shared as 1 and 3 below."""
    groups = [
        Group(2, 0, INF),
        Group(1, 0, INF, parent=0),
        Group(3, 0, INF, parent=0),
        Group(1, 0, INF),
    ]
    problem = pooled(90, [(1, 0, 90), (2, 0, 90), (3, 0, 90)], groups)
    assert Fair().share(problem) == pytest.approx([15, 45, 30])


def test_slots_that_a_pool_leaves_go_to_its_siblings_first() -> None:
    """The second pool uses 5 of its 45: its sibling takes 55, and the other pool 30."""
    groups = [
        Group(2, 0, INF),
        Group(1, 0, INF, parent=0),
        Group(3, 0, INF, parent=0),
        Group(1, 0, INF),
    ]
    problem = pooled(90, [(1, 0, 90), (2, 0, 5), (3, 0, 90)], groups)
    assert Fair().share(problem) == pytest.approx([55, 5, 30])


def test_guarantees_of_pools_within_a_pool_are_owed_to_it() -> None:
    """A pool of low weight gets 70 of 100: its own 10 do not matter, given 40 and 30 inside."""
    groups = [
        Group(1, 10, INF),
        Group(1, 40, INF, parent=0),
        Group(1, 30, INF, parent=0),
        Group(99, 0, INF),
    ]
    problem = pooled(100, [(1, 0, 99), (2, 0, 99), (3, 0, 99)], groups)
    assert Fair().share(problem) == pytest.approx([40, 30, 30])


def test_a_limit_goes_before_the_guarantees_within() -> None:
    """Pools guaranteed 40 and 20 in one limited to 30 get 20 and 10."""
    groups = [
        Group(1, 0, 30),
        Group(1, 40, INF, parent=0),
        Group(1, 20, INF, parent=0),
        Group(1, 0, INF),
    ]
    problem = pooled(100, [(1, 0, 99), (2, 0, 99), (3, 0, 60)], groups)
    assert Fair().share(problem) == pytest.approx([20, 10, 60])


def test_a_pool_whose_pools_have_no_demand_reserves_nothing() -> None:
    """Neither the guarantee of the inner pool nor that of the outer pool is kept free."""
    groups = [Group(1, 50, INF), Group(1, 20, INF, parent=0), Group(1, 0, INF)]
    assert Fair().share(pooled(100, [(2, 0, 100)], groups)) == [100]


def test_the_share_of_a_job_does_not_depend_on_its_number_of_phases() -> None:
    """A job of three phases beside a job of one has half of 12 slots, and 2 for each phase."""
    problem = pooled(12, [(0, 0, 12)] * 3 + [(0, 0, 36)], [ALL], jobs=[0, 0, 0, 3])
    assert Fair().share(problem) == pytest.approx([2, 2, 2, 6])


def test_a_job_of_half_the_weight_has_half_the_share_whatever_its_phases() -> None:
    """Four phases of weight 1 beside one of weight 2 get 4 of 12 slots together."""
    members, weight = [(0, 0, 12)] * 4 + [(0, 0, 36)], [1.0, 1, 1, 1, 2]
    problem = pooled(12, members, [ALL], weight, jobs=[0, 0, 0, 0, 4])
    assert Fair().share(problem) == pytest.approx([1, 1, 1, 1, 8])


def test_a_phase_leaves_what_it_cannot_use_to_the_others_of_its_job() -> None:
    """Of the 6 slots of a job, a phase with one task takes 1, the others 2.5 each."""
    problem = pooled(
        12, [(0, 0, 1), (0, 0, 12), (0, 0, 12), (0, 0, 36)], [ALL], jobs=[0, 0, 0, 3]
    )
    assert Fair().share(problem) == pytest.approx([1, 2.5, 2.5, 6])


def test_the_min_share_of_a_phase_comes_first_and_counts_into_that_of_its_job() -> None:
    """A phase guaranteed 5 has them; the guarantee of the job is below its 6 slots, so that
    its other phases share 1. A guarantee of 8 raises the job to 8."""
    limits = [(0, 0, 12), (0, 0, 12), (0, 0, 36)]
    problem = pooled(12, [(0, 5, 12), *limits], [ALL], jobs=[0, 0, 0, 3])
    assert Fair().share(problem) == pytest.approx([5, 0.5, 0.5, 6])
    problem = pooled(12, [(0, 8, 12), *limits], [ALL], jobs=[0, 0, 0, 3])
    assert Fair().share(problem) == pytest.approx([8, 0, 0, 4])


def test_a_fifo_pool_serves_the_phases_of_a_job_in_their_order() -> None:
    """The first job uses 9 of 12 slots with both phases, the second the other 3."""
    fifo = Group(1, 0, INF, policy="fifo")
    problem = pooled(12, [(0, 0, 6), (0, 0, 3), (0, 0, 12)], [fifo], jobs=[0, 0, 2])
    assert Fair().share(problem) == [6, 3, 3]


def in_tiny_steps(problem: Claims, steps: int) -> list[float]:
    """The shares if small parts of the slots go to pool, job and phase one after the other.

    For one level of pools without limits, without guarantees. Each part goes to the pool that
    has least for its weight and can use more, in it to such a job, and in that to such a phase.
    """
    part, shares = problem.capacity / steps, [0.0] * len(problem)

    def lowest(sets: Sequence[tuple[float, Sequence[int]]]) -> Sequence[int]:
        open_sets = [
            (sum(shares[j] for j in some) / weight, n, some)
            for n, (weight, some) in enumerate(sets)
            if any(shares[j] + part / 2 < problem.max_share[j] for j in some)
        ]
        return min(open_sets)[2] if open_sets else ()

    for _ in range(steps):
        pools = [(group.weight, inside(problem, n)) for n, group in enumerate(problem.groups)]
        pool = lowest(pools)
        if not pool:
            break
        jobs = jobs_in(problem, problem.group[pool[0]])
        job = lowest([(problem.weight[some[0]], some) for some in jobs])
        (phase,) = lowest([(1.0, [j]) for j in job])
        shares[phase] += part
    return shares


@pytest.mark.parametrize("seed", range(examples(5, slow=40)))
def test_it_is_what_is_given_out_in_tiny_steps(seed: int) -> None:
    """To pools, in them to jobs, in these to phases: each time to the one with the least."""
    random = Random(seed)
    groups = [Group(random.choice([1, 2, 3]), 0, INF) for _ in range(random.randint(1, 3))]
    members, jobs = list[tuple[int, float, float]](), list[int]()
    for number in range(random.randint(2, 8)):
        job = random.choice([number, *jobs])
        group = members[job][0] if job < number else random.randrange(len(groups))
        members.append((group, 0, random.choice([1, 2, 5, 9])))
        jobs.append(job)
    weights = [random.choice([1.0, 2.0]) for _ in jobs]
    problem = pooled(12, members, groups, [weights[job] for job in jobs], jobs=jobs)
    expected = pytest.approx(in_tiny_steps(problem, 6000), abs=0.02)
    assert Fair().share(problem) == expected


@settings(max_examples=examples(20, slow=1000))
@given(trees())
def test_it_is_what_filling_in_exact_fractions_gives(problem: Claims) -> None:
    """All shares in a pool rise together, from min shares to max shares."""
    exact = pytest.approx(by_filling(problem), rel=1e-9, abs=1e-9)
    assert Fair().share(problem) == exact


@pytest.mark.parametrize("seed", range(examples(4, slow=12)))
def test_it_is_the_lexicographic_optimum_at_the_top_and_then_below(seed: int) -> None:
    """By linear programs over all limits of the tree at once."""
    problem = random_tree(Random(seed))
    exact = pytest.approx(by_programs(problem), abs=1e-4)
    assert Fair().share(problem) == exact


def random_tree(random: Random) -> Claims:
    """Fair pools three deep, with limits, and guarantees that fit."""
    groups = [Group(random.choice([1, 2]), 0, random.choice([INF, 8])) for _ in range(2)]
    for parent in (0, 0, 1, 2, 2):
        low, high = random.choice([0, 1, 2]), random.choice([INF, 5, 6.5])
        groups.append(Group(random.choice([0.5, 1, 2]), low, high, parent=parent))
    members = [
        (random.choice([3, 4, 5, 6]), random.choice([0, 0.5]), random.randint(1, 6))
        for _ in range(random.randint(3, 7))
    ]
    jobs = [random.choice([n, random.randint(0, n)]) for n in range(len(members))]
    jobs = [jobs[job] if jobs[jobs[job]] == jobs[job] else n for n, job in enumerate(jobs)]
    weights = [random.choice([1.0, 3.0]) for _ in members]
    weight = [weights[job] for job in jobs]
    return pooled(random.randint(14, 24), members, groups, weight, jobs=jobs)


@settings(max_examples=examples(20, slow=1000))
@given(trees())
def test_every_limit_is_kept_and_no_slot_is_left(problem: Claims) -> None:
    """Max shares of jobs and pools hold; all slots that some job may use are used."""
    shares = Fair().share(problem)
    assert sum(shares) == pytest.approx(min(problem.capacity, demand(problem, -1)))
    for part, max_share in zip(shares, problem.max_share, strict=True):
        assert -1e-12 <= part <= max_share + 1e-9
    for number, held in enumerate(held_by(problem, shares)):
        assert held <= demand(problem, number) + 1e-9


@settings(max_examples=examples(20, slow=1000))
@given(trees())
def test_guarantees_are_kept_or_scaled_down_together(problem: Claims) -> None:
    """The guarantees of inner pools fit into the outer one, or all get the same part."""
    shares = Fair().share(problem)
    held = [*held_by(problem, shares), float(problem.capacity)]
    for pool in range(-1, len(problem.groups)):
        below = [(held[n], owed(problem, n)) for n in children(problem, pool)]
        below = below or [(shares[j], problem.min_share[j]) for j in inside(problem, pool)]
        kept = min(1.0, held[pool] / max(1e-12, sum(due for _, due in below)))
        for part, due in below:
            assert part >= due * kept - 1e-9


@settings(max_examples=examples(20, slow=1000))
@given(trees())
def test_no_sibling_has_more_for_its_weight_than_another_could_use(problem: Claims) -> None:
    """Of two siblings, one below its max share and one above its min share, the first has more

    for its weight. This characterises the shares of a fair pool.
    """
    shares = Fair().share(problem)
    held = held_by(problem, shares)
    columns = shares, problem.min_share, problem.max_share
    for pool in range(-1, len(problem.groups)):
        if pool >= 0 and problem.groups[pool].policy == "fifo":
            continue
        below = children(problem, pool)
        jobs = [] if below else jobs_in(problem, pool)
        siblings = [
            [
                (problem.groups[n].weight, held[n], owed(problem, n), demand(problem, n))
                for n in below
            ],
            [
                (problem.weight[job[0]], *(sum(column[j] for j in job) for column in columns))
                for job in jobs
            ],
            *[[(1.0, *(column[j] for column in columns)) for j in job] for job in jobs],
        ]
        for parts in siblings:
            could_use = [part / w for w, part, _, high in parts if part < high - 1e-9]
            could_give = [part / w for w, part, low, _ in parts if part > low + 1e-9]
            if could_use and could_give:
                assert min(could_use) >= max(could_give) * (1 - 1e-9) - 1e-9


def test_many_claims_get_the_same_shares() -> None:
    """3,000 claims in 60 pools, three deep, against filling in exact fractions."""
    rng = np.random.default_rng(1)
    groups = [Group(w, 0, INF) for w in rng.uniform(0.1, 3, 4)]
    for number in range(16):
        low = int(rng.integers(0, 40))
        groups.append(Group(rng.uniform(0.1, 3), low, INF, parent=number % 4))
    for number in range(40):
        policy = "fifo" if number % 5 == 0 else "fair"
        limit = INF if number % 3 else 50.0
        groups.append(Group(rng.uniform(0.1, 3), 5, limit, policy, 4 + number % 16))
    max_share = rng.integers(1, 30, 3000).astype(float)
    members = [
        (int(rng.integers(20, 60)), float(rng.choice([0.0, 0.0, 0.25])), float(top))
        for top in max_share
    ]
    # Jobs of one, two and three phases.
    jobs = [number - (0, 0, 1, 0, 1, 2)[number % 6] for number in range(3000)]
    members = [(members[job][0], *members[n][1:]) for n, job in enumerate(jobs)]
    weights = rng.choice([0.25, 1.0, 3.0], 3000).tolist()
    problem = pooled(2000, members, groups, [weights[job] for job in jobs], jobs=jobs)
    shares = Fair().share(problem)
    assert shares == pytest.approx(by_filling(problem), rel=1e-9, abs=1e-9)
    assert sum(shares) == pytest.approx(2000)


def test_many_claims_of_one_pool_get_the_same_shares() -> None:
    """A pool of 300 jobs whose weights lie far apart, with priorities, served in turn."""
    rng = np.random.default_rng(2)
    weight = (10.0 ** rng.uniform(-3, 3, 300)).tolist()
    members = [(0, 0.0, float(top)) for top in rng.uniform(0.5, 3, 300)]
    for policy in ("fair", "fifo"):
        problem = pooled(
            210, members, [Group(1, 0, INF, policy)], weight, rng.integers(1, 4, 300)
        )
        assert Fair().share(problem) == pytest.approx(by_filling(problem), rel=1e-9, abs=1e-9)
        one = replace(problem, capacity=180)
        assert sum(Fair().share(one)) == pytest.approx(180)
