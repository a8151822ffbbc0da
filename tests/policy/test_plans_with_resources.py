"""Malleable plans of tasks that request memory and devices."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slotwise
from slotwise import Cluster, Host, InputError, Job, Phase, Tasks, Workload
from tiers import examples


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Jobs of one to two phases on one or two hosts, which may have enough for each slot."""
    hosts = [
        Host(
            f"h{number}",
            {"task": draw(st.integers(1, 4))},
            resources={"memory": draw(st.integers(4, 16)), "gpu": draw(st.integers(1, 4))},
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        phases = tuple(
            Phase(
                f"p{place}",
                Tasks(draw(st.integers(1, 6)), float(draw(st.integers(1, 9)))),
                resources={
                    "memory": draw(st.integers(0, 4)),
                    "gpu": draw(st.sampled_from([0, 0, 0.3, 0.6, 1])),
                },
            )
            for place in range(draw(st.integers(1, 2)))
        )
        jobs.append(Job(f"j{number}", phases))
    return Workload(tuple(jobs), cluster=Cluster(tuple(hosts)))


@pytest.mark.parametrize("scheduler", ["fifo", "fair", "flex", "flowflex"])
@given(workload=workloads())
@settings(max_examples=examples(25, slow=500), deadline=None)
def test_a_plan_never_exceeds_a_resource(scheduler: str, workload: Workload) -> None:
    """At each instant the slots of all phases need no more than the hosts have together."""
    try:
        plan = slotwise.plan(workload, scheduler, budget_steps=50)
    except InputError as error:
        assert "a malleable plan divides slots alone" in str(error)  # noqa: PT017
        return
    phases = {(job.id, phase.name): phase for job in workload.jobs for phase in job.phases}
    assert workload.cluster is not None
    totals = workload.cluster.totals
    for at in {piece.start for piece in plan.schedule.pieces}:
        held = dict.fromkeys(totals, 0.0)
        for piece in plan.schedule.pieces:
            if piece.start <= at < piece.end:
                for name, amount in phases[piece.phase].needs.pairs:
                    held[name] += amount * piece.slots
        assert all(amount <= totals[name] for name, amount in held.items())


def test_a_plan_refuses_tasks_for_which_memory_runs_out_before_the_slots() -> None:
    """Only three tasks of 4 GiB fit, and the host has four slots."""
    host = Host("a", {"task": 4}, resources={"memory": "12 GiB"})
    jobs = (Job("j", (Phase("run", Tasks(4, 1.0), resources={"memory": "4 GiB"}),)),)
    message = (
        "job 'j', phase 'run': each task requests memory 4 GiB, and host 'a' has not enough for"
        " tasks on all of its slots; a malleable plan divides slots alone: simulate"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        slotwise.plan(Workload(jobs, cluster=Cluster((host,))))


def test_a_plan_takes_tasks_for_which_slots_run_out_first() -> None:
    """It is the plan without memory, and exact."""
    host = Host("a", {"task": 4}, resources={"memory": "16 GiB"})
    jobs = (Job("j", (Phase("run", Tasks(8, 1.0), resources={"memory": "4 GiB"}),)),)
    plan = slotwise.plan(Workload(jobs, cluster=Cluster((host,))))
    assert plan.is_exact
    assert plan.value == 2.0


def test_parts_of_devices_count_as_they_fit() -> None:
    """Four tasks of 0.6 need four devices, although the parts add up to 2.4."""
    jobs = (Job("j", (Phase("run", Tasks(4, 1.0), resources={"gpu": 0.6}),)),)
    for devices in (3, 4):
        host = Host("a", {"task": 4}, resources={"gpu": devices})
        workload = Workload(jobs, cluster=Cluster((host,)))
        if devices == 4:
            assert slotwise.plan(workload).value == 1.0
        else:
            with pytest.raises(InputError, match="not enough"):
                slotwise.plan(workload)
