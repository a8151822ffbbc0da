"""Explanations of jobs agree with what random logs tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings

import slotwise
from properties.test_runs import Case, cases
from slotwise.core.decisions import GiveUp, Launch
from slotwise.core.events import JobArrived, TaskEnded, TaskFinished
from slotwise.core.log import Log
from slotwise.insight.held_back import MAX_INTERVALS
from slotwise.insight.intervals import Interval
from tiers import examples


@given(cases())
@settings(max_examples=examples(15, slow=1000))
def test_intervals_cover_the_life_of_a_job(
    run_case: Callable[[Case], object], case: Case
) -> None:
    """Without gaps; slots are those of the launches; reasons agree with the state."""
    log: Log = run_case(case).log  # type: ignore[attr-defined]
    for name in (one.id for one in case.jobs):
        found = slotwise.explain(log, name)
        arrival, end, spans = facts(log, name)
        assert (found.arrival, found.end) == (arrival, end)
        edges = [arrival, *(row.end for row in found.intervals)]
        assert [row.start for row in found.intervals] == edges[:-1]
        assert edges[-1] == end
        assert len(found.intervals) <= MAX_INTERVALS
        for row in found.intervals:
            check_row(row, spans)


def facts(log: Log, name: str) -> tuple[float, float, list[tuple[float, float]]]:
    """The arrival and the end of a job, and when each of its attempts held a slot."""
    arrival, end, running, spans = 0.0, 0.0, {}, []
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, JobArrived) and event.job.id == name:
                arrival = end = event.job.arrival
            if isinstance(event, TaskEnded) and event.phase.job == name:
                spans.append((running.pop((event.phase, event.task)), event.at))
                end = max(end, event.at) if isinstance(event, TaskFinished) else end
        for entry in turn.decisions:
            if isinstance(entry, Launch) and entry.phase.job == name:
                running[entry.phase, entry.task] = turn.now
            if isinstance(entry, GiveUp) and entry.job == name:
                return arrival, turn.now, [*spans, *((at, turn.now) for at in running.values())]
    return arrival, end, spans


def check_row(row: Interval, spans: Sequence[tuple[float, float]]) -> None:
    """The slots as counted, and a reason that fits the state."""
    held = sum(max(0.0, min(row.end, to) - max(row.start, since)) for since, to in spans)
    assert row.seconds > 0
    assert row.held * row.seconds == pytest.approx(held, abs=1e-6)
    assert row.held <= row.wanted + 1e-6
    assert row.reason
    if row.state == "waiting":
        assert held == pytest.approx(0.0, abs=1e-6)
        assert row.limit not in {"all", "last task", "max share", "all slots", "shares"}
    elif row.state == "running":
        assert held > 0
        assert row.limit not in {"not admitted", "waits for jobs", "idle"}
