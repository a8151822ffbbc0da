"""What finished tasks took, by phase and host."""

from __future__ import annotations

from math import log

from slotwise.core.host_state import MAX_PHASES, Finished
from slotwise.core.job import PhaseId

A, B = PhaseId("j", "map"), PhaseId("j", "reduce")


def table(finished: Finished) -> dict[tuple[PhaseId, str], tuple[float, float]]:
    """The tasks and the ratio of each phase on each host where some have finished."""
    seen = finished.seen
    return {
        (phase, host): (seen.tasks[row, column], seen.ratios[row, column])
        for row, phase in enumerate(seen.phases)
        for column, host in enumerate(seen.hosts)
        if seen.tasks[row, column]
    }


def test_nothing_has_finished() -> None:
    """There are no phases."""
    assert Finished().seen.phases == []


def test_tasks_are_added_up() -> None:
    """Also after a look, and for a host that was not known then."""
    finished = Finished()
    finished.note(A, "h", 2.0, 1.0)
    assert table(finished) == {(A, "h"): (1, log(0.5))}
    finished.note(A, "h", 2.0, 5.0)
    finished.note(B, "g", 1.0, 1.0)
    assert table(finished) == {(A, "h"): (2, log(1.5)), (B, "g"): (1, 0.0)}


def test_a_task_of_no_seconds_tells_nothing() -> None:
    """Its ratio has no logarithm."""
    finished = Finished()
    finished.note(A, "h", 2.0, 0.0)
    assert table(finished) == {}


def test_a_host_that_left_is_forgotten() -> None:
    """The others stay."""
    finished = Finished()
    finished.note(A, "h", 1.0, 1.0)
    finished.note(A, "g", 1.0, 1.0)
    finished.forget("h")
    assert table(finished) == {(A, "g"): (1, 0.0)}


def test_the_oldest_phases_are_dropped() -> None:
    """Only so many are kept."""
    finished = Finished()
    for number in range(MAX_PHASES + 2):
        finished.note(PhaseId("j", str(number)), "h", 1.0, 1.0)
    assert [int(phase.phase) for phase in finished.seen.phases] == [*range(2, MAX_PHASES + 2)]
