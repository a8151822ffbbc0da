"""Many costs at once: each is what it says alone, whatever kinds stand side by side."""

from __future__ import annotations

from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oracles.problems import costs
from slotwise.core.costs import Costs
from slotwise.core.objective import Cost, Line, Steps, met_until

INSTANTS = st.sampled_from([0.0, 3.0, met_until(3.0), np.nextafter(met_until(3.0), inf)])


@given(st.lists(costs(), min_size=1, max_size=6), st.data())
def test_vectorized_costs_equal_single_ones(each: list[Cost], data: st.DataObject) -> None:
    """At any completions, on the steps and a moment later too, to the last bit."""
    instants = [data.draw(INSTANTS | st.floats(0, 60)) for _ in each]
    at_once = Costs(each).at(np.array(instants))
    assert at_once.tolist() == [cost.at(at) for cost, at in zip(each, instants, strict=True)]


@given(
    st.lists(costs("line hinge steps"), min_size=1, max_size=6),
    st.sampled_from([-1.0, 0.0, 0.25, 1.0, 1.5]) | st.floats(-5, 50),
)
def test_the_vectorized_latest_completion_equals_the_single_one(
    each: list[Cost], level: float
) -> None:
    """For any level, those that a step costs exactly among them."""
    assert Costs(each).latest(level).tolist() == [cost.latest(level) for cost in each]


def test_costs_may_have_different_numbers_of_steps() -> None:
    """The last step has none behind it, and a job without steps costs nothing."""
    many = Steps(((1.0, 5.0), (2.0, 6.0), (3.0, 9.0)))
    some = Costs([many, Line(1.0), Steps(((2.0, 1.0),)), Steps(())])
    assert some.at(np.array([2.5, 2.5, 2.5, 2.5])).tolist() == [6.0, 2.5, 1.0, 0.0]
    assert some.latest(6.0).tolist() == [3.0, 6.0, inf, inf]
    assert not some.are_lines
