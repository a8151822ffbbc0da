"""Promises: due dates that can be kept together, and the slots that keep them."""

from __future__ import annotations

from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.checking import check_packing
from oracles.problems import problems
from slotwise.core.objective import Hinge, Line
from slotwise.policy import reservations_compiled as compiled
from slotwise.policy.due_dates import Promises, fits, promise_in_order, tighten, water_fill
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import completions
from tiers import examples


def two_jobs() -> Malleable:
    """Two jobs of 40 on 10 slots, at most 8 each."""
    return Malleable.of(10, [40, 40], [0, 0], [8, 8], [Line(1.0), Line(1.0)], "sum")


def can_be_kept(problem: Malleable, due: np.ndarray) -> bool:
    """Whether all due dates can be kept, by the theorem."""
    return fits(
        problem.capacity,
        problem.work,
        problem.min_share,
        problem.max_share,
        due,
        tolerance=1e-9,
    )


def test_the_first_job_gets_all_it_can_use_and_the_second_the_rest() -> None:
    """5 s at 8 slots; the other 2 slots until then, 8 afterwards: 8.75 s."""
    promises = Promises(two_jobs())
    assert promises.earliest(0) == 5.0
    promises.promise(0, 5.0)
    assert promises.earliest(1) == pytest.approx(8.75)


def test_a_later_promise_leaves_more_to_others() -> None:
    """If the first is promised 8 s, both can be done by then, at 5 slots each."""
    problem = two_jobs()
    promises = Promises(problem)
    promises.promise(0, 8.0)
    assert promises.earliest(1) == pytest.approx(8.0)
    promises.promise(1, 8.0)
    packing = water_fill(problem, promises.due)
    assert packing == [[(0.0, 8.0, 5.0)], [(0.0, 8.0, 5.0)]]


def test_a_job_with_a_deadline_is_promised_exactly_its_deadline() -> None:
    """A job of 20 due at 10 leaves the first 8 s to a job whose cost rises from the start."""
    costs = [Hinge(5.0, 10.0), Line(1.0)]
    problem = Malleable.of(10, [20, 80], [0, 0], [10, 10], costs, "sum")
    promises = Promises(problem)
    promise_in_order(promises, problem, [0, 1])
    assert promises.due == pytest.approx([10.0, 8.0])


def test_a_promise_can_be_withdrawn() -> None:
    """Afterwards the room is what it was."""
    promises = Promises(two_jobs())
    promises.promise(0, 5.0)
    promises.promise(1, 9.0)
    promises.withdraw(0)
    assert promises.due[0] == inf
    assert promises.earliest(0) == pytest.approx(5.0)


@settings(max_examples=examples(15, slow=1000))
@given(problems(), st.randoms())
def test_promises_can_be_kept_and_are_kept(problem: Malleable, random: Random) -> None:
    """In any order, of any costs: by the theorem, and by water-filling."""
    order = list(range(len(problem)))
    random.shuffle(order)
    promises = Promises(problem)
    promise_in_order(promises, problem, order)
    assert can_be_kept(problem, promises.due)
    value = problem.value(np.minimum(promises.due, problem.ends))
    tighten(promises, order)
    assert np.all(np.isfinite(promises.due))
    packing = water_fill(problem, promises.due)
    completion = [pieces[-1][1] for pieces in packing]
    check_packing(problem, packing, completion)
    assert np.all(np.array(completion) <= promises.due * (1 + 1e-9))
    # Rounding may move a completion just past a step, with its full cost.
    early = np.array(completion) * (1 - 1e-9)
    assert problem.value(early) <= value + 1e-6 * max(1.0, abs(value))


@given(problems(), st.randoms())
def test_an_earliest_completion_is_the_earliest(problem: Malleable, random: Random) -> None:
    """The promised completion fits, and a slightly earlier one does not."""
    order = list(range(len(problem)))
    random.shuffle(order)
    promises = Promises(problem)
    for job in order:
        earliest = promises.earliest(job)
        tried = promises.due.copy()
        tried[job] = earliest * (1 + 1e-7)
        assert can_be_kept(problem, tried)
        tried[job] = earliest * (1 - 1e-6)
        is_bound_by_its_least_share = earliest >= problem.ends[job] * (1 - 1e-9)
        assert is_bound_by_its_least_share or not can_be_kept(problem, tried)
        promises.promise(job, earliest * random.choice([1.0, 1.0, 1.3]))


@given(problems(kinds="line", with_least=False), st.randoms())
def test_without_min_shares_promises_equal_the_packing_scheme(
    problem: Malleable,
    random: Random,
) -> None:
    """If costs always rise, each job is promised its completion under Fig. 3."""
    order = list(range(len(problem)))
    random.shuffle(order)
    promises = Promises(problem)
    promise_in_order(promises, problem, order)
    packed = completions(
        problem.capacity, problem.work, problem.min_share, problem.max_share, order
    )
    assert promises.due == pytest.approx(packed, rel=1e-9)


@given(problems(kinds="line"), st.randoms())
def test_with_min_shares_promises_are_never_later(problem: Malleable, random: Random) -> None:
    """In the packing scheme a job at its min share ends as late as that allows."""
    order = list(range(len(problem)))
    random.shuffle(order)
    promises = Promises(problem)
    promise_in_order(promises, problem, order)
    packed = completions(
        problem.capacity, problem.work, problem.min_share, problem.max_share, order
    )
    assert np.all(promises.due <= packed * (1 + 1e-9))


def test_with_min_shares_promises_may_be_earlier_than_the_packing_scheme() -> None:
    """On one slot, the third job can be done long before its min share alone completes it."""
    work, min_share = [5.0, 1.0, 5.0], [0.0, 0.1, 0.4]
    problem = Malleable.of(1, work, min_share, [0.8, 0.5, 0.9], [Line(1.0)] * 3, "sum")
    promises = Promises(problem)
    promise_in_order(promises, problem, [0, 1, 2])
    packed = completions(1.0, problem.work, problem.min_share, problem.max_share, [0, 1, 2])
    assert promises.due[0] == pytest.approx(packed[0])
    assert promises.due[1] < 0.9 * packed[1]


@settings(max_examples=examples(15, slow=1000))
@given(problems(kinds="line hinge steps"), st.randoms())
def test_the_fast_implementations_promise_the_same(problem: Malleable, random: Random) -> None:
    """Plain loops, in Python and compiled, against `promise_in_order`."""
    order = list(range(len(problem)))
    random.shuffle(order)
    promises = Promises(problem)
    promise_in_order(promises, problem, order)
    for dates in (
        compiled._plain(problem),
        compiled._compiled(problem),
    ):
        assert dates(order) == pytest.approx(promises.due, rel=1e-9, abs=1e-12)
