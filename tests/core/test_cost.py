"""What every cost promises: it never falls, it can be inverted, and its clock can be moved."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import ceil, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.costs import Costs
from slotwise.core.objective import MET, Cost, Curve, Hinge, Line, Steps, is_met

instants = st.floats(0, 1e6)
slopes = st.floats(1e-3, 1e3)
gaps = st.floats(0.1, 1e4)


@st.composite
def staircases(draw: st.DrawFn) -> Steps:
    """Up to five steps, each later and dearer than the last."""
    count = draw(st.integers(1, 5))
    times = accumulate(draw(st.lists(gaps, min_size=count, max_size=count)))
    costs = accumulate(draw(st.lists(gaps, min_size=count, max_size=count)))
    return Steps(tuple(zip(times, costs, strict=True)))


lines = st.builds(Line, slopes, instants)
hinges = st.builds(Hinge, slopes, instants)
curves = st.sampled_from(
    [
        Curve(lambda completion: completion * completion),
        Curve(lambda completion: float(ceil(completion))),
        Curve(lambda completion: min(completion, 50.0)),
        Curve(lambda completion: 7.0),
    ]
)
costs = st.one_of(lines, hinges, staircases(), curves)


@given(costs, st.lists(instants, min_size=2, max_size=8))
def test_no_cost_falls_with_time(cost: Cost, times: list[float]) -> None:
    """Later is never cheaper."""
    values = [cost.at(time) for time in sorted(times)]
    assert all(one <= other for one, other in pairwise(values))


@given(costs, instants)
def test_the_latest_completion_is_the_inverse(cost: Cost, time: float) -> None:
    """It keeps to the level, but for rounding, and anything noticeably later does not."""
    level = cost.at(time)
    latest = cost.latest(level)
    assert latest >= time - 1e-9 * max(1.0, time)
    if latest < inf:
        assert cost.at(latest) <= level + 1e-6 * max(1.0, abs(level))
        assert cost.at(latest + 1e-6 * max(1.0, abs(latest))) > level


@pytest.mark.parametrize(
    ("cost", "level", "latest"),
    [
        (Line(2.0, 3.0), 4.0, 5.0),
        (Line(2.0, 3.0), -4.0, 1.0),
        (Hinge(2.0, 3.0), 4.0, 5.0),
        (Hinge(2.0, 3.0), 0.0, 3.0),
        (Hinge(2.0, 3.0), -1.0, -inf),
        (Steps(((3.0, 1.0), (5.0, 4.0))), 0.0, 3.0),
        (Steps(((3.0, 1.0), (5.0, 4.0))), 0.9, 3.0),
        (Steps(((3.0, 1.0), (5.0, 4.0))), 1.0, 5.0),
        (Steps(((3.0, 1.0), (5.0, 4.0))), 4.0, inf),
        (Steps(((3.0, 1.0), (5.0, 4.0))), -1.0, -inf),
        (Curve(lambda completion: 7.0), 6.0, -inf),
        (Curve(lambda completion: 7.0), 7.0, inf),
        (Curve(lambda completion: completion**2), 9.0, pytest.approx(3.0)),
    ],
)
def test_the_latest_completion_by_hand(cost: Cost, level: float, latest: float) -> None:
    """Nothing is cheap enough: -inf. Everything is: inf."""
    assert cost.latest(level) == latest


@given(costs, st.integers(0, 1000), st.integers(0, 1000))
def test_moving_the_clock_keeps_the_cost(cost: Cost, instant: int, later: int) -> None:
    """What costs so much at an instant costs as much when that instant is called by less."""
    # At a jump itself, the rounding of the clock decides on which side one stands.
    if all(abs(instant + later - kink) > 1e-6 for kink in cost.kinks):
        moved = cost.since(instant)
        assert moved.at(later) == pytest.approx(cost.at(instant + later), rel=1e-9, abs=1e-6)
        kinks = [kink - instant for kink in cost.kinks]
        assert list(moved.kinks) == pytest.approx(kinks)


@given(st.one_of(lines, hinges, staircases()), instants, instants)
def test_between_kinks_a_cost_is_linear(cost: Cost, one: float, other: float) -> None:
    """In the middle of a stretch without kinks it is the mean of its ends."""
    one, other = sorted((one, other))
    inner = [kink for kink in cost.kinks if one <= kink * (1 + 2 * MET) and kink <= other]
    if not inner:
        mean = (cost.at(one) + cost.at(other)) / 2
        assert cost.at((one + other) / 2) == pytest.approx(mean, rel=1e-9, abs=1e-6)


@given(st.lists(st.one_of(lines, hinges, staircases(), curves), max_size=6), st.data())
def test_costs_of_many_equal_the_costs_of_each(many: list[Cost], data: st.DataObject) -> None:
    """As arrays or one by one: the same numbers."""
    together = Costs(many)
    times = data.draw(st.lists(instants, min_size=len(many), max_size=len(many)))
    level = data.draw(st.floats(-10, 1e6))
    each = [cost.at(time) for cost, time in zip(many, times, strict=True)]
    assert together.at(np.array(times, float)).tolist() == each
    assert together.latest(level).tolist() == [cost.latest(level) for cost in many]
    assert list(together) == [together[j] for j in range(len(together))] == many


def test_costs_know_whether_all_are_linear() -> None:
    """A hinge is none, nor are steps; a part of them may be."""
    assert Costs([Line(1.0), Line(2.0, 3.0)]).are_lines
    mixed = Costs([Line(1.0), Hinge(2.0, 3.0), Steps(((1.0, 1.0),))])
    assert not mixed.are_lines
    assert mixed[:1].are_lines
    assert (mixed.slope.tolist(), mixed.origin.tolist()) == ([1.0, 2.0, 1.0], [0.0, 3.0, 0.0])


@pytest.mark.parametrize("due", [0.0, 1e-3, 60.0, 1e10])
def test_a_due_date_is_met_up_to_rounding(due: float) -> None:
    """A billionth part later is in time, by steps and by the question itself."""
    steps = Steps(((due, 5.0),))
    for completion, met in (
        (due, True),
        (due * (1 + MET / 2), True),
        (due * (1 + 3 * MET) + 1e-300, False),
    ):
        assert is_met(due, completion) == met
        assert steps.at(completion) == (0.0 if met else 5.0)
