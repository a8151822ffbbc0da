"""How much is left, from what has been seen: the paper's rule, and its edges."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.estimation import MIN_WORK, RUNNING_FLOOR, work_left
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.phase_state import PhaseState
from slotwise.core.state import State

P = PhaseId("j", "p")


def started(tasks: Tasks, slots: int = 4, speed: float = 1.0) -> tuple[State, PhaseState]:
    """A phase of these tasks at time 0, and the state in which it is."""
    cluster = Cluster((Host("h", {"task": slots}, speed=speed),))
    state = State(cluster)
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (Phase("p", tasks),))))
    (phase,) = state.ready("task")
    return state, phase


def launch(task: int, attempt: int = 1) -> Launch:
    """An attempt on the only host."""
    return Launch(P, task, attempt, "h", Locality.NODE)


@given(st.integers(1, 50), st.lists(st.floats(0.01, 100), min_size=1), st.floats(0.1, 50))
def test_the_estimate_is_the_average_times_the_tasks_left(
    left: int, seen: list[float], estimate: float
) -> None:
    """With equal estimates, whatever they were, the rule of the paper comes out."""
    found = work_left(
        expected_pending=left * estimate,
        expected_running=0.0,
        expected_finished=len(seen) * estimate,
        observed=sum(seen),
        elapsed=0.0,
    )
    assert found == pytest.approx(sum(seen) / len(seen) * left)


def test_before_any_task_ends_the_stated_estimate_holds() -> None:
    """Five tasks of 4 s are 20 s; running ones count for what they still need."""
    assert work_left(20, 0, 0, 0, 0) == 20
    assert work_left(12, 8, 0, 0, 3) == 12 + 5


def test_unknown_work_counts_as_ten_seconds_a_task() -> None:
    """Three tasks of unknown work are 30 s, until one is seen to take 2."""
    state, phase = started(Tasks(3))
    assert phase.work_left(0.0) == 30
    state.apply(launch(0))
    state.at(2.0)
    state.apply(TaskFinished(2.0, P, 0, 1, 2.0))
    assert phase.work_left(2.0) == pytest.approx(4.0)


def test_estimates_wrong_by_a_factor_are_corrected_by_it() -> None:
    """Estimates 1, 2, 3: the first took 4, so the others are taken to need 8 and 12."""
    state, phase = started(Tasks(3, (1.0, 2.0, 3.0)))
    state.apply(launch(0))
    state.at(4.0)
    state.apply(TaskFinished(4.0, P, 0, 1, 4.0))
    assert phase.work_left(4.0) == pytest.approx(20.0)


def test_work_is_seconds_times_speed() -> None:
    """A task that took 2 s on a host of speed 3 was work 6, and so is the next."""
    state, phase = started(Tasks(2, 1.0), speed=3.0)
    state.apply(launch(0))
    state.at(2.0)
    state.apply(TaskFinished(2.0, P, 0, 1, 2.0))
    assert phase.work_left(2.0) == pytest.approx(6.0)


def test_a_task_that_outlives_its_estimate_still_needs_a_part_of_it() -> None:
    """After 9 of 5 s a task is taken to need a tenth of 5 s still, not less than nothing."""
    state, phase = started(Tasks(1, 5.0))
    state.apply(launch(0))
    assert phase.work_left(3.0) == pytest.approx(2.0)
    assert phase.work_left(9.0) == pytest.approx(RUNNING_FLOOR * 5.0)


def test_a_failed_attempt_does_not_change_the_estimate() -> None:
    """After a failure the whole task is left, as was thought at first."""
    state, phase = started(Tasks(2, 5.0))
    state.apply(launch(0))
    state.at(4.0)
    state.apply(TaskFailed(4.0, P, 0, 1, "it broke"))
    assert phase.work_left(4.0) == pytest.approx(10.0)


@given(*[st.floats(0, 1e6)] * 5)
@example(0.0, 0.0, 5e-324, 1e6, 0.0)  # An estimate of next to nothing tells no factor.
def test_the_estimate_is_always_positive(
    pending: float, running: float, finished: float, observed: float, elapsed: float
) -> None:
    """No sums whatever make it zero or less, since orders divide by it."""
    assert work_left(pending, running, finished, observed, elapsed) >= MIN_WORK > 0
