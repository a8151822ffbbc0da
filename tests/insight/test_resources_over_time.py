"""Memory and devices over time: in the timeline of a run, and in the pictures of its report."""

from __future__ import annotations

import slotwise
from slotwise import Cluster, Host, Job, Phase, Result, Tasks, Workload
from slotwise.insight.report.pictures.gallery import draw_all
from slotwise.insight.report.reported import scene_of
from slotwise.insight.timeline import StepFunction, timeline_of

GIB = 2**30


def run() -> Result:
    """Wide tasks with memory, one after the other, then one with a part of a device."""
    wide = Phase("wide", Tasks(2, 4.0), slots=2, resources={"memory": "6 GiB"})
    part = Phase("part", Tasks(1, 2.0), resources={"gpu": 0.5}, after=frozenset({"wide"}))
    jobs = (Job("one", (wide, part)), Job("plain", (Phase("run", Tasks(1, 3.0)),)))
    host = Host("a", {"task": 5}, resources={"memory": "8 GiB", "gpu": 1})
    return slotwise.simulate(Workload(jobs, cluster=Cluster((host,))), "fair")


def test_a_timeline_has_what_the_running_tasks_of_each_job_requested() -> None:
    """A task of two slots counts once, and a job that requests nothing is left out."""
    resources = timeline_of(run().log).resources
    assert {name: one.total.first for name, one in resources.items()} == {
        "gpu": 1000,
        "memory": 8 * GIB,
    }
    assert dict(resources["memory"].held_by_job) == {
        "one": StepFunction((0.0, 8.0), (6.0 * GIB, 0.0))
    }
    assert dict(resources["gpu"].held_by_job) == {
        "one": StepFunction((8.0, 10.0), (500.0, 0.0))
    }


def test_a_report_draws_each_requested_resource_beside_the_slots() -> None:
    """In units that people read, with a line for what the hosts have."""
    pictures = {p.name: p for p in draw_all(scene_of([run().reported]))}
    memory, gpu = pictures["requested-memory"], pictures["requested-gpu"]
    assert {row["high"] for row in memory.rows["held0"]} == {6.0}
    assert memory.rows["capacity0"][0]["slots"] == 8.0
    assert {row["high"] for row in gpu.rows["held0"]} == {0.5}
    assert "requested-license" not in pictures
