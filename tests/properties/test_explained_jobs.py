"""Explanations of jobs agree with what random logs tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

import slotwise
from properties import (
    test_changed_jobs,
    test_changing_hosts,
    test_gang,
    test_lost_outputs,
    test_outages,
    test_pools,
    test_requests,
    test_runs,
    test_wide,
)
from slotwise.core.decisions import GiveUp, Launch
from slotwise.core.events import (
    JobArrived,
    PhaseClosed,
    TaskEnded,
    TaskFinished,
    TasksDropped,
)
from slotwise.core.log import Log
from slotwise.insight.held_back import MAX_INTERVALS
from slotwise.insight.intervals import Interval
from slotwise.policy.scheduler import ALLOCATORS
from tiers import examples

Span = tuple[float, float, int]
"""When an attempt held slots, and their number."""


@given(test_runs.cases())
@settings(max_examples=examples(15, slow=1000))
def test_intervals_cover_the_life_of_a_job(
    run_case: Callable[[test_runs.Case], Any], case: test_runs.Case
) -> None:
    """Without gaps; slots are those of the launches; reasons agree with the state."""
    check_explained(run_case(case).log)


@given(
    test_pools.cases()
    | test_wide.cases()
    | test_gang.cases()
    | test_requests.cases()
    | test_lost_outputs.lossy().filter(lambda case: case.name in ALLOCATORS)
    | test_changing_hosts.cases().filter(lambda case: case.name in ALLOCATORS)
)
@settings(max_examples=examples(15, slow=1000))
def test_they_do_in_troubled_runs(simulated: Callable[..., Any], case: Any) -> None:
    """Preemption, wide tasks, gangs, requests, lost outputs, hosts that come and go."""
    if isinstance(case, test_outages.Case | test_changing_hosts.Case):
        troubles = case.simulation.troubles(case.cluster, case.cluster)
        options: dict[str, Any] = {"name": case.name, "parameters": troubles}
    else:
        options = case.options
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **options
    )
    check_explained(watch.log)


@given(test_changed_jobs.cases())
@settings(max_examples=examples(15, slow=1000))
def test_they_do_for_jobs_that_users_change(case: test_changed_jobs.Case) -> None:
    """Jobs that grow, move, wait for others, or are cancelled."""
    check_explained(test_changed_jobs.run_case(case))


def check_explained(log: Log) -> None:
    """Check the explanation of each job of a log."""
    arrivals = {
        event.job.id: event.job.arrival
        for turn in log.turns
        for event in turn.events
        if isinstance(event, JobArrived)
    }
    for name, arrival in arrivals.items():
        found = slotwise.explain(log, name)
        end = end_of(log, name)
        spans = [(start, min(to, end), slots) for start, to, slots in spans_of(log, name)]
        assert (found.arrival, found.end) == (arrival, end)
        edges = [arrival, *(row.end for row in found.intervals)]
        assert [row.start for row in found.intervals] == edges[:-1]
        assert edges[-1] == end
        assert len(found.intervals) <= MAX_INTERVALS
        for row in found.intervals:
            check_row(row, spans)


def end_of(log: Log, name: str) -> float:
    """When a job was given up, or its last task was done or dropped, or its phase closed."""
    end = 0.0
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, JobArrived) and event.job.id == name:
                end = event.job.arrival
            if isinstance(event, TaskFinished | TasksDropped | PhaseClosed):
                end = event.at if event.phase.job == name else end
        if any(isinstance(one, GiveUp) and one.job == name for one in turn.decisions):
            return turn.now
    return end


def spans_of(log: Log, name: str) -> Iterator[Span]:
    """When each attempt of a job held slots."""
    running: dict[object, float] = {}
    slots: dict[str, int] = {}
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, JobArrived) and event.job.id == name:
                slots = {phase.name: phase.slots for phase in event.job.phases}
            if isinstance(event, TaskEnded) and event.phase.job == name:
                key = (event.phase, event.task, event.attempt)
                if key in running:
                    yield running.pop(key), event.at, slots[event.phase.phase]
        for one in turn.decisions:
            if isinstance(one, Launch) and one.phase.job == name:
                running[one.phase, one.task, one.attempt] = turn.now


def check_row(row: Interval, spans: Sequence[Span]) -> None:
    """The slots as counted, and a reason that fits the state."""
    held = sum(
        slots * max(0.0, min(row.end, to) - max(row.start, since)) for since, to, slots in spans
    )
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
