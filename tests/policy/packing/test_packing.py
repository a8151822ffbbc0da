"""The malleable packing scheme: its three implementations agree, and its guarantees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.packing_scheme import pack_by_the_book
from slotwise.policy import packing
from slotwise.policy.allocator import Claims
from slotwise.policy.compiled import has_numba
from slotwise.policy.grant import grant
from slotwise.policy.packing import (
    Packer,
    Packing,
    completions,
    pack,
)
from tiers import examples

Problem = tuple[int, list[float], list[float], list[float], list[int]]

needs_numba = pytest.mark.skipif(not has_numba(), reason="needs slotwise[fast]")


def pack_compiled(
    capacity: int,
    work: list[float],
    min_share: list[float],
    max_share: list[float],
    order: list[int],
) -> Packing:
    """The packing by machine code, for any size."""
    packer = Packer(capacity, work, min_share, max_share, is_fast=True)
    return packer.pieces(order).by_claim(len(work))


WAYS = [
    pytest.param(pack_by_the_book, id="book"),
    pytest.param(pack, id="events"),
    pytest.param(pack_compiled, id="compiled", marks=needs_numba),
]


def random_problem(random: Random, jobs_most: int = 9) -> Problem:
    """Jobs that often tie, zero minima, more jobs than slots, minima that fill all slots."""
    count = random.randint(1, jobs_most)
    capacity = random.randint(1, 12)
    work = [random.choice([1.0, 2.0, 4.0, 12.0, random.uniform(0.1, 20)]) for _ in range(count)]
    max_share = [float(random.randint(1, capacity)) for _ in range(count)]
    min_share = [float(random.choice([0, 0, 1, random.randint(0, int(m))])) for m in max_share]
    while sum(min_share) > capacity:
        min_share[random.randrange(count)] = 0.0
    order = list(range(count))
    random.shuffle(order)
    return capacity, work, min_share, max_share, order


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


@pytest.mark.parametrize("way", WAYS)
def test_a_packing_by_hand(way: Callable[..., Packing]) -> None:
    """Work 6, 4, 4 on 4 slots, least 1 each, most 2, 3, 4, in this order, as on paper.

    First 2, 1, 1 until the first is done at 3; then 3 and 1: the second has 1 left and is done
    at 10/3; then the last has 4 slots for its last 2/3.
    """
    expected = [
        [(0, 3, 2)],
        [(0, 3, 1), (3, 10 / 3, 3)],
        [(0, 10 / 3, 1), (10 / 3, 3.5, 4)],
    ]
    packing = way(4, [6, 4, 4], [1, 1, 1], [2, 3, 4], [0, 1, 2])
    for pieces, wanted in zip(packing, expected, strict=True):
        assert pieces == [pytest.approx(piece) for piece in wanted]


@pytest.mark.parametrize("seed", range(examples(3, slow=20)))
def test_the_heap_packs_like_the_reference(seed: int) -> None:
    """150 random instances each: by events and line by line of Fig. 3, the same schedule."""
    random = Random(seed)
    for _ in range(150):
        problem = random_problem(random)
        assert_same(pack(*problem), pack_by_the_book(*problem))


@needs_numba
@pytest.mark.parametrize("seed", range(examples(3, slow=10)))
def test_machine_code_gives_the_same_bits(seed: int) -> None:
    """100 random instances each: completions and pieces equal those of Python exactly."""
    random = Random(3000 + seed)
    for _ in range(100):
        capacity, work, min_share, max_share, order = random_problem(random, jobs_most=40)
        one = Packer(capacity, work, min_share, max_share, is_fast=False)
        other = Packer(capacity, work, min_share, max_share, is_fast=True)
        assert one.completions(order).tolist() == other.completions(order).tolist()
        count = len(work)
        assert one.pieces(order).by_claim(count) == other.pieces(order).by_claim(count)


@given(st.data())
def test_any_real_shares_pack_like_the_reference(data: st.DataObject) -> None:
    """Shares of any size, min shares that fill the capacity but for rounding, equal jobs."""
    count = data.draw(st.integers(1, 7))
    sizes = st.sampled_from([0.1, 1 / 3, 1.0, 7.0]) | st.floats(0.01, 100)
    work = data.draw(st.lists(sizes, min_size=count, max_size=count))
    max_share = data.draw(st.lists(sizes, min_size=count, max_size=count))
    capacity = data.draw(st.floats(0.1, 2)) * sum(max_share) / 2
    max_share = [min(m, capacity) for m in max_share]
    shares = data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    min_share = [share * m for share, m in zip(shares, max_share, strict=True)]
    if (total := sum(min_share)) > capacity:
        min_share = [share * capacity / total for share in min_share]
    order = data.draw(st.permutations(range(count)))
    book = pack_by_the_book(capacity, work, min_share, max_share, order)
    ends = [pieces[-1][1] for pieces in book]
    assert completions(capacity, work, min_share, max_share, order) == pytest.approx(
        ends, rel=1e-9
    )
    packed = pack(capacity, work, min_share, max_share, order)
    assert [p[-1][1] for p in packed] == pytest.approx(ends, rel=1e-9)
    for pieces, amount in zip(packed, work, strict=True):
        area = sum((end - start) * slots for start, end, slots in pieces)
        assert area == pytest.approx(amount, rel=1e-9)


@pytest.mark.parametrize("seed", range(examples(2, slow=5)))
def test_completions_are_the_ends_of_the_pieces(seed: int) -> None:
    """Completions without the schedule equal those of the schedule, also from plain lists."""
    random = Random(4000 + seed)
    for _ in range(100):
        capacity, work, min_share, max_share, order = random_problem(random)
        packed = pack(capacity, work, min_share, max_share, order)
        found = completions(
            capacity, *map(np.array, (work, min_share, max_share)), np.array(order)
        )
        assert found.tolist() == [pieces[-1][1] for pieces in packed]


def test_neighbouring_pieces_differ() -> None:
    """A job whose min and max share are equal has one piece, although its turn comes."""
    packing = pack(4, [2.0, 6.0], [1.0, 2.0], [4.0, 2.0], [0, 1])
    assert packing == [[(0.0, 1.0, 2.0)], [(0.0, 3.0, 2.0)]]


@pytest.mark.parametrize("seed", range(examples(2, slow=5)))
def test_a_packing_is_feasible(seed: int) -> None:
    """Capacity, min shares while active, max shares, and exactly all work."""
    random = Random(1000 + seed)
    for _ in range(100):
        capacity, work, min_share, max_share, order = problem = random_problem(random)
        packing = pack(*problem)
        for at in middles(packing):
            held = slots_at(packing, at)
            assert sum(held) <= capacity + 1e-9
            for j, slots in enumerate(held):
                is_active = at < (packing[j][-1][1] if packing[j] else 0)
                assert (min_share[j] if is_active else 0) - 1e-9 <= slots <= max_share[j] + 1e-9
            wanted = sum(m for j, m in enumerate(max_share) if at < packing[j][-1][1])
            assert sum(held) >= min(capacity, wanted) - 1e-9, "no slot is left idle"
        for j in order:
            area = sum((end - start) * slots for start, end, slots in packing[j])
            assert area == pytest.approx(work[j], rel=1e-9)


@pytest.mark.parametrize("seed", range(examples(2, slow=5)))
def test_the_grant_is_the_first_interval_of_the_packing(seed: int) -> None:
    """`grant` gives the slots with which the packing begins."""
    random = Random(2000 + seed)
    for _ in range(200):
        capacity, work, min_share, max_share, order = random_problem(random)
        claims = Claims.of(capacity, work, min_share=min_share, max_share=max_share)
        begin = slots_at(pack_by_the_book(capacity, work, min_share, max_share, order), 0.0)
        assert grant(claims, order) == pytest.approx(begin)


def test_no_jobs_pack_to_nothing() -> None:
    """An empty problem has an empty schedule."""
    assert pack(5, [], [], [], []) == pack_by_the_book(5, [], [], [], []) == []
    assert completions(5, [], [], [], []).tolist() == []


def test_hundreds_of_jobs_pack_like_the_reference() -> None:
    """Many events, with min shares that are no whole numbers: the same completion times."""
    random, count = Random(11), examples(300, slow=1000)
    work = [random.choice([5.0, random.uniform(1, 100)]) for _ in range(count)]
    max_share = [float(random.randint(1, 40)) for _ in work]
    min_share = [random.choice([0.0, 0.1, m / 7]) for m in max_share]
    order = sorted(range(count), key=work.__getitem__)
    book = pack_by_the_book(5 * count, work, min_share, max_share, order)
    ends = [pieces[-1][1] for pieces in book]
    assert completions(5 * count, work, min_share, max_share, order) == pytest.approx(
        ends, rel=1e-9
    )


@needs_numba
def test_the_size_decides_whether_machine_code_is_used() -> None:
    """One large problem, or a middling one in many orders, is worth machine code."""
    small, large = [1.0] * 10, [1.0] * 5_000
    assert not Packer(10, small, small, small, packings=1000).is_fast
    assert Packer(5_000, large, large, large).is_fast
    middling = [1.0] * 200
    assert Packer(200, *[middling] * 3, packings=5_000).is_fast


def test_packing_works_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numba there is no message: the results are the same."""
    many = [1.0] * 5_000
    with_numba = completions(50, many, [0.0] * 5_000, many, range(5_000))
    monkeypatch.setattr(packing, "has_numba", lambda: False)
    assert not Packer(50, many, many, many).is_fast
    without = completions(50, many, [0.0] * 5_000, many, range(5_000))
    assert with_numba.tolist() == without.tolist()


def test_small_problems_do_not_import_numba() -> None:
    """A separate process does not even import it."""
    code = """
import sys
from slotwise.policy.packing import pack
pack(4, [1.0] * 500, [0.0] * 500, [1.0] * 500, list(range(500)))
print("numba" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "False"


def test_ten_thousand_jobs_pack() -> None:
    """Many jobs, twice as many as slots: all are done by the time that all work needs."""
    random = Random(7)
    work = [random.uniform(1, 100) for _ in range(10_000)]
    order = sorted(range(10_000), key=work.__getitem__)
    packing = pack(5_000, work, [0.0] * 10_000, [3.0] * 10_000, order)
    ends = [pieces[-1][1] for pieces in packing]
    assert sum(work) / 5_000 <= max(ends) <= sum(work) / 5_000 + 100


def test_rounding_does_not_delay_later_jobs() -> None:
    """A job below its max share only by a rounding error counts as being at it."""
    work = [6.746892761900905, 17.81439234143992, 11.254919869440315, 5.0]
    work += [14.384655905182596, 6.872091706984763]
    max_share = [3.03162622228328, 4.954750041075838, 1.2020674484416727, 7.551833304489416]
    max_share += [1.2400482506593415, 7.464176131351932]
    order = [5, 4, 2, 1, 3, 0]
    events = pack(10, work, [0.0] * 6, max_share, order)
    book = pack_by_the_book(10, work, [0.0] * 6, max_share, order)
    assert [p[-1][1] for p in events] == pytest.approx([p[-1][1] for p in book], rel=1e-9)
