"""Estimates of phases that have not begun are kept for as long as they hold."""

from __future__ import annotations

from math import log

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.phase_work import Learned, Measured, PhaseWork
from tiers import examples

WORKS = st.sampled_from([None, 2.0, 5.0, (1.0, 3.0)])
ACTIONS = st.sampled_from(["read", "learn", "learn", "grow", "drop", "enter"])


def made(work: float | tuple[float, ...] | None, learned: Learned, pool: str) -> PhaseWork:
    """What is known of a phase of two tasks."""
    job = Job("j", (Phase("map", Tasks(2, work)),))
    phase_work = PhaseWork(job, job.phases[0], 10.0, learned)
    phase_work.enter(pool)
    return phase_work


@settings(max_examples=examples(50, slow=2000))
@given(WORKS, st.lists(ACTIONS, max_size=12))
def test_a_kept_estimate_is_the_one_that_would_be_made_now(
    work: float | tuple[float, ...] | None, actions: list[str]
) -> None:
    """Whatever is learned or changes, a phase that was asked knows as much as a new one."""
    learned, pool, total = Learned(10.0), "a", 0
    kept = made(work, learned, pool)
    for number, action in enumerate(actions):
        if action == "learn":
            source = learned.source("a", "", "map")
            learned.note(Measured(source, None, log(4.0), is_stated=True), 1.0 + number % 3)
        elif action == "grow" and not isinstance(work, tuple):
            kept.grow(1)
            total += 1
        elif action == "drop" and total > -1:
            kept.drop(0)
            total -= 1
        elif action == "enter":
            pool = "b" if pool == "a" else "a"
            kept.enter(pool)
        kept.estimate_unbegun()
    anew = made(work, learned, pool)
    anew._total = kept._total
    assert kept.estimate_unbegun() == anew.estimate_unbegun()
    assert kept.estimate_unbegun() == kept.estimate(7.0, 0, {}, is_early=False)


def test_what_holds_while_stated_work_is_exact_ends_with_that() -> None:
    """A phase of stated work is corrected after the first task that took another time."""
    learned = Learned(10.0)
    phase_work = made(5.0, learned, "a")
    source = learned.source("a", "", "map")
    learned.note(Measured(source, None, log(5.0), is_stated=True), 1.0)
    assert phase_work.estimate_unbegun() == (10.0, 0.0)
    learned.note(Measured(source, None, log(5.0), is_stated=True), 3.0)
    work, spread = phase_work.estimate_unbegun()
    assert work > 10.0
    assert spread > 0
