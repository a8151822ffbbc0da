"""What is said of phases that wait for memory, devices and named resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import slotwise
from slotwise import Cluster, Host, Job, Phase, Pool, Tasks, Workload
from slotwise.core.decisions import Launch, Locality, Reallocate
from slotwise.core.events import HostAdded, HostDrained, JobArrived, TaskFinished
from slotwise.core.job import PhaseId
from slotwise.core.state import State
from slotwise.insight.held_back import explain_job
from slotwise.insight.why import why_now


def job_of(name: str, tasks: int, work: float, arrival: float = 0.0, **resources: Any) -> Job:
    """A job of one phase whose tasks request resources."""
    return Job(name, (Phase("run", Tasks(tasks, work), resources=resources),), arrival)


def run(jobs: list[Job], *hosts: Host) -> Any:
    """The log of a simulated run under FAIR."""
    return slotwise.simulate(Workload(tuple(jobs), cluster=Cluster(hosts)), "fair").log


def why(log: Any, job: str, at: float) -> str:
    """The reason for the slots that the only phase of a job holds at an instant."""
    (phase,) = slotwise.explain(log, job, at=at).phases
    return phase.why


def test_a_job_that_waits_for_memory_is_told_how_much_is_free() -> None:
    """The free slots are on hosts with too little memory, and one is kept for the job."""
    jobs = [
        job_of("small", 2, 9.0, memory="5 GiB"),
        job_of("big", 1, 5.0, 1.0, memory="6 GiB"),
    ]
    hosts = [Host(name, {"task": 2}, resources={"memory": "8 GiB"}) for name in "ab"]
    log = run(jobs, *hosts)
    assert why(log, "big", 2.0) == (
        "it has waited since 1 s for 6 GiB of memory on one host; no host has more than 3"
        " GiB free beside a free slot; host a is kept for it until tasks end there"
    )
    (wait,) = slotwise.explain(log, "big")
    assert (wait.start, wait.end) == (1.0, 9.0)
    assert wait.reason == "it waited for 6 GiB of memory on one host while slots were free"


def test_who_holds_the_resource_is_named_not_who_holds_slots() -> None:
    """With amounts, the most first; a job with slots only has none of it."""
    jobs = [
        job_of("plain", 3, 9.0),
        job_of("one", 1, 9.0, memory="2 GiB"),
        job_of("two", 2, 9.0, memory="2 GiB"),
        job_of("big", 1, 5.0, 1.0, memory="6 GiB"),
    ]
    log = run(jobs, Host("a", {"task": 9}, resources={"memory": "8 GiB"}))
    explained = slotwise.explain(log, "big", at=2.0)
    held = [(one.job, one.running, one.amount) for one in explained.phases[0].holders]
    assert held == [("two", 2, "memory 4 GiB"), ("one", 1, "memory 2 GiB")]
    line = "what it waits for is held: memory 4 GiB by two (pool default), memory 2 GiB by one"
    assert line in str(explained)


def test_a_job_is_told_that_a_host_is_kept_for_another() -> None:
    """Its request fits, but the larger job before it would then wait for longer."""
    jobs = [
        job_of("first", 1, 9.0, memory="5 GiB"),
        job_of("big", 1, 5.0, 1.0, memory="8 GiB"),
        job_of("late", 1, 1.0, 2.0, memory="1 GiB"),
    ]
    log = run(jobs, Host("a", {"task": 3}, resources={"memory": "8 GiB"}))
    assert why(log, "late", 3.0).endswith("for host a: job big keeps it")
    assert any("kept for another job" in wait.reason for wait in slotwise.explain(log, "late"))


def test_a_job_is_told_of_the_limit_of_its_pool() -> None:
    """What it holds, who holds it, and that room in it is kept for the larger job before it."""
    jobs = [
        job_of("first", 1, 9.0, memory="5 GiB"),
        job_of("big", 1, 5.0, 1.0, memory="8 GiB"),
        job_of("late", 1, 1.0, 2.0, memory="1 GiB"),
    ]
    jobs = [replace(job, pool="lab") for job in jobs]
    cluster = Cluster((Host("a", {"task": 5}, resources={"memory": "64 GiB"}),))
    pools = [Pool("lab", resources_max={"memory": "8 GiB"})]
    log = slotwise.simulate(Workload(jobs, cluster, pools), "fair").log
    assert why(log, "big", 3.0) == (
        "each of its tasks requests memory 8 GiB, and pool 'lab' holds memory 5 GiB of at most"
        " 8 GiB (jobs first)"
    )
    assert why(log, "late", 3.0).endswith("for room for memory in pool 'lab': job big keeps it")
    (wait,) = slotwise.explain(log, "big")
    assert wait.reason == "pool lab held memory 5 GiB of at most 8 GiB (jobs first)"
    assert wait.remedy == "a larger resources_max for pool lab would let it run more"
    (wait,) = slotwise.explain(log, "late")
    assert "room for memory in pool 'lab', which was kept for another job" in wait.reason


def test_jobs_of_other_pools_do_not_hold_a_limit() -> None:
    """Of a job at the limit of its pool it is not said that another job holds its slots."""
    jobs = [replace(job_of("a", 4, 5.0, memory="1 GiB"), pool="lab"), job_of("b", 2, 20.0)]
    cluster = Cluster((Host("h", {"task": 9}, resources={"memory": "64 GiB"}),))
    pools = [Pool("lab", resources_max={"memory": "2 GiB"})]
    found = explain_job(slotwise.simulate(Workload(jobs, cluster, pools), "fair").log, "a")
    assert found.reason.endswith("pool lab held memory 2 GiB of at most 2 GiB (jobs a)")
    assert [one.holders for one in found.intervals] == [(), ()]


def test_devices_and_named_resources_are_counted_in_their_units() -> None:
    """Parts are of one device, and whole ones are wholly free."""
    jobs = [
        job_of("parts", 2, 9.0, gpu=0.6),
        job_of("part", 1, 5.0, 1.0, gpu=0.5),
        job_of("whole", 1, 5.0, 1.0, gpu=1),
        job_of("licensed", 1, 9.0, license=2),
        job_of("also", 1, 5.0, 1.0, license=2),
    ]
    log = run(jobs, Host("a", {"task": 8}, resources={"gpu": 2, "license": 3}))
    assert "for 0.5 of a device, and no device has it free" in why(log, "part", 2.0)
    assert "for gpu 1 on one host; no host has a whole one free" in why(log, "whole", 2.0)
    assert "for license 2 on one host; no host has more than 1 free" in why(log, "also", 2.0)


def test_a_gang_names_what_each_task_requests() -> None:
    """Slots alone would hold it."""
    phase = Phase("run", Tasks(3, 5.0), gang=True, resources={"memory": 3})
    jobs = [job_of("one", 1, 9.0, memory=3), Job("gang", (phase,), 1.0)]
    log = run(jobs, Host("a", {"task": 8}, resources={"memory": 9}))
    assert why(log, "gang", 2.0) == (
        "it has waited since 1 s for 3 free slots on the hosts together, and memory 3 bytes for"
        " each task; there are free slots for 2 of the 3 tasks of its gang"
    )


def test_the_life_of_a_job_names_the_resource() -> None:
    """`explain --job` has it as the limit of an interval."""
    jobs = [job_of("one", 1, 9.0, memory=6), job_of("two", 1, 5.0, memory=6)]
    log = run(jobs, Host("a", {"task": 2}, resources={"memory": 8}))
    explained = explain_job(log, "two")
    assert "6 bytes of memory on one host" in explained.intervals[0].reason
    assert "6 bytes of memory" in explained.reason


def test_a_job_that_fits_no_host_that_is_left_is_told_so() -> None:
    """The host with enough memory leaves, and another one comes later."""
    hosts = [
        Host("large", {"task": 1}, resources={"memory": 4}),
        Host("small", {"task": 1}, resources={"memory": 2}),
    ]
    changes = (HostDrained(2.0, "large"), HostAdded(20.0, replace(hosts[0], name="new")))
    jobs = (job_of("one", 3, 30.0, memory=2), job_of("two", 1, 5.0, 1.0, memory=3))
    workload = Workload(jobs, cluster=Cluster(tuple(hosts)), changes=changes)
    life = explain_job(slotwise.simulate(workload, "fair").log, "two").intervals
    reason = "no host that could start tasks had memory 3 bytes and 1 slot for a task"
    assert [one.end for one in life if one.reason == reason] == [20.0]


def test_a_job_that_runs_waits_with_its_other_tasks() -> None:
    """A row that says "running" does not say that the job waited."""
    jobs = [job_of("one", 2, 5.0, memory=6)]
    log = run(jobs, Host("a", {"task": 2}, resources={"memory": 8}))
    first = explain_job(log, "one").intervals[0]
    assert (first.state, first.reason) == (
        "running",
        "its other tasks waited for 6 bytes of memory on one host while slots were free",
    )


@pytest.mark.parametrize(
    ("stated", "estimate", "amount"), [(6, None, "6 bytes of memory on"), (0, 7, "(learned)")]
)
def test_only_what_was_learned_is_called_so(
    stated: int, estimate: int | None, amount: str
) -> None:
    """Of a stated request the peaks are known, too, and change nothing."""
    state = State(Cluster((Host("a", {"task": 2}, resources={"memory": 8}),)))
    state.at(0.0)
    tasks, map_phase = Tasks(3, 1.0, memory=estimate), PhaseId("j", "run")
    job = Job("j", (Phase("run", tasks, resources={"memory": stated}),), program="p")
    state.apply(JobArrived(0.0, job))
    state.apply(Reallocate({map_phase: 2.0}, until=9.0))
    got = estimate or 0
    state.apply(Launch(map_phase, 0, 1, "a", Locality.ANY, memory=got))
    state.apply(TaskFinished(0.0, map_phase, 0, 1, 1.0, peak=1))
    state.apply(Launch(map_phase, 1, 1, "a", Locality.ANY, memory=got))
    assert amount in why_now(state, state.phase(map_phase), "fair").sentence
