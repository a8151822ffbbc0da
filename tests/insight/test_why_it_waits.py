"""Why a job of a running scheduler waits: each reason, its remedy, its position."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from slotwise import Block, Cluster, Host, Job, Objective, Phase, Pool, Tasks
from slotwise.core.decisions import BreakPromise, Preempt, Reallocate
from slotwise.core.events import (
    Event,
    HostAdded,
    HostRemoved,
    JobArrived,
    PoolsChanged,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import PhaseId
from slotwise.core.state import State
from slotwise.insight.explanation import Explanation
from slotwise.insight.reasons import Reason, WhyWaiting
from slotwise.insight.waiting import explain_now, why_waiting
from slotwise.insight.why import why_now
from slotwise.policy.scheduler import ESTIMATING, make_scheduler

TABLE = Path(__file__).parents[2] / "docs" / "why-it-waits.md"


class Live:
    """A state that a scheduler has settled, as it is between two turns of the loop."""

    def __init__(
        self,
        *jobs: Job,
        on: Sequence[Host] | int = 1,
        pools: Sequence[Pool] = (),
        by: str = "fair",
        objective: Objective | None = None,
        **options: Any,
    ) -> None:
        cluster = Cluster.of_slots(on) if isinstance(on, int) else Cluster(tuple(on))
        self.state, self.name = State(cluster, pools), by
        self.now = 0.0
        self.objective = objective or Objective()
        if by in ESTIMATING:
            self.state.expect_estimates()
        self._scheduler = make_scheduler(by, objective=self.objective, **options)
        self.state.at(0.0)
        self.turn(*map(arrives, jobs))

    def turn(self, *events: Event) -> Live:
        """Apply events and decide until nothing more is decided."""
        self.only(*events)
        while decisions := self._scheduler.decide(self.state):
            self.only(*decisions)
        return self

    def only(self, *steps: Any) -> Live:
        """Apply events and decisions, and decide nothing."""
        for step in steps:
            self.state.apply(step)
        return self

    def why(self, job: str = "it") -> WhyWaiting:
        """Why a job waits."""
        return why_waiting(self.state, job, self.name, self.objective)

    def status(self, job: str = "it") -> str:
        """What a job does."""
        return explain_now(
            self.state, job, "default", self.name, self.objective, self.now
        ).status


OF_JOB = ("after", "after_each", "promise", "retry_delay", "time_requested")
"""The keys of a job; others are those of its phase."""


def job(name: str, count: int = 1, pool: str = "default", work: float = 9.0, **of: Any) -> Job:
    """A job of one phase."""
    of_job = {key: of.pop(key) for key in OF_JOB if key in of}
    phase = Phase("run", Tasks(count, work, blocks=of.pop("blocks", ())), **of)
    return Job(name, (phase,), pool=pool, **of_job)


def arrives(one: Job) -> JobArrived:
    """A job arrives."""
    return JobArrived(0.0, one)


def slots(name: str, count: int, **resources: Any) -> Host:
    """A host."""
    return Host(name, {"task": count}, resources=resources)


def failed(name: str, attempt: int = 1, **of: Any) -> TaskFailed:
    """An attempt of the first task of a job fails."""
    return TaskFailed(0.0, PhaseId(name, "run"), 0, attempt, "broken", **of)


def removed(host: str) -> HostRemoved:
    """A host leaves."""
    return HostRemoved(0.0, host)


A, B, IT = PhaseId("a", "run"), job("b"), PhaseId("it", "run")
ENDS = TaskFinished(0.0, A, 0, 1, 1.0)
X, Y = Pool("x"), Pool("y")
TWO = [slots("h1", 1), slots("h2", 2)]
ONES = [slots("h1", 1), slots("h2", 1)]
DELAY: dict[str, Any] = {"assigner": "delay", "waits": (5.0, 5.0)}
AFTER_MAP = Phase("end", Tasks(1, 1.0), after=frozenset({"map"}))
PHASES = Job("it", (Phase("map", Tasks(1, 9.0)), AFTER_MAP))
GROWS = job("it", grows=True)
MAP_ENDS = TaskFinished(0.0, PhaseId("it", "map"), 0, 1, 1.0)
STOPPED = Preempt(IT, 0, 1, "cluster", None, "x"), TaskKilled(0.0, IT, 0, 1)
STOPS = Preempt(IT, 0, 1, "cluster", 9.0, "y")
SHORT, NEXT, TOO_LONG = (
    job("a", time_requested=9.0),
    job("b", slots=2, time_requested=9.0),
    job("it", time_requested=99.0),
)
ONE, BOTH = {"gpu": 1}, {"gpu": 2}

STATES: dict[str, Callable[[], Live]] = {
    "jobs_before": lambda: Live(job("a"), job("it", after={"a"})),
    "jobs_max": lambda: Live(
        job("a", 1, "x"), job("it", 1, "x"), pools=[Pool("x", jobs_max=1)]
    ),
    "phases_before": lambda: Live(PHASES),
    "tasks_before": lambda: Live(job("a", 2), job("it", 2, after_each={"a"}), on=2).turn(ENDS),
    "retry_delay": lambda: Live(job("it", retry_delay=30.0)).turn(failed("it")),
    "no_host": lambda: Live(job("it", 2), on=[slots("h", 1)]).turn(removed("h")),
    "host_absent": lambda: Live(job("it", 2, hosts={"h1"}), on=TWO).only(
        failed("it", lost=True), removed("h1")
    ),
    "task_too_large": lambda: Live(job("it", 2, slots=2), on=TWO).turn(removed("h2")),
    "gang_too_large": lambda: Live(job("a", 3), job("it", 3, gang=True), on=TWO).turn(
        removed("h2")
    ),
    "gang_stops": lambda: Live(job("it", 2, gang=True), on=2).only(failed("it")),
    "gang_exceeds_pool": lambda: Live(
        job("a", 1, "x"), job("it", 2, "x", gang=True), on=4, pools=[Pool("x", slots_max=2)]
    ),
    "gang_slots": lambda: Live(job("a"), job("it", 2, gang=True), on=2),
    "phase_slots_max": lambda: Live(job("it", 3, slots_max=1), on=2),
    "pool_slots_max": lambda: Live(job("it", 9, "x"), on=9, pools=[Pool("x", slots_max=4)]),
    "pool_resources_max": lambda: Live(
        *(job("a", 1, "x", resources=ONE), job("it", 1, "x", resources=ONE)),
        on=[slots("h", 4, gpu=2)],
        pools=[Pool("x", resources_max=ONE)],
    ),
    "pool_closed": lambda: Live(job("it", 2, "x"), pools=[Pool("x", 0.0)]),
    "resource": lambda: Live(
        job("a", resources=ONE), job("it", resources=ONE), on=[slots("h", 3, gpu=1)]
    ),
    "host_kept": lambda: Live(
        *(job("a", resources=ONE), job("b", resources=BOTH), job("it", resources=ONE)),
        on=[slots("h", 4, gpu=2)],
    ),
    "slots_on_one_host": lambda: Live(job("a"), job("it", slots=2), on=[slots("h", 2)]),
    "slot_of_host": lambda: Live(job("a", hosts={"h1"}), job("it", hosts={"h1"}), on=TWO),
    "locality": lambda: Live(job("a"), job("it", blocks=[Block({"h1"})]), on=TWO, **DELAY),
    "hosts_avoided": lambda: (
        Live(job("it", 9), B, on=ONES)
        .turn(failed("it"))
        .turn(failed("it", 2))
        .turn(failed("it", 3))
    ),
    "next_allocation": lambda: Live(job("a", 9), on=2, rest_seconds=5.0).only(
        arrives(job("it"))
    ),
    "served_later": lambda: Live(
        job("a", 1, "x", 1.0), job("it", 1, "y"), pools=[X, Y], by="flex"
    ),
    "backfilling": lambda: Live(SHORT, NEXT, TOO_LONG, on=2, by="easy"),
    "promised": lambda: Live(
        job("a"), job("b", work=5.0, slots=2, promise=60.0), on=2, by="flex"
    ).turn(arrives(job("it", work=900.0))),
    "slots_held": lambda: Live(job("a", 2), on=2).turn(arrives(job("it"))),
    "slots_reserved": lambda: (
        Live(job("it", 2, "y"), on=2, pools=[X, Y])
        .turn(arrives(job("b", 1, "x", slots=2)))
        .only(*STOPPED, Reallocate({IT: 2.0}, 9.0))
    ),
    "part_of_a_slot": lambda: Live(job("a", 2), job("it", 2)),
    "share_held": lambda: Live(job("a", 9), job("it", 9), on=2),
    "above_share": lambda: Live(job("it", 9), on=4).turn(arrives(job("b", 9))),
    "stopping": lambda: (
        Live(job("it", 9, "x"), on=4, pools=[X, Y]).turn(arrives(job("b", 9, "y"))).only(STOPS)
    ),
    "queued": lambda: Live(job("a", work=1.0), job("it"), by="dmrs"),
    "in_no_queue": lambda: Live(job("a", 2), on=TWO, by="dmrs").only(arrives(job("it"))),
    "all_run": lambda: Live(job("it"), on=2),
    "more_may_come": lambda: Live(GROWS).turn(TaskFinished(0.0, IT, 0, 1, 1.0)),
    "done": lambda: Live(PHASES).turn(MAP_ENDS),
}
"""Of each reason that a state can have, a state in which it is that of job `it`."""

REMEDIES = {
    "jobs_before": "the end of job a",
    "jobs_max": "the end of job a, or jobs_max 2 of pool 'x'",
    "phases_before": "the end of map",
    "tasks_before": "the end of a task of job a",
    "retry_delay": "a shorter retry_delay",
    "no_host": "a host with slots of kind 'task'",
    "host_absent": "host h1",
    "task_too_large": "a host with 2 slots",
    "gang_too_large": "hosts for 2 tasks more",
    "gang_stops": "the end of its running tasks",
    "gang_exceeds_pool": "slots_max 3 of pool 'x'",
    "gang_slots": "free slots for 1 task more",
    "phase_slots_max": "a slots_max of 2 for its phase",
    "pool_slots_max": "slots_max 5 of pool 'x'",
    "pool_resources_max": "resources_max {gpu: 2} of pool 'x'",
    "pool_closed": "weight 1 of pool 'x'",
    "resource": "gpu 1 on one host beside a free slot",
    "host_kept": "the start or the end of job b",
    "slots_on_one_host": "1 more slot on one host",
    "slot_of_host": "a free slot of host h1",
    "locality": "a free slot near its input",
    "hosts_avoided": "a free slot of another host",
    "next_allocation": "the next allocation",
    "served_later": "slots_min 1 of pool 'y'",
    "backfilling": "a shorter time_requested",
    "promised": "the end of job b",
    "slots_held": "a free slot",
    "slots_reserved": "a free slot beside them",
    "part_of_a_slot": "its turn, or a larger weight",
    "share_held": "a larger weight",
    "queued": "the end of a running task",
    "in_no_queue": "the return of a host",
}


@pytest.mark.parametrize("code", STATES)
def test_each_reason_has_its_remedy(code: str) -> None:
    """In a state between two turns, as `explain` reads it."""
    live = STATES[code]()
    if code == "done":  # A job with such a phase has another one that waits or runs.
        assert why_now(live.state, live.state.phase(PhaseId("it", "map")), "fair").code == code
    else:
        why = live.why()
        assert (why.reason, why.remedy) == (code, REMEDIES.get(code, "")), why.sentence


def test_the_table_has_each_reason() -> None:
    """With a sentence and a remedy, in the order of the codes; each is constructed here."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]+)\|([^|]+)\|$", TABLE.read_text(), re.M)
    assert [code for code, *_ in rows] == [str(one) for one in Reason]
    assert all(sentence.strip() and remedy.strip() for _, sentence, remedy in rows)
    assert STATES.keys() | {"held", "not_arrived", "calls_before"} == set(Reason)


CHANGES = {
    "pool_slots_max": PoolsChanged(0.0, (Pool("x", slots_max=5),)),
    "gang_exceeds_pool": PoolsChanged(0.0, (Pool("x", slots_max=3),)),
    "pool_resources_max": PoolsChanged(0.0, (Pool("x", resources_max=BOTH),)),
    "pool_closed": PoolsChanged(0.0, (Pool("x", 1.0),)),
    "task_too_large": HostAdded(0.0, slots("h3", 2)),
    **dict.fromkeys(("jobs_max", "slots_held", "slots_on_one_host", "gang_slots"), ENDS),
    **dict.fromkeys(("jobs_before", "resource"), ENDS),
}


@pytest.mark.parametrize("code", CHANGES)
def test_a_remedy_starts_a_task(code: str) -> None:
    """At once, by the decisions of the scheduler."""
    live = STATES[code]()
    before = len(live.state.attempts_of("it"))
    live.turn(CHANGES[code])
    assert len(live.state.attempts_of("it")) > before


def test_a_job_whose_tasks_all_run_is_not_above_its_share() -> None:
    """Others are allocated its slot, but there is nothing more that it could get."""
    live = Live(job("it", 1, "x"), job("b", 9, "y"), pools=[X, Y], by="flex")
    assert live.turn(arrives(job("c", 1, "y", 0.1))).why().reason == "all_run"


ORDERED = {
    "easy": ("backfilling", "", ["long", "short", "late"]),
    "fifo": ("priority and arrival", "", ["long", "short", "late"]),
    "flex": ("cost", "default", ["short", "late", "long"]),
    "uwfq": ("virtual time", "default", ["short", "late", "long"]),
    "las": ("attained service", "default", ["long", "short", "late"]),
}


@pytest.mark.parametrize("name", ORDERED)
def test_the_position_is_that_in_the_order_of_the_scheduler(name: str) -> None:
    """One job runs on the only slot; of those that wait, those before a job are named."""
    jobs = [job("long", 2, work=90.0), job("short", 1, work=2.0), job("late", 2, work=3.0)]
    live = Live(job("runs", work=1.0), by=name).turn(*map(arrives, jobs))
    order, pool, expected = ORDERED[name]
    found = {one.job: one for one in map(live.why, expected)}
    assert [found[one].position for one in expected] == [1, 2, 3]
    last = found[expected[2]]
    assert (last.waiting, last.order, last.pool) == (3, order, pool)
    assert last.ahead[-2:] == tuple(expected[:2])


def test_under_an_objective_with_deadlines_the_order_is_that_of_its_plan() -> None:
    """The job with the first deadline comes first, although it arrives last."""
    due = [Job(name, (Phase("run", Tasks(1, 9.0)),), deadline=at) for name, at in DUE.items()]
    objective = Objective("tardiness", "max")
    live = Live(*due, by="flex", objective=objective)
    assert [live.why(name).position for name in ("next", "last")] == [1, 2]
    assert live.why("last").order == "deadline"


DUE = {"last": 90.0, "next": 19.0, "runs": 10.0}


def test_pools_above_their_shares_are_named() -> None:
    """Pool x came first and holds all slots; y has a right to half of them."""
    why = Live(job("a", 9, "x"), on=4, pools=[X, Y]).turn(arrives(job("it", 9, "y"))).why()
    assert [(one.pool, one.held, one.share) for one in why.above] == [("x", 4, 2.0)]
    assert "above its share is pool x (4 of 2 slots)" in why.in_words(1.0)


def test_it_is_one_sentence_and_survives_json() -> None:
    """With its place, the job before it, the remedy, and the forecast of its start."""
    live = Live(job("a"), job("b"), job("c"), by="fifo")
    found = explain_now(live.state, "c", "default", "fifo", Objective())
    assert found.waiting is not None
    why = replace(found.waiting, start=(61.0, 70.0, inf))
    assert why.in_words(1.0) == (
        "it is number 2 of 2 that wait, after b (by priority, then by arrival); it is allocated"
        " no slots: fifo gives them to other phases now; what would start it: a higher"
        " priority; its start is forecast in over 60 s"
    )
    nothing = replace(found.waiting, start=(0.0, inf, inf))  # Such as after a held job.
    assert nothing.in_words(1.0) == found.waiting.in_words(1.0)
    again = Explanation.of_plain(json.loads(json.dumps(replace(found, waiting=why).to_plain())))
    assert again.waiting == why
    assert f"  {found.waiting.in_words(0.0)}" in str(found).splitlines()


def test_a_promise_is_explained_until_the_job_is_over() -> None:
    """From now on, not from the start of a server; after the date with the cause."""
    live = Live(job("it", 2, work=5.0, promise=60.0), by="flex")
    assert "; its end is promised within 60.0 s, and 1 slot is kept" in live.status()
    live.state.at(9.0)
    live.only(TaskFinished(9.0, PhaseId("it", "run"), 0, 1, 9.0))
    live.turn()
    live.now = 20.0  # Since when nothing has happened.
    assert live.status().endswith("promised within 40.0 s")  # Its last task runs.
    live.now = 70.0
    live.only(BreakPromise("it", 60.0, "failures"))
    assert live.status().endswith("its promised end has passed 10.0 s ago: attempts failed")


def test_the_first_of_a_backfilled_queue_waits_for_slots_not_for_others() -> None:
    """Of the two that wait, only the second one could delay another."""
    live = Live(SHORT, NEXT, TOO_LONG, on=2, by="easy")
    assert (live.why("b").position, live.why("b").remedy) == (1, "2 free slots")
    assert live.why("b").sentence == "it needs 2 free slots at once; free now: 1"
    assert "would delay" in live.why().sentence
