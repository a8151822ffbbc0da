"""What it costs to finish late: penalties, sums and maxima, against numbers by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.model.errors import InputError
from slotwise.model.job import Job, Phase, Tasks
from slotwise.objective.objective import Objective
from slotwise.objective.penalty import LINES, PENALTIES


def job(name: str = "j", **rest: object) -> Job:
    """A job of work 20."""
    return Job(name, (Phase("map", Tasks(4, 5.0)),), **rest)


@pytest.mark.parametrize(
    ("penalty", "cost"), [("response", 3 * 7.0), ("stretch", 3 * 7.0 / 20), ("makespan", 12.0)]
)
def test_the_cost_of_one_job(penalty: str, cost: float) -> None:
    """Weight 3, arrival 5, work 20, done at 12."""
    assert Objective(penalty, "max").cost(job(arrival=5.0, weight=3.0), 12.0, 20.0) == cost


def test_sum_and_maximum_over_the_jobs_that_are_done() -> None:
    """Responses 4 and 2 x 3; a job without completion counts for nothing."""
    jobs = {"a": job("a"), "b": job("b", weight=2.0, arrival=1.0), "c": job("c")}
    completion, work = {"a": 4.0, "b": 4.0}, dict.fromkeys("abc", 20.0)
    assert Objective("response", "sum").value(jobs, completion, work) == 10.0
    assert Objective("response", "max").value(jobs, completion, work) == 6.0
    assert Objective("response", "max").value(jobs, {}, work) == 0.0


def test_a_job_may_have_a_penalty_of_its_own() -> None:
    """One job counts by stretch among others that count by response."""
    jobs = {"a": job("a"), "b": job("b", penalty="stretch")}
    value = Objective().value(jobs, {"a": 10.0, "b": 10.0}, {"a": 20.0, "b": 20.0})
    assert value == 10.0 + 10.0 / 20


@pytest.mark.parametrize(
    ("penalty", "aggregate", "words"),
    [
        ("speed", "sum", "'speed'.*known: response"),
        ("response", "mean", "'mean'.*sum or max"),
        ("makespan", "sum", "makespan is a maximum"),
    ],
)
def test_what_is_no_objective_is_refused(penalty: str, aggregate: str, words: str) -> None:
    """Unknown names and a sum of makespans are refused with what would do."""
    with pytest.raises(InputError, match=words):
        Objective(penalty, aggregate)


@given(
    st.sampled_from(sorted(PENALTIES)),
    st.floats(0, 100),
    st.floats(0.1, 9),
    st.floats(0.1, 50),
    st.floats(0, 200),
)
def test_every_penalty_is_the_line_that_bounds_use(
    penalty: str, arrival: float, weight: float, work: float, wait: float
) -> None:
    """slope x (completion - origin) is the penalty itself, which never falls with time."""
    assert PENALTIES.keys() == LINES.keys()
    one = job(arrival=arrival, weight=weight)
    slope, origin = LINES[penalty](one, work)
    completion = arrival + wait
    cost = PENALTIES[penalty](one, completion, work)
    assert slope > 0
    assert slope * (completion - origin) == pytest.approx(cost, abs=1e-9)
    assert PENALTIES[penalty](one, completion + 1, work) >= cost
