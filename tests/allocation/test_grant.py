"""What is put in force: the first interval of a packing, within the limits of pools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.allocation.grant import grant, pool_floors
from slotwise.allocation.problem import Claims, Group

INF = float("inf")


def in_pools(problem: Claims, group: list[int], groups: list[Group]) -> Claims:
    """The same claims in these pools."""
    return replace(problem, group=group, groups=groups)


def test_the_least_share_of_a_pool_goes_to_its_jobs_in_priority_order() -> None:
    """A pool guaranteed 6 whose jobs are guaranteed 1 each owes 4 more, the first of them 3."""
    problem = in_pools(
        Claims.of(20, [1, 1, 1], least=[1, 1, 0], most=[4, 9, 20]),
        [0, 0, 1],
        [Group(1, 6, INF), Group(1, 0, INF)],
    )
    assert pool_floors(problem, [2, 0, 1]) == [4, 2, 0]
    assert grant(problem, [2, 0, 1]) == [4, 2, 14]


def test_the_most_share_of_a_pool_is_hard() -> None:
    """Least shares of 6 and 2 in a pool limited to 4 become 3 and 1; slack goes elsewhere."""
    problem = in_pools(
        Claims.of(20, [1, 1, 1], least=[6, 2, 0], most=[9, 9, 9]),
        [0, 0, 1],
        [Group(1, 0, 4), Group(1, 0, INF)],
    )
    assert pool_floors(problem, [0, 1, 2]) == [3, 1, 0]
    assert grant(problem, [0, 1, 2]) == [3, 1, 9]


@pytest.mark.parametrize("limit", [INF, 5.0])
def test_claims_may_be_arrays(limit: float) -> None:
    """Arrays as fields and as order grant what lists do, and give plain numbers."""
    work, least, most, group = [3.0, 1.0, 2.0], [1.0, 0.0, 2.0], [4.0, 9.0, 6.0], [0, 1, 0]
    groups = [Group(1, 4, limit), Group(1, 0, INF)]
    lists = in_pools(Claims.of(12, work, least=least, most=most), group, groups)
    arrays = replace(lists, least=np.array(least), most=np.array(most), group=np.array(group))
    found = grant(arrays, np.array([1, 2, 0]))
    assert found == grant(lists, [1, 2, 0])
    assert all(type(slots) is float for slots in found)


def test_guarantees_beyond_the_capacity_are_normalised() -> None:
    """'The minima are simply normalised if necessary': 30 and 10 of 20 slots are 15 and 5."""
    problem = Claims.of(20, [1, 1], least=[30, 10], most=[30, 30])
    assert grant(problem, [1, 0]) == [15, 5]


@given(st.data())
def test_grants_keep_all_limits_and_leave_no_slot(data: st.DataObject) -> None:
    """Jobs' and pools' most shares hold, guarantees too where they fit, and nothing idles."""
    count = data.draw(st.integers(1, 6))
    most = [data.draw(st.integers(1, 9)) for _ in range(count)]
    least = [data.draw(st.integers(0, min(2, m))) for m in most]
    groups = [
        Group(1, data.draw(st.integers(0, 5)), data.draw(st.sampled_from([INF, 5, 8])))
        for _ in range(2)
    ]
    group = [data.draw(st.integers(0, 1)) for _ in range(count)]
    order = data.draw(st.permutations(range(count)))
    capacity = data.draw(st.integers(1, 25))
    problem = in_pools(
        Claims.of(capacity, [1.0] * count, least=least, most=most), group, groups
    )
    slots = grant(problem, order)
    held = [sum(s for s, g in zip(slots, group, strict=True) if g == n) for n in (0, 1)]
    demand = [
        min(pool.slots_max, sum(m for m, g in zip(most, group, strict=True) if g == n))
        for n, pool in enumerate(groups)
    ]
    assert all(s <= m + 1e-9 for s, m in zip(slots, most, strict=True))
    assert all(h <= d + 1e-9 for h, d in zip(held, demand, strict=True))
    assert sum(slots) == pytest.approx(min(capacity, sum(demand)))
    jobs_owed = [sum(x for x, g in zip(least, group, strict=True) if g == n) for n in (0, 1)]
    owed = [
        min(d, max(pool.slots_min, jobs))
        for d, pool, jobs in zip(demand, groups, jobs_owed, strict=True)
    ]
    if sum(owed) <= capacity:
        assert all(h >= o - 1e-9 for h, o in zip(held, owed, strict=True))
        if all(jobs <= d for jobs, d in zip(jobs_owed, demand, strict=True)):
            assert all(s >= x - 1e-9 for s, x in zip(slots, least, strict=True))
