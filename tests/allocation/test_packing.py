"""The malleable packing scheme: three forms of it that must agree, and what they guarantee."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.allocation.packing import Packing, grant, pack, pack_by_the_book, pool_floors
from slotwise.allocation.problem import Claims, Group

INF = float("inf")
Problem = tuple[int, list[float], list[float], list[float], list[int]]


def random_problem(random: Random, jobs_most: int = 9) -> Problem:
    """Jobs that often tie, zero minima, more jobs than slots, minima that fill all slots."""
    count = random.randint(1, jobs_most)
    capacity = random.randint(1, 12)
    work = [random.choice([1.0, 2.0, 4.0, 12.0, random.uniform(0.1, 20)]) for _ in range(count)]
    most = [float(random.randint(1, capacity)) for _ in range(count)]
    least = [float(random.choice([0, 0, 1, random.randint(0, int(m))])) for m in most]
    while sum(least) > capacity:
        least[random.randrange(count)] = 0.0
    order = list(range(count))
    random.shuffle(order)
    return capacity, work, least, most, order


def slots_at(packing: Packing, at: float) -> list[float]:
    """Slots that each job holds at an instant."""
    return [
        sum(slots for start, end, slots in pieces if start <= at < end) for pieces in packing
    ]


def middles(packing: Packing) -> list[float]:
    """An instant within each interval in which nothing changes."""
    instants = sorted(
        {t for pieces in packing for start, end, _ in pieces for t in (start, end)}
    )
    return [(a + b) / 2 for a, b in pairwise(instants) if b - a > 1e-9 * b]


def assert_same(one: Packing, other: Packing) -> None:
    """Both hold the same slots throughout; times agree to 1e-9."""
    for at in middles(one) + middles(other):
        assert slots_at(one, at) == pytest.approx(slots_at(other, at), abs=1e-9)
    for mine, theirs in zip(one, other, strict=True):
        assert (mine[-1][1] if mine else 0) == pytest.approx(
            theirs[-1][1] if theirs else 0, rel=1e-9
        )


def test_a_packing_by_hand() -> None:
    """Work 6, 4, 4 on 4 slots, least 1 each, most 2, 3, 4, in this order, as on paper.

    First 2, 1, 1 until the first is done at 3; then 3 and 1: the second has 1 left and is done
    at 10/3; then the last has 4 slots for its last 2/3.
    """
    expected = [
        [(0, 3, 2)],
        [(0, 3, 1), (3, 10 / 3, 3)],
        [(0, 10 / 3, 1), (10 / 3, 3.5, 4)],
    ]
    for way in (pack, pack_by_the_book):
        packing = way(4, [6, 4, 4], [1, 1, 1], [2, 3, 4], [0, 1, 2])
        for pieces, wanted in zip(packing, expected, strict=True):
            assert pieces == [pytest.approx(piece) for piece in wanted]


@pytest.mark.parametrize("seed", range(20))
def test_the_heap_packs_as_the_book_does(seed: int) -> None:
    """150 random instances each: by events and line by line of Fig. 3, the same schedule."""
    random = Random(seed)
    for _ in range(150):
        problem = random_problem(random)
        assert_same(pack(*problem), pack_by_the_book(*problem))


@pytest.mark.parametrize("seed", range(5))
def test_a_packing_is_feasible(seed: int) -> None:
    """Capacity, least shares while active, most shares, and exactly all work."""
    random = Random(1000 + seed)
    for _ in range(100):
        capacity, work, least, most, order = problem = random_problem(random)
        packing = pack(*problem)
        for at in middles(packing):
            held = slots_at(packing, at)
            assert sum(held) <= capacity + 1e-9
            for j, slots in enumerate(held):
                is_active = at < (packing[j][-1][1] if packing[j] else 0)
                assert (least[j] if is_active else 0) - 1e-9 <= slots <= most[j] + 1e-9
            wanted = sum(m for j, m in enumerate(most) if at < packing[j][-1][1])
            assert sum(held) >= min(capacity, wanted) - 1e-9, "no slot is left idle"
        for j in order:
            area = sum((end - start) * slots for start, end, slots in packing[j])
            assert area == pytest.approx(work[j], rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_granted_is_the_first_interval(seed: int) -> None:
    """`grant` gives the slots with which the packing begins."""
    random = Random(2000 + seed)
    for _ in range(200):
        capacity, work, least, most, order = random_problem(random)
        claims = Claims.of(capacity, work, least=least, most=most)
        begin = slots_at(pack_by_the_book(capacity, work, least, most, order), 0.0)
        assert grant(claims, order) == pytest.approx(begin)


def test_no_jobs_pack_to_nothing() -> None:
    """An empty problem has an empty schedule."""
    assert pack(5, [], [], [], []) == pack_by_the_book(5, [], [], [], []) == []


def test_ten_thousand_jobs_pack() -> None:
    """Many jobs, twice as many as slots: all are done by the time that all work needs."""
    random = Random(7)
    work = [random.uniform(1, 100) for _ in range(10_000)]
    order = sorted(range(10_000), key=work.__getitem__)
    packing = pack(5_000, work, [0.0] * 10_000, [3.0] * 10_000, order)
    ends = [pieces[-1][1] for pieces in packing]
    assert sum(work) / 5_000 <= max(ends) <= sum(work) / 5_000 + 100


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


def test_rounding_does_not_hold_up_the_jobs_behind() -> None:
    """A job whose share plus the rest to its most share rounds below it is full all the same."""
    work = [6.746892761900905, 17.81439234143992, 11.254919869440315, 5.0]
    work += [14.384655905182596, 6.872091706984763]
    most = [3.03162622228328, 4.954750041075838, 1.2020674484416727, 7.551833304489416]
    most += [1.2400482506593415, 7.464176131351932]
    order = [5, 4, 2, 1, 3, 0]
    events = pack(10, work, [0.0] * 6, most, order)
    book = pack_by_the_book(10, work, [0.0] * 6, most, order)
    assert [p[-1][1] for p in events] == pytest.approx([p[-1][1] for p in book], rel=1e-9)
