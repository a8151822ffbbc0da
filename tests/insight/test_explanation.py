"""Explanations can be printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotwise.insight.explanation import Explanation, Holding, PhaseExplained, summary_of

RUNNING = PhaseExplained(
    phase="call",
    slot_kind="task",
    running=2,
    silent={},
    leaving={},
    stopping=0,
    pending=0,
    done=3,
    allocated=2.0,
    most=2,
    why="all its tasks run: it cannot use more slots",
    shares=(),
    over=(),
    before=(),
    after=(),
)

WAITING = replace(
    RUNNING,
    running=0,
    pending=1,
    done=0,
    allocated=0.0,
    why="it is allocated no slots",
    holders=(Holding("one", "default", 2),),
)


def explained(name: str, *phases: PhaseExplained, status: str = "under way") -> Explanation:
    """A job under `flex` after 1.5 seconds."""
    return Explanation(name, 1.5, "default" if phases else "", "flex", status, phases)


def test_an_explanation_prints_as_sentences() -> None:
    """One fact on each line."""
    assert str(explained("two", WAITING)).splitlines() == [
        "two at 1.5 s, in pool default under flex: under way",
        "  call: holds 0 of 0 slots of kind task; 1 task waits, 0 are done",
        "    because it is allocated no slots",
        "    these slots are held: 2 by one (pool default)",
    ]


@pytest.mark.parametrize("status", ["waits", "under way; its end is promised for 9 s"])
def test_a_promise_hides_no_reason_in_lists(status: str) -> None:
    """It stands beside the state of the job."""
    job = explained("two", WAITING, status=status)
    assert summary_of(job).reason == WAITING.why


def test_a_job_that_is_over_or_has_no_name_yet_has_no_pool_in_its_sentence() -> None:
    """Its pool is not known then."""
    assert str(explained("two", status="over")) == "two at 1.5 s under flex: over"
    assert str(explained("", status="waits")) == "a call at 1.5 s under flex: waits"
