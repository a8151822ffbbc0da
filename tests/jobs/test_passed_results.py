"""Calls that get the results of the phases that their phase waits for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import slotwise
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs import Calls, Execution
from slotwise.jobs.calls import Results

JOB = Job(
    "j",
    (
        Phase("make", Tasks(3)),
        Phase("other", Tasks(1)),
        Phase("join", Tasks(2), after=frozenset({"make", "other"})),
    ),
)


def join(task: int, results: Results) -> object:
    """All that it gets."""
    return {name: list(of_phase) for name, of_phase in results.items()}


def test_a_phase_gets_the_results_of_the_phases_it_waits_for(
    drive: Callable[[Execution], None],
) -> None:
    """By the name of the phase, and in the order of its tasks."""
    calls = Calls(
        JOB, {"make": lambda task: task * 10, "other": lambda task: "o", "join": join}
    )
    drive(calls)
    assert calls.results["join"][1] == {"make": [0, 10, 20], "other": ["o"]}
    assert calls.results["make"] == {0: 0, 1: 10, 2: 20}


def test_a_first_phase_gets_no_results(drive: Callable[[Execution], None]) -> None:
    """One function may serve all phases, also those that wait for none."""
    calls = Calls(JOB, lambda task, results: sorted(results))
    drive(calls)
    assert calls.results["make"][0] == []
    assert calls.results["join"][0] == ["make", "other"]


def test_a_parameter_with_a_default_is_left_alone(drive: Callable[[Execution], None]) -> None:
    """Such parameters bind values to a function; they do not ask for results."""
    calls = Calls(JOB, lambda task, factor=3: task * factor)
    drive(calls)
    assert calls.results["join"] == {0: 0, 1: 3}


def test_results_are_not_unpickled_by_the_manager() -> None:
    """A result that only tasks use passes as its pickle."""

    class Worker:
        """Can be loaded in worker processes only."""

        def __reduce__(self) -> tuple[object, ...]:
            import os

            return (load, (os.getpid(),))

    import os

    manager = os.getpid()

    def load(made: int) -> int:
        import os

        assert os.getpid() != manager, "the manager has unpickled it"
        return made

    job = Job("j", (Phase("a", Tasks(1)), Phase("b", Tasks(1), after=frozenset({"a"}))))
    calls = Calls(job, {"a": lambda task: Worker(), "b": lambda task, got: got["a"][0] > 0})
    assert slotwise.run([calls], slots=1).failed == {}
    assert calls.results["b"] == {0: True}


def test_large_results_pass_without_a_copy_and_leave_nothing() -> None:
    """The receiver's array is a view of shared memory, which goes with the calls."""
    job = Job("j", (Phase("a", Tasks(2)), Phase("b", Tasks(1), after=frozenset({"a"}))))

    def look(task: int, results: Results) -> object:
        one, other = results["a"]
        return one.flags.owndata, int(one.sum() + other.sum())

    calls = Calls(job, {"a": lambda task: np.full(1 << 17, task + 1), "b": look})
    assert slotwise.run([calls], slots=2).failed == {}
    assert calls.results["b"] == {0: (False, 3 << 17)}
    assert calls.results["a"][1][0] == 2
    paths = [Path(path) for path in calls._folders.paths]
    assert any(path.exists() for path in paths)
    del calls
    assert not any(path.exists() for path in paths)


def test_a_failed_job_leaves_no_files() -> None:
    """Its large results are removed when it is given up."""
    job = Job("j", (Phase("a", Tasks(1)), Phase("b", Tasks(1), after=frozenset({"a"}))))
    calls = Calls(
        job, {"a": lambda task: bytes(1 << 20), "b": lambda task, results: results["x"]}
    )
    assert set(slotwise.run([calls], slots=1, attempts_max=1).failed) == {"j"}
    assert not any(Path(path).exists() for path in calls._folders.paths)


def test_only_the_file_of_the_winner_stays(drive: Callable[[Execution], None]) -> None:
    """Attempts that failed or came second leave no file."""
    job = Job("j", (Phase("a", Tasks(1)), Phase("b", Tasks(1), after=frozenset({"a"}))))
    calls = Calls(job, {"a": lambda task: bytes(1 << 20), "b": lambda task, results: 0})
    for attempt in (1, 2, 3):
        result = calls.runner(*calls.arguments("a", 0, attempt))
        if attempt < 3:
            calls.finished("a", 0, attempt, result)
    calls.discard("a", 0, 3)
    files = [p.name for path in calls._folders.paths for p in Path(path).glob("0-*")]
    assert files == ["0-0-1"]
    calls.close(False)


def test_results_of_an_unfinished_phase_are_refused() -> None:
    """A phase that begins early has no complete results to take."""
    early = Phase("b", Tasks(1), "reduce", frozenset({"a"}), slow_start=0.5)
    job = Job("j", (Phase("a", Tasks(2), "map"), early))
    with pytest.raises(InputError, match="phase 'b' takes results, but its slow_start is"):
        Calls(job, lambda task, results: 0)
