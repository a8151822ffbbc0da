"""The granted slots: the first interval of a packing, within the shares of pools."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.pools import INF, all_fit, children, demand, held_by, owed, pooled, trees
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.grant import grant, pool_floors


def in_pools(problem: Claims, group: list[int], groups: list[Group]) -> Claims:
    """The same claims in these pools."""
    return replace(problem, group=group, groups=groups)


def test_the_least_share_of_a_pool_goes_to_its_jobs_in_priority_order() -> None:
    """A pool guaranteed 6 whose jobs are guaranteed 1 each gives 4 more, 3 to the first."""
    problem = in_pools(
        Claims.of(20, [1, 1, 1], min_share=[1, 1, 0], max_share=[4, 9, 20]),
        [0, 0, 1],
        [Group(1, 6, INF), Group(1, 0, INF)],
    )
    assert pool_floors(problem, [2, 0, 1]) == [4, 2, 0]
    assert grant(problem, [2, 0, 1]) == [4, 2, 14]


def test_the_most_share_of_a_pool_is_hard() -> None:
    """Min shares of 6 and 2 in a pool limited to 4 become 3 and 1; slack goes elsewhere."""
    problem = in_pools(
        Claims.of(20, [1, 1, 1], min_share=[6, 2, 0], max_share=[9, 9, 9]),
        [0, 0, 1],
        [Group(1, 0, 4), Group(1, 0, INF)],
    )
    assert pool_floors(problem, [0, 1, 2]) == [3, 1, 0]
    assert grant(problem, [0, 1, 2]) == [3, 1, 9]


@pytest.mark.parametrize("limit", [INF, 5.0])
def test_claims_may_be_arrays(limit: float) -> None:
    """Arrays as fields and as order grant what lists do, and give plain numbers."""
    work, min_share, max_share, group = (
        [3.0, 1.0, 2.0],
        [1.0, 0.0, 2.0],
        [4.0, 9.0, 6.0],
        [0, 1, 0],
    )
    groups = [Group(1, 4, limit), Group(1, 0, INF)]
    lists = in_pools(
        Claims.of(12, work, min_share=min_share, max_share=max_share), group, groups
    )
    arrays = replace(
        lists,
        min_share=np.array(min_share),
        max_share=np.array(max_share),
        group=np.array(group),
    )
    found = grant(arrays, np.array([1, 2, 0]))
    assert found == grant(lists, [1, 2, 0])
    assert all(type(slots) is float for slots in found)


def test_guarantees_beyond_the_capacity_are_scaled_down() -> None:
    """'The minima are simply normalised if necessary': 30 and 10 of 20 slots are 15 and 5."""
    problem = Claims.of(20, [1, 1], min_share=[30, 10], max_share=[30, 30])
    assert grant(problem, [1, 0]) == [15, 5]


def test_the_least_share_of_an_inner_pool_goes_below_it_in_priority_order() -> None:
    """Guaranteed 9, its pools 2 and 1: the other 6 go to the first, up to 5."""
    problem = pooled(
        20,
        [(1, 0, 9), (2, 0, 9), (3, 0, 20)],
        [
            Group(1, 9, INF),
            Group(1, 2, 5, parent=0),
            Group(1, 1, INF, parent=0),
            Group(1, 0, INF),
        ],
    )
    assert pool_floors(problem, [2, 0, 1]) == [5, 4, 0]
    assert grant(problem, [2, 0, 1]) == [5, 4, 11]


def test_the_most_share_of_an_inner_pool_is_hard() -> None:
    """Min shares of 6 and 2 in pools within one limited to 4 become 3 and 1."""
    problem = pooled(
        20,
        [(1, 6, 9), (2, 2, 9), (3, 0, 9)],
        [
            Group(1, 0, 4),
            Group(1, 0, INF, parent=0),
            Group(1, 0, INF, parent=0),
            Group(1, 0, INF),
        ],
    )
    assert pool_floors(problem, [0, 1, 2]) == [3, 1, 0]
    assert grant(problem, [0, 1, 2]) == [3, 1, 9]
    assert grant(problem, [1, 0, 2], min_share=[0, 0, 0]) == [0, 4, 9]


@given(trees(), st.randoms(use_true_random=False))
def test_floors_are_the_guarantees_of_the_top_pools(problem: Claims, random: Random) -> None:
    """In any order, the floors at the top are their guarantees, scaled to fit."""
    order = list(range(len(problem)))
    random.shuffle(order)
    floors = held_by(problem, pool_floors(problem, order))
    fitting = min(1.0, problem.capacity / max(1e-9, owed(problem, -1)))
    for pool in children(problem, -1):
        assert floors[pool] == pytest.approx(owed(problem, pool) * fitting)


@given(trees(), st.randoms(use_true_random=False))
def test_grants_keep_all_limits_and_use_all_slots(problem: Claims, random: Random) -> None:
    """Max shares of jobs and pools hold, min shares if they fit, and no slot idles."""
    order = list(range(len(problem)))
    random.shuffle(order)
    slots = grant(problem, order)
    held, pools = held_by(problem, slots), range(len(problem.groups))
    assert all(s <= m + 1e-9 for s, m in zip(slots, problem.max_share, strict=True))
    assert all(held[n] <= demand(problem, n) + 1e-9 for n in pools)
    assert sum(slots) == pytest.approx(min(problem.capacity, demand(problem, -1)))
    if all_fit(problem):
        assert all(held[n] >= owed(problem, n) - 1e-9 for n in pools)
        assert all(s >= x - 1e-9 for s, x in zip(slots, problem.min_share, strict=True))


@given(trees(), st.randoms(use_true_random=False))
def test_limits_hold_without_min_shares(problem: Claims, random: Random) -> None:
    """As for FIFO: in each limited pool later jobs get what the first ones leave."""
    order = list(range(len(problem)))
    random.shuffle(order)
    slots = grant(problem, order, min_share=[0.0] * len(problem))
    held = held_by(problem, slots)
    assert all(held[n] <= demand(problem, n) + 1e-9 for n in range(len(problem.groups)))
    assert sum(slots) == pytest.approx(min(problem.capacity, demand(problem, -1)))
    for count in range(1, len(order) + 1):
        first = order[:count]
        max_share = [top if j in first else 0.0 for j, top in enumerate(problem.max_share)]
        able = min(problem.capacity, demand(replace(problem, max_share=max_share), -1))
        assert sum(slots[j] for j in first) == pytest.approx(able)
