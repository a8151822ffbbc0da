"""FIFO: first come, first served, with max shares and without min shares (FLEX 4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.packing_scheme import pack_by_the_book
from oracles.pools import INF
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.fair import Fifo


def test_the_first_job_takes_its_max_share_and_the_next_the_rest() -> None:
    """Jobs that can use 60 each share 100 slots as 60, 40 and none."""
    problem = Claims.of(100, [1, 1, 1], max_share=[60, 60, 60], arrival=[0, 1, 2])
    assert Fifo().share(problem) == [60, 40, 0]


def test_arrival_decides_not_the_position_in_the_list() -> None:
    """The earlier job is first at any place in the list; ties go by place."""
    problem = Claims.of(10, [1, 1, 1], max_share=[6, 6, 6], arrival=[5, 0, 5])
    assert Fifo().share(problem) == [4, 6, 0]


def test_a_higher_priority_goes_first() -> None:
    """Then arrival decides: the last job, of low priority, gets nothing."""
    problem = Claims.of(10, [1, 1, 1, 1], max_share=[4, 4, 4, 4], arrival=[0, 3, 1, 0])
    problem = replace(problem, priority=[1.0, 4.0, 1.0, 0.5])
    assert Fifo().share(problem) == [4, 4, 2, 0]


def test_min_shares_are_ignored() -> None:
    """A later job gets nothing despite its min share."""
    problem = Claims.of(10, [1, 1], min_share=[0, 4], max_share=[10, 10], arrival=[0, 1])
    assert Fifo().share(problem) == [10, 0]


def test_max_shares_of_pools_are_kept() -> None:
    """A pool limited to 3 leaves slots to the later job of another pool."""
    problem = replace(
        Claims.of(10, [1, 1, 1], arrival=[0, 1, 2]),
        group=[0, 0, 1],
        groups=[Group(1, 0, 3), Group(1, 0, INF)],
    )
    assert Fifo().share(problem) == [3, 0, 7]
    around = [Group(1, 0, 2), Group(1, 0, 3, parent=0), Group(1, 0, INF)]
    assert Fifo().share(replace(problem, group=[1, 1, 2], groups=around)) == [2, 0, 8]


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=7),
)
def test_without_min_shares_it_is_the_packing_scheme_by_arrival(
    capacity: int, jobs: list[tuple[int, int]]
) -> None:
    """'An MPS schedule with priority orderings determined by job arrival times' (FLEX 4)."""
    arrival, max_share = [float(at) for at, _ in jobs], [float(m) for _, m in jobs]
    problem = Claims.of(capacity, [1.0] * len(jobs), max_share=max_share, arrival=arrival)
    order = sorted(range(len(jobs)), key=lambda j: (arrival[j], j))
    pieces = pack_by_the_book(capacity, [1.0] * len(jobs), [0.0] * len(jobs), max_share, order)
    first = [held[0][2] if held and held[0][0] == 0 else 0.0 for held in pieces]
    assert Fifo().share(problem) == pytest.approx(first)
