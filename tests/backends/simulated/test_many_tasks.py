"""Simulations of very many tasks: refused for lack of memory, or their duration is told."""

from __future__ import annotations

import pytest

import slotwise
from slotwise import InputError, Job, Phase, Tasks
from slotwise.backends.simulated import many_tasks
from slotwise.backends.simulated.many_tasks import ESTIMATE_SECONDS, Duration
from slotwise.core.events import TaskFinished
from slotwise.core.job import PhaseId

ENDED = TaskFinished(1.0, PhaseId("a", "m"), 0, 1, 1.0)


@pytest.mark.parametrize(
    ("rate", "words"), [(10_000, "about 3 hours"), (100_000, "about 17 minutes")]
)
def test_the_duration_is_told_once(
    rate: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the rate of the first seconds, in tasks a second."""
    now = 0.0
    duration = Duration(100_000_000, lambda: now)
    duration(0.0, [], [])
    for _ in range(20):
        now += 1
        duration(now, [ENDED] * rate, [])
    assert capsys.readouterr().err == (
        f"slotwise: simulating 100,000,000 tasks takes {words} at the rate of the first 5 s,"
        f" {rate:,} tasks a second\n"
    )


def test_a_short_simulation_tells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Its end is near."""
    now = 0.0
    duration = Duration(100, lambda: now)
    duration(0.0, [], [])
    now = ESTIMATE_SECONDS
    duration(now, [ENDED] * 50, [])
    assert capsys.readouterr().err == ""


def test_tasks_that_do_not_fit_into_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a log in a file they may fit."""
    job = Job("a", (Phase("m", Tasks(100_000_000, 1.0)),))
    monkeypatch.setattr(many_tasks, "free_memory", lambda: 8 << 30)
    with pytest.raises(InputError) as refused:
        slotwise.simulate([job], slots=2)
    assert str(refused.value) == (
        "a simulation of 100,000,000 tasks needs at least 30 GB of memory, and 8.59 GB are"
        " free; write a log (log), with which it needs less, or give fewer and longer tasks"
    )
    monkeypatch.setattr(many_tasks, "free_memory", lambda: 1 << 30)
    with pytest.raises(InputError, match=r"1\.07 GB are free; give fewer and longer tasks"):
        slotwise.simulate([job], slots=2)
