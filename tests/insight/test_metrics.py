"""Metrics of small logs against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Launch, Locality
from slotwise.core.dependencies import CANCELLED, predecessor_failed
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log, Turn
from slotwise.core.objective import Objective, gap_of
from slotwise.insight.bound import Work, objective_bound
from slotwise.insight.metrics import MetricsCollector, Outcome
from slotwise.insight.reducer import Attempt
from slotwise.insight.timeline import timeline_of

A, B = PhaseId("a", "map"), PhaseId("b", "map")
CLUSTER = Cluster((Host("h1", {"task": 1}), Host("h2", {"task": 1}, speed=2.0)))
JOB_A = Job("a", (Phase("map", Tasks(2, 1.0)),), weight=3.0)
JOB_B = Job("b", (Phase("map", Tasks(1, 1.0)),), arrival=2.0)


def header(**changes: object) -> Header:
    """A header of a backend that slows down tasks that read from another rack by 2."""
    return Header(
        **{
            "backend": "simulated",
            "scheduler": {"name": "fair"},
            "objective": {"penalty": "response", "aggregate": "sum"},
            "cluster": CLUSTER,
            "pools": (),
            "jobs_expected": 2,
            "parameters": {"slowdown": [1.0, 1.0, 2.0]},
        }
        | changes
    )


def launch(phase: PhaseId, task: int, host: str, attempt: int = 1, far: int = 0) -> Launch:
    """An attempt; `far` is its locality."""
    return Launch(phase, task, attempt, host, Locality(far))


# Slot h1: a/0 from 0 to 4.            Work 4.
# Slot h2: a/1 from 0 to 1 failed, again from 1 to 3 (speed 2, reading far: x2).  Work 2.
#          b/0 from 3 to 5 (speed 2).   Work 4.
TURNS = [
    Turn(0.0, [JobArrived(0.0, JOB_A)], [launch(A, 0, "h1"), launch(A, 1, "h2", far=2)]),
    Turn(1.0, [TaskFailed(1.0, A, 1, 1, "it broke")], [launch(A, 1, "h2", 2, far=2)]),
    Turn(2.0, [JobArrived(2.0, JOB_B)], []),
    Turn(3.0, [TaskFinished(3.0, A, 1, 2, 2.0)], [launch(B, 0, "h2", far=1)]),
    Turn(4.0, [TaskFinished(4.0, A, 0, 1, 4.0)], []),
    Turn(5.0, [TaskFinished(5.0, B, 0, 1, 2.0)], []),
]


def outcome(turns: list[Turn] = TURNS, **changes: object) -> Outcome:
    """What a log with these turns came to."""
    return MetricsCollector.of_log(Log(header(**changes), turns)).outcome()


def test_the_times_of_jobs() -> None:
    """Arrival, first launch, last end, and the time between first and last."""
    assert outcome().jobs == {
        "a": {"arrival": 0.0, "start": 0.0, "completion": 4.0, "response": 4.0},
        "b": {"arrival": 2.0, "start": 3.0, "completion": 5.0, "response": 3.0},
    }


def test_the_metrics() -> None:
    """Every number of the small log above."""
    metrics = outcome().metrics
    assert metrics.pop("gap") == pytest.approx(15.0 / outcome().bound - 1)
    assert metrics == {
        "value": 3 * 4.0 + 3.0,
        "jobs_done": 2,
        "jobs_failed": 0,
        "jobs_cancelled": 0,
        "response_mean": 3.5,
        "response_weighted_mean": 15.0 / 4,
        "response_max": 4.0,
        "stretch_mean": pytest.approx((4 / 6 + 3 / 4) / 2),
        "stretch_weighted_mean": pytest.approx((3 * 4 / 6 + 3 / 4) / 4),
        "stretch_max": 0.75,
        "slowdown_mean": pytest.approx((4 / 2 + 3 / 2) / 2),
        "slowdown_weighted_mean": pytest.approx((3 * 4 / 2 + 3 / 2) / 4),
        "slowdown_max": 2.0,
        "jobs_tardy": None,
        "jobs_tardy_weighted": None,
        "tardiness_mean": None,
        "tardiness_max": None,
        "lateness_max": None,
        "sla_cost": None,
        "makespan": 5.0,
        "utilisation": pytest.approx((4 + 1 + 2 + 2) / (2 * 5)),
        "tasks_done": 3,
        "attempts": {"done": 3, "failed": 1},
        "locality": pytest.approx({"node": 1 / 3, "rack": 1 / 3, "any": 1 / 3}),
        "traffic_bytes": {"rack": 0.0, "core": 0.0},
        "work_seconds": 10.0,
        "wasted_slot_seconds": 1.0,
        "preemption": {
            "told": 0,
            "stopped": 0,
            "lost_slot_seconds": 0.0,
            "kept_seconds": 0.0,
        },
    }


def test_the_bound_by_hand() -> None:
    """Both slots do 3 a second. Alone, a needs max(6 / 3, 4 / 2) = 2 s and b 4 / 2 = 2 s: 8.

    Mean busy times: a is served over [0, 2) and b over [2, 10/3), so b ends at
    2 + (2/3) + 4 / (2 x 2) at the least, and a at 1 + 6 / (2 x 3): 3 x 2 + 5/3 = 7.67.
    """
    assert outcome().bound == pytest.approx(8.0)
    assert outcome().bound <= outcome().metrics["value"]


@pytest.mark.parametrize(
    ("penalty", "aggregate", "value"),
    [
        ("response", "max", 12.0),
        ("stretch", "sum", 3 * 4 / 6 + 3 / 4),
        ("stretch", "max", 2.0),
        ("slowdown", "sum", 3 * 4 / 2 + 3 / 2),
        ("slowdown", "max", 6.0),
        ("makespan", "max", 5.0),
    ],
)
def test_the_value_of_other_objectives(penalty: str, aggregate: str, value: float) -> None:
    """The same log, measured by another objective."""
    found = outcome(objective={"penalty": penalty, "aggregate": aggregate})
    assert found.metrics["value"] == pytest.approx(value)
    assert found.bound <= value


def owing(*, a: dict[str, object], b: dict[str, object]) -> list[Turn]:
    """The same log, where the jobs owe something: they are done at 4 and at 5."""
    changed = {"a": replace(JOB_A, **a), "b": replace(JOB_B, **b)}
    return [
        Turn(
            turn.now,
            [
                JobArrived(event.at, changed[event.job.id])
                if isinstance(event, JobArrived)
                else event
                for event in turn.events
            ],
            turn.decisions,
        )
        for turn in TURNS
    ]


DEADLINES = (
    "jobs_tardy", "jobs_tardy_weighted", "tardiness_mean", "tardiness_max", "lateness_max",
    "sla_cost",
)  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # a is 1 s late, b 2 s early.
        ({"deadline": 3.0}, {"deadline": 7.0}, (1, 3.0, 0.5, 1.0, 1.0, None)),
        # Both are in time; b by rounding only.
        ({"deadline": 9.0}, {"deadline": 5 - 1e-12}, (0, 0.0, 0.0, 0.0, 1e-12, None)),
        ({"deadline": 9.0}, {"deadline": 7.0}, (0, 0.0, 0.0, 0.0, -2.0, None)),
        # Only b has a deadline, and what a has agreed is broken once.
        ({"steps": ((3.0, 2.0), (4.0, 9.0))}, {"deadline": 0.0}, (1, 1.0, 5.0, 5.0, 5.0, 2.0)),
        # Two agreements, both kept.
        ({"steps": ((4.0, 2.0),)}, {"steps": ((9.0, 1.0),)}, (None,) * 5 + (0.0,)),
    ],
)
def test_deadlines_and_agreements(
    a: dict[str, object], b: dict[str, object], expected: tuple[float | None, ...]
) -> None:
    """Tardy jobs, tardiness, lateness and the cost of agreements, of jobs done at 4 and 5."""
    metrics = outcome(owing(a=a, b=b)).metrics
    for name, value in zip(DEADLINES, expected, strict=True):
        assert metrics[name] == (None if value is None else pytest.approx(value, abs=1e-14))


@pytest.mark.parametrize(
    ("penalty", "aggregate", "value"),
    [
        ("tardy", "sum", 3.0),
        ("tardiness", "sum", 3.0),
        ("lateness", "sum", 1.0),
        ("lateness", "max", 3.0),
        ("sla", "sum", 4.0),
    ],
)
def test_the_value_of_objectives_that_need_more(
    penalty: str, aggregate: str, value: float
) -> None:
    """Due at 3 (weight 3) and 7, agreed to cost 4 behind 3: done at 4 and at 5."""
    turns = owing(
        a={"deadline": 3.0, "steps": ((3.0, 4.0),)},
        b={"deadline": 7.0, "steps": ((5.0, 1.0),)},
    )
    found = outcome(turns, objective={"penalty": penalty, "aggregate": aggregate})
    assert found.metrics["value"] == pytest.approx(value)
    assert found.bound <= found.metrics["value"]
    assert found.metrics["gap"] == gap_of(found.metrics["value"], found.bound)


def test_an_early_run_has_a_negative_value() -> None:
    """Where every job is early, lateness is below 0, the bound is lower yet, and no gap is."""
    turns = owing(a={"deadline": 30.0}, b={"deadline": 70.0})
    found = outcome(turns, objective={"penalty": "lateness", "aggregate": "max"})
    assert found.metrics["value"] == -65.0
    assert found.bound <= -65.0
    assert found.metrics["gap"] is None


def test_late_messages_do_not_count() -> None:
    """Repeated ends, and the end of an attempt that had failed while the next one runs."""
    late = [TaskFinished(4.5, A, 1, 1, 9.0), TaskKilled(4.5, A, 0, 1), *TURNS[4].events]
    assert outcome([*TURNS[:5], Turn(4.5, late, []), TURNS[5]]) == outcome()
    early = [TaskFinished(1.5, A, 1, 1, 9.0), TaskFailed(1.5, A, 1, 1, "it broke")]
    assert outcome([*TURNS[:2], Turn(1.5, early, []), *TURNS[2:]]) == outcome()


def test_a_job_that_was_given_up_has_no_completion() -> None:
    """Its slot-seconds are waste; value and bound are of the others."""
    turns = [
        *TURNS[:4],
        Turn(4.0, [TaskFailed(4.0, B, 0, 1, "no luck")], [GiveUp("b", "no luck")]),
        Turn(8.0, [TaskFinished(8.0, A, 0, 1, 8.0)], []),
    ]
    found = outcome(turns)
    assert found.failed == {"b": "no luck"}
    assert found.jobs["b"] == {
        "arrival": 2.0,
        "start": 3.0,
        "completion": None,
        "response": None,
    }
    assert found.metrics["value"] == 24.0
    assert found.metrics["jobs_failed"] == 1
    assert found.metrics["wasted_slot_seconds"] == 2.0
    assert found.metrics["utilisation"] == pytest.approx((8 + 1 + 2 + 1) / (2 * 8))


def test_cancelled_jobs_are_not_counted_as_failed() -> None:
    """Neither one that a user cancelled, nor one that waits for a failed job."""
    waits = replace(JOB_B, id="c", after=frozenset({"b"}))
    reasons = {"b": "no luck", "a": CANCELLED, "c": predecessor_failed("b")}
    turns = [
        *TURNS[:4],
        Turn(4.0, [JobArrived(4.0, waits)], [GiveUp(job, why) for job, why in reasons.items()]),
    ]
    found = outcome(turns).metrics
    assert (found["jobs_failed"], found["jobs_cancelled"]) == (1, 2)


def test_a_run_without_a_job_done_has_no_means() -> None:
    """A run that came to nothing has no value, no makespan and no response: not those of 0."""
    failed = TaskFailed(1.0, A, 0, 1, "no luck")
    turns = [*TURNS[:1], Turn(1.0, [failed], [GiveUp("a", "no luck")])]
    found = outcome(turns).metrics
    assert {key for key, number in found.items() if number is None} == {
        "value", "gap", "makespan", "response_mean", "response_weighted_mean", "response_max",
        "stretch_mean", "stretch_weighted_mean", "stretch_max",
        "slowdown_mean", "slowdown_weighted_mean", "slowdown_max", *DEADLINES,
    }  # fmt: skip
    assert (found["jobs_done"], found["jobs_failed"]) == (0, 1)


def test_slots_held_after_the_last_completion_are_no_more_than_full() -> None:
    """Job a fails long after b is done: utilisation is of all the time that was recorded."""
    turns = [
        *TURNS[:4],
        TURNS[5],
        Turn(50.0, [TaskFailed(50.0, A, 0, 1, "late")], [GiveUp("a", "late")]),
    ]
    assert outcome(turns).metrics["utilisation"] == pytest.approx((50 + 1 + 2 + 2) / (2 * 50))


def test_a_run_can_be_measured_repeatedly_while_it_runs() -> None:
    """In the middle, what still runs counts as waste so far; asking changes nothing."""
    meter = MetricsCollector(header())
    for turn in TURNS[:4]:
        meter(turn.now, turn.events, turn.decisions)
    first, again = meter.outcome(), meter.outcome()
    assert first == again
    assert first.metrics["wasted_slot_seconds"] == 1.0 + 3.0
    assert first.metrics["jobs_done"] == 0
    assert first.metrics["value"] is None
    for turn in TURNS[4:]:
        meter(turn.now, turn.events, turn.decisions)
    assert meter.outcome() == outcome()


def test_attempts_have_their_host_their_times_and_their_end() -> None:
    """Those that run when the log ends are unfinished."""
    assert [placed.attempt for placed in timeline_of(Log(header(), TURNS[:4])).attempts] == [
        Attempt(A, 0, 1, "h1", Locality.NODE, 0.0, 3.0, 3.0, "unfinished"),
        Attempt(A, 1, 1, "h2", Locality.ANY, 0.0, 1.0, 1.0, "failed"),
        Attempt(A, 1, 2, "h2", Locality.ANY, 1.0, 3.0, 2.0, "done"),
        Attempt(B, 0, 1, "h2", Locality.RACK, 3.0, 3.0, 0.0, "unfinished"),
    ]


def test_an_empty_log_has_no_value() -> None:
    """Nothing happened: no value, no gap, no slot held."""
    found = outcome([])
    assert found.jobs == {}
    assert found.bound == 0.0
    assert found.metrics["value"] is None
    assert found.metrics["gap"] is None
    assert found.metrics["utilisation"] == 0.0


def test_a_chain_of_phases_is_bounded_by_its_critical_path() -> None:
    """Map 8 on at most 2 of 4 slots, then one reduce of 3: 7 s, whatever is done."""
    job = Job(
        "j",
        (
            Phase("map", Tasks(8, 1.0), slots_max=2),
            Phase("side", Tasks(1, 1.0)),
            Phase("reduce", Tasks(1, 3.0), after=frozenset({"map"})),
        ),
    )
    cluster = Cluster.of_slots(4)
    bound = objective_bound(Objective(), [job], cluster, Work.estimated([job]))
    assert bound == pytest.approx(7.0)


def test_the_longest_task_bounds_where_tasks_are_whole() -> None:
    """Ten tasks on ten slots, one of them 5 s: no faster than that one."""
    job = Job("j", (Phase("map", Tasks(10, 1.0)),))
    work = Work({PhaseId("j", "map"): 14.0}, {PhaseId("j", "map"): 5.0})
    assert objective_bound(Objective(), [job], Cluster.of_slots(10), work) == pytest.approx(5.0)


def test_the_scarcest_kind_of_slot_bounds() -> None:
    """Four jobs with a reduce of 2 s each on the only reduce slot: 2 + 4 + 6 + 8 and more."""
    phases = (
        Phase("map", Tasks(1, 0.1), kind="map"),
        Phase("reduce", Tasks(1, 2.0), kind="reduce"),
    )
    jobs = [Job(name, phases) for name in "abcd"]
    cluster = Cluster((Host("h", {"map": 50, "reduce": 1}),))
    bound = objective_bound(Objective(), jobs, cluster, Work.estimated(jobs))
    assert bound == pytest.approx(20.0)


def test_a_bound_may_use_min_shares() -> None:
    """Two jobs of 10 and 40 on 10 slots: alone 1 s, but 2 slots are the other's, so 1.25 s."""
    small, large = (
        Job(name, (Phase("map", Tasks(10, work / 10)),))
        for name, work in (("s", 10), ("l", 40))
    )
    cluster, work = Cluster.of_slots(10), Work.estimated([small, large])
    without = objective_bound(Objective(), [small, large], cluster, work)
    kept = objective_bound(Objective(), [small, large], cluster, work, {"s": 0.0, "l": 2.0})
    assert without == pytest.approx(1.0 + 5.0)
    assert kept == pytest.approx(1.25 + 5.0)


def test_unused_memory_counts_attempts_of_known_peak() -> None:
    """One task states 8 bytes and uses 2 for 4 s; one learned 4, used more, for 2 s."""
    job = Job("a", (Phase("map", Tasks(3, 1.0), resources={"memory": 8}),))
    first, second, third = (Launch(A, n, 1, "h1", Locality.NODE) for n in range(3))
    turns = [
        Turn(0.0, [JobArrived(0.0, job)], [first, replace(second, memory=4), third]),
        Turn(2.0, [TaskFinished(2.0, A, 1, 1, 2.0, peak=5)], []),
        Turn(4.0, [TaskFinished(4.0, A, 0, 1, 4.0, peak=2)], []),
        Turn(5.0, [TaskFinished(5.0, A, 2, 1, 5.0)], []),
    ]
    log = Log(header(jobs_expected=1), turns)
    outcome = MetricsCollector.of_log(log).outcome()
    assert outcome.metrics["memory"] == {"unused": 1 - (2 * 4 + 4 * 2) / (8 * 4 + 4 * 2)}
    (steps,) = timeline_of(log).resources["memory"].held_by_job.values()
    assert (list(steps.times), list(steps.values)) == ([0.0, 2.0, 4.0, 5.0], [20, 16, 8, 0])
