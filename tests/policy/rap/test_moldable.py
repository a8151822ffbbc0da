"""The moldable version of a malleable problem: units, shares and costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.objective import Cost, Curve, Hinge, Line, Steps
from slotwise.policy.malleable import Malleable
from slotwise.policy.rap import is_convex
from slotwise.policy.search.orders import Moldable

instants = st.sampled_from([-3.0, 0.0, 1.0, 2.5, 4.0, 7.0, 50.0, 1e4])
slopes = st.floats(0.01, 100)
convex_costs = st.one_of(st.builds(Line, slopes, instants), st.builds(Hinge, slopes, instants))
staircases = st.builds(
    lambda at, heights: Steps(tuple(zip(sorted(at), sorted(heights), strict=False))),
    st.sets(instants, min_size=1, max_size=3),
    st.lists(st.floats(0, 9), min_size=3, max_size=3),
)
curves = st.builds(Curve, st.sampled_from([np.sqrt, np.square, np.floor]))
all_costs = st.one_of(convex_costs, staircases, curves)
shares = st.one_of(st.integers(0, 12).map(float), st.floats(0, 12))


@st.composite
def problems(draw: st.DrawFn, cost: st.SearchStrategy[Cost] = all_costs) -> Malleable:
    """Up to 8 jobs: whole shares or not, more jobs than slots, min shares that fill all."""
    count = draw(st.integers(1, 8))
    max_share = [max(0.05, draw(shares)) for _ in range(count)]
    min_share = [min(draw(shares), top) for top in max_share]
    return Malleable.of(
        draw(st.one_of(st.integers(1, 20).map(float), st.floats(0.1, 20))),
        [draw(st.floats(0.1, 50)) for _ in range(count)],
        min_share,
        max_share,
        [draw(cost) for _ in range(count)],
    )


def test_whole_slots_are_the_units() -> None:
    """Three jobs on 10 slots, shares whole: a unit is a slot; each job has at least one."""
    problem = Malleable.of(10, [6, 4, 4], [0, 1, 4], [2, 3, 20], [Line(1)] * 3)
    resources = Moldable.of(problem).resources
    assert resources.total == 10
    assert resources.min_share.tolist() == [1, 1, 4]
    assert resources.max_share.tolist() == [2, 3, 10]


def test_more_jobs_than_slots_share_parts_of_slots() -> None:
    """Thirty jobs on 4 slots: each can get a unit, and has ten on average."""
    problem = Malleable.of(4, [1] * 30, [0] * 30, [1] * 30, [Line(1)] * 30)
    moldable = Moldable.of(problem)
    assert moldable.total == moldable.resources.total == 300
    assert moldable.slots == pytest.approx(4 / 300)
    assert moldable.resources.max_share.tolist() == [75] * 30


def test_shares_that_are_not_whole_are_counted_in_tenths() -> None:
    """Shares of 2.5 and 1.25 slots of 4: max shares are reached, least ones rounded down."""
    problem = Malleable.of(4, [10, 10], [1.25, 0], [2.5, 1.25], [Line(1), Line(1)])
    moldable = Moldable.of(problem)
    assert moldable.total == 40
    assert moldable.resources.min_share.tolist() == [12, 1]
    assert moldable.resources.max_share.tolist() == [25, 13]
    ends = moldable.completion(np.array([0, 1]), moldable.resources.max_share)
    assert ends == pytest.approx([10 / 2.5, 10 / 1.25])


def test_min_shares_are_reduced_so_that_each_job_gets_a_unit() -> None:
    """All 8 slots are guaranteed to two jobs; the third gets one slot all the same."""
    problem = Malleable.of(8, [1, 1, 1], [6, 2, 0], [8, 8, 8], [Line(1)] * 3)
    min_share = Moldable.of(problem).resources.min_share
    assert min_share.tolist() == [5, 1, 1]


@given(problems())
def test_every_problem_has_a_moldable_version(problem: Malleable) -> None:
    """Each job gets a unit, shares fit, and costs are those of the ends."""
    moldable = Moldable.of(problem)
    resources, jobs = moldable.resources, np.arange(len(problem))
    assert (resources.min_share >= 1).all()
    assert moldable.total * moldable.slots == pytest.approx(problem.capacity)
    for units in (
        resources.min_share,
        resources.max_share,
        (resources.min_share + resources.max_share) // 2,
    ):
        ends = moldable.completion(jobs, units)
        assert (ends >= problem.heights * (1 - 1e-9)).all()
        assert moldable.cost(jobs, units) == pytest.approx(problem.costs.at(ends))


@given(problems(convex_costs))
def test_lines_and_hinges_are_convex_in_units(problem: Malleable) -> None:
    """The assumption of the generic order, including tardiness, checked cost by cost."""
    moldable = Moldable.of(problem)
    assert moldable.of_any_shape == []
    assert is_convex(moldable.resources)


@given(problems(staircases))
def test_all_corners_of_a_staircase_are_tried(problem: Malleable) -> None:
    """The unit counts that are tried include all at which the cost falls."""
    resources = Moldable.of(problem).resources
    for job in range(len(problem)):
        row = resources.row(job)
        corners = [0, *(np.flatnonzero(np.diff(row) < 0) + 1).tolist()]
        assert resources.choices(job)[0].tolist() == corners


def test_the_numbers_of_tries_are_known_beforehand() -> None:
    """A line is tried at all units, two steps at four, a curve at no more than 64."""
    steps = Steps(((1, 1), (2, 5)))
    problem = Malleable.of(100, [9] * 3, [0] * 3, [90] * 3, [Line(1), steps, Curve(np.sqrt)])
    moldable = Moldable.of(problem)
    tried = [len(moldable.resources.choices(job)[0]) for job in range(3)]
    assert moldable.tries == 89 + 4 + 64 + 3
    assert tried[0] == 90
    assert tried[1] == 3
    assert 30 < tried[2] <= 65
