"""FAIR: pools first, then the jobs within; guarantees, limits and inner policies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.allocation.fair import Fair
from slotwise.allocation.problem import Claims, Group
from slotwise.model.cluster import Cluster

INF = float("inf")


def claims(
    capacity: int,
    members: list[tuple[int, float, float]],
    groups: list[Group],
    weight: list[float] | None = None,
) -> Claims:
    """Claims of members (group, least, most), in order of arrival."""
    count = len(members)
    return Claims(
        capacity,
        weight=weight or [1.0] * count,
        arrival=[float(number) for number in range(count)],
        work=[],
        least=[least for _, least, _ in members],
        most=[most for _, _, most in members],
        group=[group for group, _, _ in members],
        groups=groups,
        owner=[],
        cluster=Cluster.of_slots(capacity),
    )


def test_pools_share_by_weight_however_many_jobs_they_have() -> None:
    """A pool of weight 2 with one job gets twice what a pool of weight 1 with three gets."""
    problem = claims(
        90,
        [(0, 0, 90), (1, 0, 90), (1, 0, 90), (1, 0, 90)],
        [Group(2, 0, INF), Group(1, 0, INF)],
    )
    assert Fair().share(problem) == pytest.approx([60, 10, 10, 10])


def test_a_pool_gets_its_least_share_first() -> None:
    """A pool guaranteed 80 of 100 slots gets them although another has ten times its weight."""
    problem = claims(100, [(0, 0, 100), (1, 0, 100)], [Group(1, 80, INF), Group(10, 0, INF)])
    assert Fair().share(problem) == pytest.approx([80, 20])


def test_a_pool_cannot_use_more_of_its_least_share_than_its_jobs_can() -> None:
    """A pool guaranteed 80 whose only job can use 5 leaves 95 to the other."""
    problem = claims(100, [(0, 0, 5), (1, 0, 100)], [Group(1, 80, INF), Group(1, 0, INF)])
    assert Fair().share(problem) == pytest.approx([5, 95])


def test_a_pool_without_demand_reserves_nothing() -> None:
    """The guarantee of a pool without jobs is not kept free for it."""
    problem = claims(100, [(0, 0, 100)], [Group(1, 0, INF), Group(9, 90, INF)])
    assert Fair().share(problem) == [100]


def test_a_pool_never_gets_more_than_its_most_share() -> None:
    """Two jobs in a pool limited to 10 get 5 each, even if slots stay free."""
    problem = claims(
        100, [(0, 0, 50), (0, 0, 50), (1, 0, 30)], [Group(5, 0, 10), Group(1, 0, INF)]
    )
    assert Fair().share(problem) == pytest.approx([5, 5, 30])


def test_guarantees_that_do_not_fit_are_scaled_down() -> None:
    """Pools guaranteed 90 and 30 of 60 slots get 45 and 15."""
    problem = claims(60, [(0, 0, 99), (1, 0, 99)], [Group(1, 90, INF), Group(1, 30, INF)])
    assert Fair().share(problem) == pytest.approx([45, 15])


def test_within_a_fair_pool_jobs_share_by_their_weights() -> None:
    """Weights 1 and 3 inside one pool share 40 slots as 10 and 30."""
    problem = claims(40, [(0, 0, 40), (0, 0, 40)], [Group(1, 0, INF)], weight=[1, 3])
    assert Fair().share(problem) == pytest.approx([10, 30])


def test_within_a_fifo_pool_the_earliest_is_served_first_above_least_shares() -> None:
    """The first job takes all but the 2 slots that the third is guaranteed."""
    problem = claims(
        20, [(0, 0, 15), (0, 0, 15), (0, 2, 15)], [Group(1, 0, INF, policy="fifo")]
    )
    assert Fair().share(problem) == pytest.approx([15, 3, 2])


@st.composite
def problems(draw: st.DrawFn) -> Claims:
    """Pools with guarantees, limits and policies; jobs spread over them."""
    weights = st.sampled_from([0.1, 0.3, 1.0, 2.0])
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        least = draw(st.sampled_from([0, 0, 2, 7]))
        most = draw(st.sampled_from([INF, INF, 7, 11]))
        policy = draw(st.sampled_from(["fair", "fifo"]))
        groups.append(Group(draw(weights), least, most, policy))
    members = []
    for _ in range(draw(st.integers(1, 8))):
        most = draw(st.integers(1, 12))
        least = draw(st.integers(0, min(3, most)))
        members.append((draw(st.integers(0, len(groups) - 1)), least, most))
    weight = [draw(weights) for _ in members]
    return claims(draw(st.integers(1, 40)), members, groups, weight)


@given(problems())
def test_all_shares_add_up_and_every_limit_is_kept(problem: Claims) -> None:
    """No slot is wasted that anybody may use; no limit of job or pool is broken."""
    shares = Fair().share(problem)
    of_pool = [
        sum(share for share, g in zip(shares, problem.group, strict=True) if g == number)
        for number in range(len(problem.groups))
    ]
    demand = [
        min(
            group.slots_max,
            sum(m for m, g in zip(problem.most, problem.group, strict=True) if g == number),
        )
        for number, group in enumerate(problem.groups)
    ]
    assert sum(shares) == pytest.approx(min(problem.capacity, sum(demand)))
    for share, most in zip(shares, problem.most, strict=True):
        assert -1e-12 <= share <= most + 1e-9
    for held, most in zip(of_pool, demand, strict=True):
        assert held <= most + 1e-9


@given(problems())
def test_guarantees_are_kept_where_they_fit(problem: Claims) -> None:
    """Each job and each pool has its least share, cut to its demand, if all of them fit."""
    shares = Fair().share(problem)
    owed_of_pool = []
    for number, group in enumerate(problem.groups):
        inside = [j for j, g in enumerate(problem.group) if g == number]
        demand = min(group.slots_max, sum(problem.most[j] for j in inside))
        jobs = sum(problem.least[j] for j in inside)
        owed_of_pool.append(min(demand, max(group.slots_min, jobs)))
        if sum(problem.least[j] for j in inside) > demand:
            return  # The pool's limit goes before its jobs' guarantees.
    if sum(owed_of_pool) > problem.capacity:
        return
    for j, least in enumerate(problem.least):
        assert shares[j] >= least - 1e-9
    for number, owed in enumerate(owed_of_pool):
        held = sum(s for s, g in zip(shares, problem.group, strict=True) if g == number)
        assert held >= owed - 1e-9
