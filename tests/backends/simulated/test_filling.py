"""Max-min fair rates are those of linear programmes, and no link is overfull."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.max_min import max_min_rates
from slotwise.backends.simulated.network import rates_of_few, rates_of_many
from tiers import examples

LINKS = 5


@st.composite
def shared(draw: st.DrawFn) -> tuple[list[list[int]], list[float]]:
    """Some flows over some of five links of different or equal capacities."""
    capacity = draw(
        st.lists(st.sampled_from([1.0, 2.0, 10.0]) | st.floats(0.5, 9), min_size=5, max_size=5)
    )
    path = st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=3, unique=True)
    return draw(st.lists(path, min_size=1, max_size=7)), capacity


def table_of(paths: list[list[int]]) -> np.ndarray:
    """The paths as rows of equal length, filled up with a link without a limit."""
    width = max(map(len, paths))
    return np.array([path + [LINKS] * (width - len(path)) for path in paths])


@settings(max_examples=examples(20, slow=60))
@given(shared())
def test_rates_equal_those_of_linear_programs(
    case: tuple[list[list[int]], list[float]],
) -> None:
    """Both functions find the lexicographic optimum."""
    paths, capacity = case
    expected = max_min_rates(paths, capacity)
    assert rates_of_few(paths, capacity) == pytest.approx(expected, rel=1e-6)
    many = rates_of_many(table_of(paths), np.array([*capacity, inf]))
    assert many.tolist() == pytest.approx(expected, rel=1e-6)


@settings(max_examples=examples(15, slow=1000))
@given(st.integers(0, 10_000))
def test_many_flows_fill_links_and_no_more(seed: int) -> None:
    """Of hundreds of flows each is stopped by a full link on which none is faster."""
    rng = np.random.default_rng(seed)
    capacity = np.append(rng.choice([1.0, 3.0, rng.uniform(0.1, 20)], 30), inf)
    paths = np.array([rng.choice(31, 4, replace=False) for _ in range(rng.integers(1, 300))])
    rates = rates_of_many(paths, capacity)
    assert rates == pytest.approx(
        rates_of_few([[link for link in path if link < 30] for path in paths], capacity)
    )
    load = np.bincount(paths.ravel(), np.repeat(rates, 4), minlength=31)
    assert (load[:30] <= capacity[:30] * (1 + 1e-12)).all()
    fastest = np.zeros(31)
    np.maximum.at(fastest, paths.ravel(), np.repeat(rates, 4))
    stops = (load >= capacity * (1 - 1e-9))[paths] & (
        rates[:, None] >= fastest[paths] * (1 - 1e-9)
    )
    assert stops.any(axis=1).all()


def test_no_limit_no_rate() -> None:
    """A flow over no link, or over such without a limit, has a rate of inf."""
    assert rates_of_few([(), (0,)], [2.0]) == [inf, 2.0]
    assert rates_of_many(np.array([[1, 1], [0, 1]]), np.array([2.0, inf])).tolist() == [
        inf,
        2.0,
    ]
