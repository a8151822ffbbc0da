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
from slotwise.core.decisions import Preempt, Reallocate
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


OF_JOB = ("after_each", "retry_delay", "time_requested")


class Live:
    """A state that a scheduler has settled, as it is between two turns of the loop."""

    def __init__(
        self,
        jobs: Sequence[Job],
        hosts: Sequence[Host] | int,
        pools: Sequence[Pool] = (),
        scheduler: str = "fair",
        objective: Objective | None = None,
        **options: Any,
    ) -> None:
        cluster = Cluster.of_slots(hosts) if isinstance(hosts, int) else Cluster(tuple(hosts))
        self.state, self.name = State(cluster, pools), scheduler
        self.objective = objective or Objective()
        if scheduler in ESTIMATING:
            self.state.expect_estimates()
        self._scheduler = make_scheduler(scheduler, objective=self.objective, **options)
        self.turn(0.0, *(JobArrived(0.0, job) for job in jobs))

    def turn(self, now: float, *events: Event) -> Live:
        """Apply events and decide until nothing more is decided."""
        self.state.at(now)
        for event in events:
            self.state.apply(event)
        while decisions := self._scheduler.decide(self.state):
            for decision in decisions:
                self.state.apply(decision)
        return self

    def why(self, job: str) -> WhyWaiting:
        """Why a job waits."""
        return why_waiting(self.state, job, self.name, self.objective)


def job(name: str, count: int = 1, pool: str = "default", work: float = 9.0, **of: Any) -> Job:
    """A job of one phase; `after` and others of a phase by their names."""
    of_job = {key: of.pop(key) for key in OF_JOB if key in of}
    after = of.pop("before", ())
    phase = Phase("run", Tasks(count, work, blocks=of.pop("blocks", ())), **of)
    return Job(name, (phase,), pool=pool, after=frozenset(after), **of_job)


def phase(name: str) -> PhaseId:
    """The phase of such a job."""
    return PhaseId(name, "run")


def slots(name: str, count: int, **resources: Any) -> Host:
    """A host."""
    return Host(name, {"task": count}, resources=resources)


def failed(name: str, task: int = 0, attempt: int = 1, at: float = 1.0) -> TaskFailed:
    """An attempt fails."""
    return TaskFailed(at, phase(name), task, attempt, "broken")


def removed(name: str, host: str) -> tuple[Event, Event]:
    """A host leaves, on which the first task of a job runs."""
    return TaskFailed(0.0, phase(name), 0, 1, "lost", lost=True), HostRemoved(0.0, host)


def after_a_stop() -> Live:
    """A task of a was killed for x, for which its slot is reserved."""
    live = Live([job("a", 2, "y")], 2, [Pool("x"), Pool("y")])
    live.turn(0.0, JobArrived(0.0, job("b", 1, "x", slots=2)))
    killed = Preempt(phase("a"), 0, 1, "cluster", None, "x"), TaskKilled(0.0, phase("a"), 0, 1)
    return of_one_turn(live, *killed, Reallocate({phase("a"): 2.0}, 9.0))


def of_one_turn(live: Live, *steps: Any) -> Live:
    """Apply events and decisions that no scheduler here would choose."""
    for step in steps:
        live.state.apply(step)
    return live


def hosts_failed() -> Live:
    """Three failures in a row on the only host with a free slot."""
    live = Live([job("a", 9), job("b")], [slots("h1", 1), slots("h2", 1)])
    for attempt in (1, 2, 3):
        live.turn(float(attempt), failed("a", 0, attempt, float(attempt)))
    return live


GPU = {"gpu": 1}
TWO = [slots("h1", 1), slots("h2", 2)]
WIDE = [slots("h", 2)]
PHASES = (Phase("map", Tasks(1, 9.0)), Phase("end", Tasks(1, 1.0), after=frozenset({"map"})))
GANG = job("g", 2, gang=True)
GROWING = Job("a", (Phase("run", Tasks(1, 1.0), grows=True),))
END_OF_TASK = TaskFinished(1.0, phase("a"), 0, 1, 1.0)

CASES: dict[Reason, tuple[Callable[[], Live], str, str]] = {
    Reason.JOBS_BEFORE: (
        lambda: Live([job("a"), job("b", before=["a"])], 1),
        "b",
        "the end of job a",
    ),
    Reason.JOBS_MAX: (
        lambda: Live([job("a", pool="x"), job("b", pool="x")], 2, [Pool("x", jobs_max=1)]),
        "b",
        "the end of job a, or jobs_max 2 of pool 'x'",
    ),
    Reason.PHASES_BEFORE: (lambda: Live([Job("a", PHASES)], 1), "a", "the end of map"),
    Reason.TASKS_BEFORE: (
        lambda: Live([job("a", 2), job("b", 2, after_each=frozenset({"a"}))], 2).turn(
            1.0, END_OF_TASK
        ),
        "b",
        "the end of a task of job a",
    ),
    Reason.RETRY_DELAY: (
        lambda: Live([job("a", retry_delay=30.0)], 1).turn(1.0, failed("a")),
        "a",
        "a shorter retry_delay",
    ),
    Reason.NO_HOST: (
        lambda: Live([job("a", 2)], [slots("h", 1)]).turn(1.0, HostRemoved(1.0, "h")),
        "a",
        "a host with slots of kind 'task'",
    ),
    Reason.HOST_ABSENT: (
        lambda: of_one_turn(Live([job("a", 2, hosts={"h1"})], TWO), *removed("a", "h1")),
        "a",
        "host h1",
    ),
    Reason.TASK_TOO_LARGE: (
        lambda: Live([job("a", 2, slots=2)], TWO).turn(1.0, HostRemoved(1.0, "h2")),
        "a",
        "a host with 2 slots",
    ),
    Reason.GANG_TOO_LARGE: (
        lambda: Live([job("b", 3), job("g", 3, gang=True)], TWO).turn(
            1.0, HostRemoved(1.0, "h2")
        ),
        "g",
        "hosts for 2 tasks more",
    ),
    Reason.GANG_STOPS: (
        lambda: of_one_turn(Live([GANG], 2), failed("g")),
        "g",
        "the end of its running tasks",
    ),
    Reason.GANG_EXCEEDS_POOL: (
        lambda: Live(
            [job("a", pool="x"), job("g", 2, "x", gang=True)], 4, [Pool("x", slots_max=2)]
        ),
        "g",
        "slots_max 3 of pool 'x'",
    ),
    Reason.GANG_SLOTS: (
        lambda: Live([job("a"), GANG], 2),
        "g",
        "free slots for 1 task more",
    ),
    Reason.PHASE_SLOTS_MAX: (
        lambda: Live([job("a", 3, slots_max=1)], 2),
        "a",
        "a slots_max of 2 for its phase",
    ),
    Reason.POOL_SLOTS_MAX: (
        lambda: Live([job("a", 9, "x")], 9, [Pool("x", slots_max=4)]),
        "a",
        "slots_max 5 of pool 'x'",
    ),
    Reason.POOL_CLOSED: (
        lambda: Live([job("a", 2, "x")], 2, [Pool("x", 0.0)]),
        "a",
        "weight 1 of pool 'x'",
    ),
    Reason.RESOURCE: (
        lambda: Live(
            [job("a", resources=GPU), job("b", resources=GPU)], [slots("h", 3, **GPU)]
        ),
        "b",
        "gpu 1 on one host beside a free slot",
    ),
    Reason.HOST_KEPT: (
        lambda: Live(
            [
                job("a", resources={"gpu": 1}),
                job("b", resources={"gpu": 2}),
                job("c", resources={"gpu": 1}),
            ],
            [slots("h", 4, gpu=2)],
        ),
        "c",
        "the start or the end of job b",
    ),
    Reason.SLOTS_ON_ONE_HOST: (
        lambda: Live([job("a"), job("b", slots=2)], WIDE),
        "b",
        "1 more slot on one host",
    ),
    Reason.SLOT_OF_HOST: (
        lambda: Live([job("a", hosts={"h1"}), job("b", hosts={"h1"})], TWO),
        "b",
        "a free slot of host h1",
    ),
    Reason.LOCALITY: (
        lambda: Live(
            [job("a"), job("b", blocks=(Block({"h1"}),))],
            TWO,
            assigner="delay",
            waits=(5.0, 5.0),
        ),
        "b",
        "a free slot near its input",
    ),
    Reason.HOSTS_AVOIDED: (hosts_failed, "a", "a free slot of another host"),
    Reason.NEXT_ALLOCATION: (
        lambda: of_one_turn(
            Live([job("a", 9)], 2, rest_seconds=5.0), JobArrived(0.0, job("b"))
        ),
        "b",
        "the next allocation",
    ),
    Reason.SERVED_LATER: (
        lambda: Live(
            [job("a", 1, "x", 1.0), job("b", 1, "y")], 1, [Pool("x"), Pool("y")], "flex"
        ),
        "b",
        "slots_min 1 of pool 'y'",
    ),
    Reason.BACKFILLING: (
        lambda: Live(
            [
                job("a", time_requested=9.0),
                job("b", slots=2, time_requested=9.0),
                job("c", time_requested=99.0),
            ],
            2,
            scheduler="easy",
        ),
        "c",
        "a shorter time_requested",
    ),
    Reason.SLOTS_HELD: (
        lambda: Live([job("a", 2)], 2).turn(1.0, JobArrived(1.0, job("b"))),
        "b",
        "a free slot",
    ),
    Reason.SLOTS_RESERVED: (after_a_stop, "a", "a free slot beside them"),
    Reason.PART_OF_A_SLOT: (
        lambda: Live([job("a", 2), job("b", 2)], 1),
        "b",
        "its turn, or a larger weight",
    ),
    Reason.SHARE_HELD: (
        lambda: Live([job("a", 9), job("b", 9)], 2),
        "b",
        "a larger weight",
    ),
    Reason.ABOVE_SHARE: (
        lambda: Live([job("a", 9)], 4).turn(1.0, JobArrived(1.0, job("b", 9))),
        "a",
        "",
    ),
    Reason.STOPPING: (
        lambda: of_one_turn(
            Live([job("a", 9, "x")], 4, [Pool("x"), Pool("y")]).turn(
                1.0, JobArrived(1.0, job("b", 9, "y"))
            ),
            Preempt(phase("a"), 0, 1, "cluster", 9.0, "y"),
        ),
        "a",
        "",
    ),
    Reason.QUEUED: (
        lambda: Live([job("a", work=1.0), job("b")], 1, scheduler="dmrs"),
        "b",
        "the end of a running task",
    ),
    Reason.IN_NO_QUEUE: (
        lambda: of_one_turn(
            Live([job("a", 2)], TWO, scheduler="dmrs"), JobArrived(1.0, job("b"))
        ),
        "b",
        "the return of a host",
    ),
    Reason.ALL_RUN: (lambda: Live([job("a")], 2), "a", ""),
    Reason.MORE_MAY_COME: (lambda: Live([GROWING], 1).turn(1.0, END_OF_TASK), "a", ""),
    Reason.DONE: (
        lambda: Live([Job("a", PHASES)], 1).turn(
            1.0, TaskFinished(1.0, PhaseId("a", "map"), 0, 1, 1.0)
        ),
        "a/map",
        "",
    ),
}


@pytest.mark.parametrize("reason", CASES, ids=str)
def test_each_reason_has_its_remedy(reason: Reason) -> None:
    """In a state between two turns, as `explain` reads it."""
    made, name, remedy = CASES[reason]
    live, (of_job, _, of_phase) = made(), name.partition("/")
    if of_phase:  # A job with such a phase has another one that waits or runs.
        found = why_now(live.state, live.state.phase(PhaseId(of_job, of_phase)), live.name)
        assert (found.code, found.remedy) == (reason, remedy)
        return
    why = live.why(name)
    assert (why.reason, why.remedy) == (reason, remedy), why.sentence


def test_the_table_has_each_reason() -> None:
    """With a sentence and a remedy, in the order of the codes; each is constructed here."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]+)\|([^|]+)\|$", TABLE.read_text(), re.M)
    assert [code for code, *_ in rows] == [str(one) for one in Reason]
    assert all(sentence.strip() and remedy.strip() for _, sentence, remedy in rows)
    of_sessions = {Reason.HELD, Reason.NOT_ARRIVED, Reason.CALLS_BEFORE}
    assert CASES.keys() | of_sessions == set(Reason)


POOLS = [Pool("x"), Pool("y")]

CHANGES: dict[str, tuple[Callable[[], Live], str, Event]] = {
    "slots_max": (
        CASES[Reason.POOL_SLOTS_MAX][0],
        "a",
        PoolsChanged(1.0, (Pool("x", slots_max=5),)),
    ),
    "slots_max of a gang": (
        CASES[Reason.GANG_EXCEEDS_POOL][0],
        "g",
        PoolsChanged(1.0, (Pool("x", slots_max=3),)),
    ),
    "jobs_max": (CASES[Reason.JOBS_MAX][0], "b", PoolsChanged(1.0, (Pool("x", jobs_max=2),))),
    "weight": (CASES[Reason.POOL_CLOSED][0], "a", PoolsChanged(1.0, (Pool("x", 1.0),))),
    "a host": (
        CASES[Reason.TASK_TOO_LARGE][0],
        "a",
        HostAdded(1.0, slots("h3", 2)),
    ),
    "a free slot": (CASES[Reason.SLOTS_HELD][0], "b", END_OF_TASK),
    "more slots on one host": (CASES[Reason.SLOTS_ON_ONE_HOST][0], "b", END_OF_TASK),
    "slots for a gang": (CASES[Reason.GANG_SLOTS][0], "g", END_OF_TASK),
    "the end of a job": (CASES[Reason.JOBS_BEFORE][0], "b", END_OF_TASK),
    "a resource": (CASES[Reason.RESOURCE][0], "b", END_OF_TASK),
}


@pytest.mark.parametrize("remedy", CHANGES)
def test_a_remedy_starts_a_task(remedy: str) -> None:
    """At once, by the decisions of the scheduler."""
    made, name, change = CHANGES[remedy]
    live = made()
    before = len(live.state.attempts_of(name))
    live.turn(1.0, change)
    assert len(live.state.attempts_of(name)) > before


def test_a_job_whose_tasks_all_run_is_not_above_its_share() -> None:
    """Others are allocated its slot, but there is nothing more that it could get."""
    live = Live([job("a", 1, "x"), job("b", 9, "y")], 1, [Pool("x"), Pool("y")], "flex")
    assert live.turn(1.0, JobArrived(1.0, job("c", 1, "y", 0.1))).why("a").reason == "all_run"


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
    live = Live([job("runs", work=1.0)], 1, scheduler=name)
    live.turn(0.5, *(JobArrived(0.5, one) for one in jobs))
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
    live = Live(due, 1, scheduler="flex", objective=objective)
    assert [live.why(name).position for name in ("next", "last")] == [1, 2]
    assert live.why("last").order == "deadline"


DUE = {"last": 90.0, "next": 19.0, "runs": 10.0}


def test_pools_above_their_shares_are_named() -> None:
    """Pool x came first and holds all slots; y has a right to half of them."""
    live = Live([job("a", 9, "x")], 4, POOLS).turn(1.0, JobArrived(1.0, job("b", 9, "y")))
    why = live.why("b")
    assert [(one.pool, one.held, one.share) for one in why.above] == [("x", 4, 2.0)]
    assert "above its share is x holds 4 of 2" in why.in_words(1.0)


def test_it_is_one_sentence_and_survives_json() -> None:
    """With its place, the job before it, the remedy, and the forecast of its start."""
    live = Live([job("a"), job("b"), job("c")], 1, scheduler="fifo")
    found = explain_now(live.state, "c", "default", "fifo", Objective())
    assert found.waiting is not None
    why = replace(found.waiting, start=(61.0, 70.0, inf))
    assert why.in_words(1.0) == (
        "it is number 2 of 2 that wait, after b (by priority, then by arrival); it is allocated"
        " no slots: fifo gives them to other phases now; what would start it: a higher"
        " priority; its start is forecast in over 60 s"
    )
    again = Explanation.of_plain(json.loads(json.dumps(replace(found, waiting=why).to_plain())))
    assert again.waiting == why
    assert f"  {found.waiting.in_words(0.0)}" in str(found).splitlines()
