"""Due dates: the test of the theorem against its formula and against linear programs."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from slotwise.core.costs import Floats
from slotwise.policy.due_dates import fits, needs
from slotwise.policy.packing import pack


def must_have(
    work: float, min_share: float, max_share: float, due: float, instant: float
) -> float:
    """The work that the job must have done by an instant, by the formula of the theorem."""
    if due <= instant:
        return work
    return max(min(work, min_share * instant), work - max_share * (due - instant))


def excess(
    capacity: float, work: Floats, min_share: Floats, max_share: Floats, due: Floats
) -> float:
    """The largest excess of the needed work over the room at any instant, slot seconds."""
    instants, needed = needs(work, min_share, max_share, due)
    return float(np.max(needed - capacity * instants))


def random_shares(random: Random, count: int, capacity: float) -> tuple[Floats, Floats, Floats]:
    """Work, min and max shares; the min shares take up to all slots."""
    work = np.array([random.choice([1.0, 4.0, random.uniform(0.1, 9)]) for _ in range(count)])
    max_share = np.array([random.uniform(0.2, capacity) for _ in range(count)])
    min_share = max_share * [random.choice([0.0, random.random(), 1.0]) for _ in range(count)]
    min_share *= min(1.0, random.uniform(0, 1) * capacity / max(min_share.sum(), 1e-9))
    return work, min_share, max_share


@pytest.mark.parametrize("seed", range(40))
def test_needs_are_those_of_the_theorem(seed: int) -> None:
    """At each returned instant the sum equals the formula; due dates may be missing."""
    random = Random(seed)
    work, min_share, max_share = random_shares(random, random.randint(1, 8), 5.0)
    due = np.array([random.choice([0.0, np.inf, random.uniform(0, 9)]) for _ in work])
    instants, needed = needs(work, min_share, max_share, due)
    for instant, amount in zip(instants, needed, strict=True):
        jobs = zip(work, min_share, max_share, due, strict=True)
        assert amount == pytest.approx(sum(must_have(*job, instant) for job in jobs))


def scheduled(
    capacity: float, work: Floats, min_share: Floats, max_share: Floats, due: Floats
) -> bool:
    """Whether linear programs find a schedule: one for each order of completion."""
    count = len(work)
    for order in permutations(range(count)):
        place = {j: k for k, j in enumerate(order)}
        size = count + count * count  # Lengths of the intervals, then work of j in k.
        rows, limits, equal = [], [], []
        bounds: list[tuple[float, float | None]] = [(0.0, None)] * size
        for k in range(count):
            room = np.zeros(size)
            room[count + k :: count] = 1.0
            room[k] = -capacity
            rows.append(room)
            limits.append(0.0)
            for j in range(count):
                if place[j] < k:
                    bounds[count + j * count + k] = (0.0, 0.0)
                    continue
                for sign, share in ((1.0, max_share[j]), (-1.0, min_share[j])):
                    row = np.zeros(size)
                    row[count + j * count + k], row[k] = sign, -sign * share
                    rows.append(row)
                    limits.append(0.0)
        for j in range(count):
            row = np.zeros(size)
            row[count + j * count : count + (j + 1) * count] = 1.0
            equal.append(row)
            row = np.zeros(size)
            row[: place[j] + 1] = 1.0
            rows.append(row)
            limits.append(due[j])
        found = linprog(
            np.zeros(size), A_ub=rows, b_ub=limits, A_eq=equal, b_eq=work, bounds=bounds
        )
        if found.status == 0:
            return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_due_dates_fit_if_and_only_if_a_schedule_exists(seed: int) -> None:
    """Three jobs with min and max shares, with due dates near the limit of feasibility."""
    random = Random(seed)
    work, min_share, max_share = random_shares(random, 3, 4.0)
    height = work / max_share
    due = height * [random.choice([1.01, 1.5, random.uniform(1.01, 8)]) for _ in work]
    expected = scheduled(4.0, work, min_share, max_share, due)
    if fits(4.0, work, min_share, max_share, due, 1e-6) == fits(
        4.0, work, min_share, max_share, due, -1e-6
    ):
        assert (
            fits(4.0, work, min_share, max_share, due) == expected
        )  # Otherwise rounding decides.
        assert (excess(4.0, work, min_share, max_share, due) <= 1e-9) == expected


@given(st.data())
def test_completions_of_a_schedule_fit(data: st.DataObject) -> None:
    """The completion times of any packing can be kept, small and large numbers alike."""
    count = data.draw(st.integers(1, 7))
    capacity = data.draw(st.integers(1, 9))
    scale = data.draw(st.sampled_from([1.0, 1e-6, 1e9]))
    work = np.array([scale * data.draw(st.floats(0.01, 30)) for _ in range(count)])
    max_share = np.array([data.draw(st.floats(0.1, capacity)) for _ in range(count)])
    min_share = (
        np.array([data.draw(st.sampled_from([0.0, 0.3, 1.0])) for _ in range(count)])
        * max_share
    )
    min_share *= min(1.0, capacity / max(min_share.sum(), 1e-9))
    order = data.draw(st.permutations(range(count)))
    pieces = pack(capacity, work.tolist(), min_share.tolist(), max_share.tolist(), order)
    due = np.array([spans[-1][1] for spans in pieces])
    assert fits(capacity, work, min_share, max_share, due, tolerance=1e-11)


def test_the_example_against_lemma_one() -> None:
    """Two jobs of 40 on 10 slots, at most 8 each, can both be done by 8, and no earlier."""
    work, min_share, max_share = np.array([40.0, 40.0]), np.zeros(2), np.array([8.0, 8.0])
    assert fits(10, work, min_share, max_share, np.array([8.0, 8.0]))
    assert not fits(10, work, min_share, max_share, np.array([8.0, 7.999]))
    assert excess(10, work, min_share, max_share, np.array([8.0, 8.0])) == pytest.approx(0.0)


def test_a_min_share_can_make_another_job_miss_its_due_date() -> None:
    """10 slots, 4 of them guaranteed to another job: 60 slot-seconds take 10 s, not 6."""
    work, max_share = np.array([60.0, 400.0]), np.array([10.0, 10.0])
    due = np.array([9.9, np.inf])
    assert fits(10, work, np.zeros(2), max_share, due)
    assert not fits(10, work, np.array([0.0, 4.0]), max_share, due)
    assert fits(10, work, np.array([0.0, 4.0]), max_share, np.array([10.0, np.inf]))


def test_the_sign_of_the_tolerance_decides_borderline_cases() -> None:
    """At the limit, `fits` is True with a positive and False with a negative tolerance."""
    job = np.array([3.0]), np.array([0.0]), np.array([7.0]), np.array([3.0 / 7.0])
    assert fits(7, *job)
    assert not fits(7, *job, tolerance=-1e-9)


def test_no_jobs_always_fit() -> None:
    """An empty problem is feasible."""
    none = np.zeros(0)
    assert fits(3, none, none, none, none)
    assert excess(3, none, none, none, none) == 0.0
