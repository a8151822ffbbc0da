"""Jobs of plain calls and of sleep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs import Calls, Execution, Sleep

JOB = Job("j", (Phase("a", Tasks(3)), Phase("b", Tasks(1, 0.5), after=frozenset({"a"}))))


def test_results_are_kept_by_phase_and_task(drive: Callable[[Execution], None]) -> None:
    """Each function is called with the numbers of its tasks."""
    calls = Calls(JOB, {"a": lambda task: task * 2, "b": lambda task: "done"})
    drive(calls)
    assert calls.results == {"a": {0: 0, 1: 2, 2: 4}, "b": {0: "done"}}


def test_the_first_result_wins() -> None:
    """A second attempt does not change a result."""
    calls = Calls(JOB, {"a": str, "b": str})
    calls.finished("a", 0, 0, "first")
    calls.finished("a", 0, 1, "second")
    assert calls.results["a"] == {0: "first"}


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"]])
def test_each_phase_needs_a_function(names: list[str]) -> None:
    """A phase without function, or a function without phase, is refused."""
    with pytest.raises(InputError, match="give one function for each phase"):
        Calls(JOB, dict.fromkeys(names, str))


def test_sleep_sleeps_the_work() -> None:
    """The seconds of a task are its work."""
    sleep = Sleep(Job("j", (Phase("p", Tasks(2, (1.0, 3.0))),)))
    assert [sleep.arguments("p", task, 0) for task in (0, 1)] == [(1.0,), (3.0,)]
    with pytest.raises(InputError, match="phase 'a' has no work"):
        Sleep(JOB)
