"""Malleable plans of tasks that request memory and devices."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import slotwise
from slotwise import Cluster, Host, InputError, Job, Phase, Plan, Pool, Tasks, Workload
from tiers import examples


def host(name: str, slots: int, **resources: Any) -> Host:
    """A host with plain slots."""
    return Host(name, {"task": slots}, resources=resources)


def job(name: str, tasks: int, seconds: float = 1.0, slots: int = 1, **needs: Any) -> Job:
    """A job of one phase."""
    return Job(name, (Phase("run", Tasks(tasks, seconds), slots=slots, resources=needs),))


def planned(jobs: Sequence[Job], *hosts: Host, **options: Any) -> Plan:
    """The plan of these jobs on these hosts."""
    return slotwise.plan(Workload(tuple(jobs), cluster=Cluster(hosts)), **options)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Jobs of one to two phases on one or two hosts, which may have enough for each slot."""
    hosts = [
        host(
            f"h{number}",
            draw(st.integers(1, 4)),
            memory=draw(st.integers(4, 16)),
            gpu=draw(st.integers(1, 4)),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        phases = tuple(
            Phase(
                f"p{place}",
                Tasks(draw(st.integers(1, 6)), float(draw(st.integers(1, 9)))),
                after=frozenset({"p0"} if place else ()),
                slots_min=draw(st.sampled_from([0, 0, 1])),
                resources={
                    "memory": draw(st.sampled_from([0, 1, 2, 3, 4, 6])),
                    "gpu": draw(st.sampled_from([0, 0, 0.3, 0.6, 1])),
                },
            )
            for place in range(draw(st.integers(1, 2)))
        )
        jobs.append(Job(f"j{number}", phases))
    return Workload(tuple(jobs), cluster=Cluster(tuple(hosts)))


@given(
    workload=workloads(), scheduler=st.sampled_from(["fifo", "fair", "flex", "flowflex", "las"])
)
@settings(max_examples=examples(40, slow=2000), deadline=None)
@pytest.mark.slow
def test_hosts_can_run_what_a_plan_puts_on_their_slots(
    scheduler: str, workload: Workload
) -> None:
    """At each instant some time-sharing of whole tasks on the hosts does as much work."""
    try:
        plan = slotwise.plan(workload, scheduler, budget_steps=50)
    except InputError as error:
        assert "each task requests" in str(error)  # noqa: PT017
        return
    assert workload.cluster is not None
    phases = {(job.id, phase.name): phase for job in workload.jobs for phase in job.phases}
    done: dict[tuple[str, str], float] = defaultdict(float)
    pieces = [
        (piece.phase, piece.start, piece.end, piece.slots / plan.widths.get(piece.phase, 1))
        for piece in plan.schedule.pieces
    ]
    for name, start, end, tasks in pieces:
        assert tasks <= phases[name].tasks.count
        done[name] += (end - start) * tasks
    for name, phase in phases.items():
        assert done[name] == pytest.approx(phase.tasks.work_total())
    judged = set()
    for at in sorted({start for _, start, _, _ in pieces}):
        running = [(phases[n], tasks) for n, start, end, tasks in pieces if start <= at < end]
        key = tuple(sorted((phase.needs.pairs, tasks) for phase, tasks in running))
        if key not in judged:
            assert _can_run(running, workload.cluster.hosts)
        judged.add(key)


def _can_run(running: list[tuple[Phase, float]], hosts: Sequence[Host]) -> bool:
    """Whether hosts that share their time among sets of tasks run as many on average."""
    rows = []
    for number, one in enumerate(hosts):
        sets = list(_sets([phase for phase, _ in running], one))
        rows += [(number, tasks) for tasks in sets]
    wanted = [tasks for _, tasks in running]
    does = np.array([[-n for n in tasks] for _, tasks in rows]).T
    lasts = np.array([[float(number == n) for number, _ in rows] for n in range(len(hosts))])
    found = linprog(
        np.zeros(len(rows)),
        np.vstack((does, lasts)),
        [*(-tasks * (1 - 1e-7) for tasks in wanted), *[1.0] * len(hosts)],
    )
    return bool(found.status == 0)


def _sets(phases: Sequence[Phase], one: Host) -> Iterator[tuple[int, ...]]:
    """The numbers of tasks of these phases that one host runs at once."""
    slots, memory = one.slots["task"], one.resources["memory"]
    devices = one.resources["gpu"] // 1000
    for tasks in product(range(slots + 1), repeat=len(phases)):
        each = [phase.needs for phase, n in zip(phases, tasks, strict=True) for _ in range(n)]
        if len(each) <= slots and sum(needs.get("memory", 0) for needs in each) <= memory:
            parts = sorted((needs.get("gpu", 0) for needs in each), reverse=True)
            if _fit(parts, [1000] * devices):
                yield tasks


def _fit(parts: list[int], devices: list[int]) -> bool:
    """Whether each of these parts can be of one device."""
    if not any(parts):
        return True
    return any(
        _fit(parts[1:], [*devices[:n], left - parts[0], *devices[n + 1 :]])
        for n, left in enumerate(devices)
        if left >= parts[0]
    )


def test_a_task_counts_as_the_slots_that_its_memory_is_worth() -> None:
    """Two tasks of 6 GiB fit beside each other on four slots, so each counts as two."""
    plan = planned([job("j", 4, memory="6 GiB")], host("a", 4, memory="12 GiB"))
    assert plan.value == 2.0
    assert plan.is_exact
    assert plan.to_plain()["widths"] == [["j", "run", 2]]
    assert plan.summary() == (
        "flex: sum of response 2, bound 2, gap 0 % (proven optimal); a task counts as up to 2"
        " slots for what it requests"
    )


def test_jobs_whose_tasks_fit_alone_only_are_planned_one_after_the_other() -> None:
    """Each needs 0.6 of the memory, and with parts of slots both would seem to fit."""
    jobs = [job("a", 1, 10.0, memory=6), job("b", 1, 10.0, memory=6)]
    plan = planned(jobs, host("h", 2, memory=10))
    assert sorted(plan.schedule.completion().values()) == [10.0, 20.0]


def test_unlike_hosts_count_as_the_one_on_which_most_slots_are_left_over() -> None:
    """Host a runs a task on each slot, host b one on two slots: two at once are planned."""
    plan = planned([job("j", 4, memory=4)], host("a", 2, memory=8), host("b", 2, memory=4))
    assert plan.widths == {("j", "run"): 2}
    assert plan.value == 2.0


def test_a_plan_is_not_exact_if_counting_in_whole_slots_costs_time() -> None:
    """Three tasks fit at once; each counts as two of four slots, so two are planned."""
    plan = planned([job("j", 6, memory=4)], host("a", 4, memory=12))
    assert (plan.value, plan.bound) == (pytest.approx(3.0), pytest.approx(2.0))
    assert not plan.is_exact


def test_a_min_share_is_of_as_many_tasks_as_before() -> None:
    """It guarantees two tasks, which hold all four slots until they are done."""
    wide = Phase("run", Tasks(4, 1.0), slots_min=2, resources={"memory": 4})
    jobs = [Job("j", (wide,)), job("k", 1)]
    plan = planned(jobs, host("a", 4, memory=8))
    assert plan.schedule.completion() == {"j": 2.0, "k": 3.0}


def test_a_plan_refuses_hosts_with_slots_that_cannot_run_a_task() -> None:
    """The work of the phase could not be divided anywhere."""
    message = (
        "job 'j', phase 'run': each task requests memory 6 bytes, and host 'b' has not enough"
        " for one; a malleable plan divides work anywhere: simulate"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        planned([job("j", 4, memory=6)], host("a", 2, memory=6), host("b", 1, memory=4))


def test_a_plan_refuses_a_task_that_counts_as_more_than_its_pool_may_hold() -> None:
    """It counts as all four slots, of which the pool may hold three."""
    pools = (Pool("default", slots_max={"task": 3}),)
    cluster = Cluster((host("a", 4, memory=4),))
    message = (
        "job 'j', phase 'run': a plan counts each task, with what it requests, as 4 slots, but"
        " pool 'default' may hold at most 3 (slots_max)"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        slotwise.plan(Workload((job("j", 4, memory=4),), cluster, pools))


def test_a_plan_takes_tasks_for_which_slots_run_out_first() -> None:
    """It is the plan without memory, and exact."""
    plan = planned([job("j", 8, memory="4 GiB")], host("a", 4, memory="16 GiB"))
    assert plan.is_exact
    assert plan.value == 2.0
    assert "counts" not in plan.summary()


def test_parts_of_devices_count_as_they_fit() -> None:
    """Two devices hold two tasks of 0.6, although the parts of three add up to 1.8."""
    plan = planned([job("j", 4, gpu=0.6)], host("a", 4, gpu=2))
    assert plan.value == 2.0


def test_a_plan_refuses_kinds_of_slots_whose_tasks_need_too_much_together() -> None:
    """A map on each map slot and a reduce on each reduce slot need 8 of 6 bytes."""
    one = Host("a", {"map": 2, "reduce": 2}, resources={"memory": 6})
    needs = {"memory": 2}
    jobs = [Job(k, (Phase("run", Tasks(2, 1.0), k, resources=needs),)) for k in one.slots]
    with pytest.raises(InputError, match="host 'a' has not enough for tasks on all of its"):
        planned(jobs, one)
