"""What tasks will take, from tasks that have ended."""

from __future__ import annotations

import json

import numpy as np
import pytest

from slotwise.forecast.durations import Draws, PastWork

UNIFORM = (np.arange(200) + 0.5) / 200


def drawn(past: PastWork, user: str = "u", program: str = "p", **more: float) -> np.ndarray:
    """Drawn."""
    return past.draw(user, program, 100.0, True, UNIFORM, **more)


def known(factors: list[float], user: str = "u", program: str = "p") -> PastWork:
    """Known."""
    past = PastWork()
    for factor in factors:
        past.note(user, program, 100.0, 100.0 * factor)
    return past


def test_before_anything_has_ended_stated_times_are_the_median() -> None:
    """Before anything has ended stated times are the median."""
    assert np.median(drawn(PastWork())) == pytest.approx(100.0, rel=0.05)


def test_what_nobody_states_is_less_certain() -> None:
    """What nobody states is less certain."""
    low, high = (np.quantile(drawn(PastWork()), q) for q in (0.1, 0.9))
    unstated = PastWork().draw("u", "p", 100.0, False, UNIFORM)
    assert np.quantile(unstated, 0.1) < low < high < np.quantile(unstated, 0.9)


def test_factors_of_the_same_user_count_most() -> None:
    """Factors of the same user count most."""
    past = known([0.1] * 40)
    for _ in range(200):
        past.note("other", "q", 100.0, 200.0)
    assert np.quantile(drawn(past), 0.9) == pytest.approx(10.0, rel=0.01)
    assert np.median(drawn(past, "other", "q")) == pytest.approx(200.0, rel=0.01)


def test_programs_of_a_user_differ() -> None:
    """Programs of a user differ."""
    past = known([0.1] * 20, program="p")
    for _ in range(20):
        past.note("u", "q", 100.0, 300.0)
    low, high = (np.mean(drawn(past, program=name)) for name in "pq")
    assert low < high


def test_two_outcomes_stay_two() -> None:
    """A job that fails at once or runs to its limit takes nothing between."""
    found = drawn(known([0.01, 1.0] * 20))
    assert set(np.round(found[(found > 1.5) & (found < 90)])) == set()


@pytest.mark.parametrize("elapsed", [1.0, 50.0, 99.0, 5000.0])
def test_a_task_takes_longer_than_it_has_run(elapsed: float) -> None:
    """A task takes longer than it has run."""
    assert (drawn(known([0.01, 1.0] * 20), elapsed=elapsed) >= elapsed).all()


def test_elapsed_time_excludes_what_is_over() -> None:
    """Elapsed time excludes what is over."""
    assert drawn(known([0.01, 1.0] * 20), elapsed=2.0).min() == pytest.approx(100.0)


def test_a_limit_stops_tasks() -> None:
    """A limit stops tasks."""
    assert drawn(known([5.0] * 20), longest=120.0).max() == 120.0


def test_what_was_kept_gives_the_same_times() -> None:
    """What was kept gives the same times."""
    past = known([0.5, 1.0, 2.0] * 10)
    again = PastWork.of(json.loads(json.dumps(past.plain())))
    assert drawn(again) == pytest.approx(drawn(past), rel=1e-3)


@pytest.mark.parametrize("row", [["u", "p", 1e9, 0.0], ["u", "p", "x", 0.0], ["u"], 3])
def test_anything_else_is_refused(row: object) -> None:
    """Anything else is refused."""
    with pytest.raises((TypeError, ValueError)):
        PastWork.of([row])  # type: ignore[list-item]


def test_draws_are_the_same_for_the_same_job_and_alike_for_a_user() -> None:
    """Draws are the same for the same job and alike for a user."""
    jobs = [("u", "j1"), ("u", "j2"), ("v", "j3")]
    one, other = Draws(50).uniform(jobs), Draws(50).uniform(jobs[1:])
    assert (one[1:] == other).all()
    same = np.corrcoef(one[0], one[1])[0, 1]
    apart = np.corrcoef(one[0], one[2])[0, 1]
    assert same > 0.7 > abs(apart)
    assert Draws(50).uniform([]).shape == (0, 50)


def test_several_tasks_are_drawn_as_each_alone() -> None:
    """Estimates of about the same size have one distribution, each with its own base."""
    past, bases = known([0.5, 1.0, 2.0] * 10), [95.0, 100.0, 105.0]
    found = past.draw("u", "p", np.array(bases)[:, None], True, np.tile(UNIFORM, (3, 1)))
    for base, row in zip(bases, found, strict=True):
        assert row == pytest.approx(past.draw("u", "p", base, True, UNIFORM))
