"""Changes of pools in a workload file: simulations and runs follow them, plans refuse them."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotwise.api import compare, replay, run, simulate
from slotwise.core.errors import InputError
from slotwise.core.events import PoolsChanged
from slotwise.core.pools import Pool, Preemption
from slotwise.plans import plan, plan_tasks
from slotwise.workload.file import parse_workload

TEXT = """\
slotwise: 1
cluster: {slots: 4}
pools: {night: {slots_max: 0}, day: {jobs_max: 1}}
pool_changes:
  - {at: 10, pool: night, slots_max: 50%, weight: 2}
  - {at: 5, pool: day, jobs_max: 5, preemption: {fraction: 0.7}}
  - {at: 5, pool: day, preemption: {grace: 1}}
jobs:
  - {id: a, pool: night, phases: [{name: m, work: 12, tasks: 12}]}
  - {id: b, pool: day, phases: [{name: m, work: 24, tasks: 24}]}
  - {id: c, pool: day, phases: [{name: m, work: 2, tasks: 2}]}
"""
CLOSED = TEXT.replace("slots_max: 50%, weight: 2", "jobs_max: 0")


def test_a_change_has_all_pools_from_its_instant_on() -> None:
    """In order of time; those of one instant are one, and what they leave out stays."""
    day = Pool("day", jobs_max=5, preemption=Preemption(fraction=0.7, grace=1.0))
    shut, open_ = Pool("night", slots_max=0), Pool("night", 2.0, slots_max="50%")
    assert parse_workload(TEXT).pool_changes == (
        PoolsChanged(5.0, (shut, day)),
        PoolsChanged(10.0, (open_, day)),
    )


@pytest.mark.parametrize("scheduler", ["fifo", "fair", "flex", "las"])
def test_a_simulation_follows_the_changes(tmp_path: Path, scheduler: str) -> None:
    """The job of the closed pool begins as it opens, on two slots, and the log repeats it."""
    log = tmp_path / "log.jsonl"
    result = simulate(parse_workload(TEXT), scheduler, log=log)
    ends = {job: one["completion"] for job, one in result.jobs.items()}
    assert ends["a"] == 16.0
    assert sorted(ends.values()) == [6.0, 7.0, 16.0]
    assert replay(log).is_identical


def test_a_comparison_follows_the_changes() -> None:
    """Each scheduler gets the same ones."""
    results = compare(parse_workload(TEXT), ["fifo", "fair"])
    assert [one.jobs["a"]["completion"] for one in results] == [16.0, 16.0]
    assert all(one.bound <= one.metrics["value"] for one in results)


def test_a_pool_that_stays_closed_is_refused() -> None:
    """A job could wait there forever."""
    with pytest.raises(InputError) as refused:
        simulate(parse_workload(CLOSED))
    assert "pool 'night' is closed after the last change, because" in str(refused.value)


def test_a_task_that_a_change_would_keep_waiting_is_refused() -> None:
    """Its slots exceed the max share from then on."""
    wide = TEXT.replace("tasks: 24", "tasks: 24, slots: 2").replace(
        "jobs_max: 5", "slots_max: 1"
    )
    with pytest.raises(InputError, match="but pool 'day' may hold at most 1"):
        simulate(parse_workload(wide))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{at: 5, pool: dya, weight: 2}", r"pool_changes\[1\]\.pool \(line 6\): unknown pool"),
        (
            "{at: 5, pool: day, resources_max: {memry: 1}}",
            r"pool_changes\[1\] \(line 6\): pool 'day': resources_max has 'memry'",
        ),
        (
            "{at: 5, pool: day, slots_max: {mpa: 1}}",
            r"pool_changes\[1\] \(line 6\): pool 'day': slots_max has the kind 'mpa'",
        ),
        (
            "{at: 5, pool: day, slots_min: 9, slots_max: 2}",
            r"pool_changes\[1\] \(line 6\): pool 'day': slots_min 9",
        ),
        (
            "{at: 5, pool: all, policy: fifo}",
            r"pool_changes\[1\] \(line 6\): pool 'all': policy is 'fifo'",
        ),
    ],
)
def test_an_error_in_a_change_has_its_own_place(change: str, message: str) -> None:
    """Not that of its pool, nor that of another change of the same instant."""
    text = f"""\
slotwise: 1
cluster: {{slots: 4}}
pools: {{all: 1, day: {{parent: all}}}}
pool_changes:
  - {{at: 5, pool: default, weight: 2}}
  - {change}
  - {{at: 5, pool: default, weight: 3}}
jobs: [{{id: a, phases: [{{name: m, work: 1}}]}}]
"""
    with pytest.raises(InputError, match=f"^{message}"):
        parse_workload(text)


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ("pools: {day: {slots_max: {mpa: 1}}}", "pools.day (line 2): slots_max has the kind"),
        ("pools: [{name: day, slots_max: {mpa: 1}}]", "pools[0] (line 2): pool 'day': slots_"),
        ("pool_defaults: {slots_max: {mpa: 1}}", "pool_defaults (line 2): pool 'default': slo"),
    ],
)
def test_an_error_in_a_pool_names_it_once(pools: str, message: str) -> None:
    """With the place that states it, by its name or by its number."""
    text = f"slotwise: 1\n{pools}\njobs: [{{id: a, phases: [{{name: m, work: 1}}]}}]\n"
    with pytest.raises(InputError) as refused:
        parse_workload(text)
    assert str(refused.value).startswith(message)


def test_plans_refuse_changes() -> None:
    """A plan has one set of pools."""
    for use in plan, plan_tasks:
        with pytest.raises(InputError, match="pool_changes: a plan is for pools that do not"):
            use(parse_workload(TEXT))


def test_a_live_run_follows_the_changes(tmp_path: Path) -> None:
    """The pool opens after the stated seconds, and the run ends before the last change."""
    text = """\
slotwise: 1
pools: {night: {jobs_max: 0}}
pool_changes: [{at: 0.3, pool: night, jobs_max: 1}, {at: 9000, pool: night, weight: 2}]
jobs: [{id: a, pool: night, command: "true"}]
"""
    log = tmp_path / "log.jsonl"
    result = run(parse_workload(text), "fair", slots=1, log=log, keep=False)
    assert (result.jobs["a"]["completion"] or 0.0) >= 0.3
    assert [type(one).__name__ for turn in result.log.turns for one in turn.events][:4] == [
        "JobArrived",
        "JobsClosed",
        "PoolsChanged",
        "TaskFinished",
    ]
    assert replay(log).is_identical
