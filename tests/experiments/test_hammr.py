"""Hammr, Fig. 5: the shares over time, simulated and with real processes."""

from __future__ import annotations

import pytest
from rich.console import Console

from experiments.hammr.experiment import (
    COMES,
    GRACE,
    PATIENCE,
    POOLS,
    SLOTS,
    Held,
    live,
    mean_held,
    simulated,
)
from experiments.hammr.figures import HAMMR_5, LIVE, SIMULATED, course_of, courses

FAST = 50.0
"""The factor on the speed of a live run."""

PACED = 10.0
"""A factor with which tasks take much longer than the start of a worker on a busy machine."""


def held(seconds: float, *slots: float) -> Held:
    """The slots of the three pools from this time on."""
    return Held(seconds, dict(zip(POOLS, slots, strict=True)))


def test_means_are_weighted_by_time() -> None:
    """A holds 2 slots for 3 of 4 seconds, then 1."""
    course = [held(0, 2, 0, 0), held(5, 1, 3, 0), held(8, 0, 0, 0)]
    assert mean_held(course, 2, 6) == {"A": 1.75, "B": 0.75, "C": 0}
    assert mean_held(course, 6, 10) == {"A": 0.5, "B": 1.5, "C": 0}


def test_the_simulated_shares_are_those_of_the_paper() -> None:
    """By weight before and after C comes; at 55 B and C have two maps left and A gets a slot.

    C waits a second before it takes slots back, and whom it takes them from has another one.
    """
    course = course_of(simulated())
    assert course.before == {"A": 2, "B": 4, "C": 0}
    assert course.full_at == COMES + PATIENCE + GRACE
    assert course.between == pytest.approx({"A": 1, "B": 2, "C": 3})
    assert course.spare_at == 55
    assert course.after == pytest.approx({"A": 2, "B": 2, "C": 2})


@pytest.mark.slow
def test_a_live_word_count_gives_c_its_share() -> None:
    """However fast the machine is, C gets half of the slots, and every word is counted once.

    `live` itself asserts the latter.
    """
    shares = live(FAST)
    assert max(one.slots["C"] for one in shares) >= SLOTS / 2
    assert max(sum(one.slots.values()) for one in shares) == SLOTS


@pytest.mark.slow
def test_a_live_word_count_has_the_same_shares() -> None:
    """C gets its share, A and B keep theirs, and then A gets a spare slot."""
    shares = live(PACED)
    course = course_of(shares)
    between = [h.slots for h in shares if course.full_at <= h.seconds < course.spare_at]
    assert {"A": 1, "B": 2, "C": 3} in between
    assert COMES < course.full_at < course.spare_at


def test_the_figure_shows_both_backends_and_the_paper() -> None:
    """The rows contain the shares; the picture has a panel for each backend."""
    course = simulated()
    rows = HAMMR_5.rows([course, course, course])
    assert courses(rows, SIMULATED) == [course_of(course)]
    assert courses(rows, LIVE) == [course_of(course)] * 2
    console = Console(width=120)
    with console.capture() as captured:
        console.print(HAMMR_5.table(rows, 2))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert "from then on 1, 2, 3 1.0, 2.0, 3.0 1.0, 2.0, 3.0" in lines
    assert "A gets a spare slot 55 s 55.0 s 55.0 s" in lines
    picture = HAMMR_5.draw(rows)
    assert {SIMULATED, LIVE} <= picture.rows.keys()
    assert "time (s)" in str(picture.spec())
