"""Sums and maxima over jobs whose penalties may differ, against numbers by hand."""

from __future__ import annotations

import pytest

from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import PENALTIES, Objective, Size, gap_of

SIZE = Size(20.0, 5.0)


def job(name: str = "j", **rest: object) -> Job:
    """A job of work 20."""
    return Job(name, (Phase("map", Tasks(4, 5.0)),), **rest)


def test_sum_and_maximum_over_the_jobs_that_are_done() -> None:
    """Responses 4 and 2 x 3; a job without completion counts for nothing."""
    jobs = {"a": job("a"), "b": job("b", weight=2.0, arrival=1.0), "c": job("c")}
    completion, size = {"a": 4.0, "b": 4.0}, dict.fromkeys("abc", SIZE)
    assert Objective("response", "sum").value(jobs, completion, size) == 10.0
    assert Objective("response", "max").value(jobs, completion, size) == 6.0
    assert Objective("response", "max").value(jobs, {}, size) == 0.0


def test_each_job_may_have_its_own_penalty() -> None:
    """A job by each penalty, all done at 12: each costs what its own penalty says."""
    about = {"deadline": 10.0, "steps": ((6.0, 1.0), (11.0, 4.0)), "weight": 3.0}
    jobs = {name: job(name, penalty=name, **about) for name in PENALTIES}
    jobs["plain"] = job("plain")
    done, size = dict.fromkeys(jobs, 12.0), dict.fromkeys(jobs, SIZE)
    costs = {
        "response": 36.0,
        "stretch": 1.8,
        "slowdown": 7.2,
        "tardy": 3.0,
        "tardiness": 6.0,
        "lateness": 6.0,
        "sla": 4.0,
        "makespan": 12.0,
        "plain": 12.0,
    }
    assert Objective().value(jobs, done, size) == pytest.approx(sum(costs.values()))
    assert Objective("response", "max").value(jobs, done, size) == 36.0


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_a_sum_of_makespans_is_refused(penalty: str, aggregate: str) -> None:
    """Whatever makes sense as a sum or as a maximum, and whatever may be wished besides."""
    if (penalty, aggregate) == ("makespan", "sum"):
        with pytest.raises(InputError, match="makespan is a maximum"):
            Objective(penalty, "sum")
    else:
        assert Objective(penalty, aggregate).penalty == penalty  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("penalty", "aggregate", "words"),
    [("speed", "sum", "'speed'.*known: response"), ("response", "mean", "'mean'.*sum or max")],
)
def test_invalid_objectives_are_refused(penalty: str, aggregate: str, words: str) -> None:
    """Unknown names are refused with what would do."""
    with pytest.raises(InputError, match=words):
        Objective(penalty, aggregate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("aim", "lacking", "words"),
    [
        ("tardy", {}, "job 'j': penalty tardy needs a deadline; give it deadline: seconds"),
        ("tardiness", {"steps": ((1.0, 1.0),)}, "penalty tardiness needs a deadline"),
        ("lateness", {}, "penalty lateness needs a deadline"),
        ("sla", {"deadline": 3.0}, "job 'j': penalty sla needs steps; give it steps: "),
        ("response", {"penalty": "tardy"}, "job 'j': penalty tardy needs a deadline"),
        ("response", {"penalty": "best"}, "job 'j': unknown penalty 'best'; known: response,"),
    ],
)
def test_a_job_without_what_its_penalty_needs_is_refused(
    aim: str, lacking: dict[str, object], words: str
) -> None:
    """The penalty is named, whether the objective's or the job's own, and what to add."""
    with pytest.raises(InputError, match=words.replace("[", r"\[")):
        Objective(aim).check([job(**lacking)])


def test_a_job_with_what_its_penalty_needs_is_accepted() -> None:
    """A job with its own penalty does not need what that of the objective needs."""
    Objective("tardy").check([job(deadline=0.0), job(penalty="response")])


@pytest.mark.parametrize(
    ("value", "bound", "gap"),
    [
        (6.0, 4.0, 0.5),
        (4.0, 4.0, 0.0),
        (0.0, 0.0, 0.0),
        (-3.0, -3.0, 0.0),
        (-3.0, -3.000000001, 0.0),
        (1e-12, -1e-12, 0.0),
        (1.0, 0.0, None),
        (-3.0, -4.0, None),
        (1.0, -1.0, None),
        (3.0, 5e-324, None),
    ],
)
def test_a_gap_is_a_part_of_a_bound_above_0(
    value: float, bound: float, gap: float | None
) -> None:
    """Lateness may be negative and tardiness 0: then only a bound that is met has a gap."""
    assert gap_of(value, bound) == gap
