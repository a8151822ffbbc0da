"""What tasks requested and used of memory: the rows of a run, and where they are shown."""

from __future__ import annotations

from dataclasses import replace

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Launch, Locality
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log, Turn
from slotwise.insight.memory_use import MemoryUse
from slotwise.insight.report.page import page
from slotwise.insight.report.pictures.gallery import draw_all
from slotwise.insight.report.reported import scene_of
from slotwise.insight.report.tables import memory_columns
from slotwise.insight.timeline import StepFunction, timeline_of
from slotwise.results import Result

MIB = 1 << 20
LEARNING, GREEDY = PhaseId("a", "map"), PhaseId("b", "run")


def run() -> Result:
    """Tasks of a program that learns, and one that fails above its request and is given up."""
    jobs = [
        Job("a", (Phase("map", Tasks(2, 1.0)),), program="p.py"),
        Job("b", (Phase("run", Tasks(1, 1.0), resources={"memory": 4 * MIB}),)),
        Job("c", (Phase("run", Tasks(1, 1.0)),)),
    ]
    phases = (LEARNING, 0), (LEARNING, 1), (GREEDY, 0), (PhaseId("c", "run"), 0)
    first, second, greedy, other = (Launch(*one, 1, "h1", Locality.NODE) for one in phases)
    learned = replace(second, memory=6 * MIB)
    turns = [
        Turn(0.0, [JobArrived(0.0, job) for job in jobs], [first, learned, greedy, other]),
        Turn(1.0, [TaskFailed(1.0, GREEDY, 0, 1, "too much", peak=5 * MIB)], []),
        Turn(1.0, [], [GiveUp("b", "too much")]),
        Turn(2.0, [TaskFinished(2.0, *phases[3], 1, 2.0, 9 * MIB)], []),
        Turn(2.0, [TaskFinished(2.0, LEARNING, 0, 1, 2.0, 3 * MIB)], []),
        Turn(3.0, [TaskFinished(3.0, LEARNING, 1, 1, 3.0, 2 * MIB)], []),
    ]
    header = Header(
        "live",
        {"name": "fair"},
        {"penalty": "response", "aggregate": "sum"},
        Cluster((Host("h1", {"task": 4}, resources={"memory": 32 * MIB}),)),
        (),
        jobs_expected=3,
    )
    return Result.of_log(Log(header, turns))


def test_each_phase_of_a_program_or_job_that_requested_memory_has_a_row() -> None:
    """Of an attempt that failed above what it got, all is unused; job c requested none."""
    result = run()
    assert result.memory == (
        MemoryUse("p.py", "map", 6 * MIB, True, 3 * MIB, 12.0 * MIB, 0),
        MemoryUse("b", "run", 4 * MIB, False, 5 * MIB, 4.0 * MIB, 1),
    )
    assert result.metrics["memory"] == {"unused": (12 + 4) / (18 + 4)}
    assert result.to_plain()["memory"][1] == {
        "owner": "b",
        "phase": "run",
        "requested_bytes": 4 * MIB,
        "is_learned": False,
        "peak_bytes": 5 * MIB,
        "unused_byte_seconds": 4.0 * MIB,
        "attempts_stopped": 1,
    }


def test_tables_have_the_rows_in_units_that_people_read() -> None:
    """Columns without any value are left out."""
    assert memory_columns(run().reported) == {
        "program or job": ["p.py", "b"],
        "phase": ["map", "run"],
        "requested": ["6 MiB", "4 MiB"],
        "learned": ["yes", ""],
        "largest peak": ["3 MiB", "5 MiB"],
        "unused": ["3.41 KiB h", "1.14 KiB h"],
        "stopped": ["–", "1"],
    }
    scene = scene_of([run().reported])
    assert "<h2>Memory requested and used</h2>" in page(scene, [], [], "")


def test_the_peaks_of_the_tasks_that_run_are_drawn_over_time() -> None:
    """Of all that were measured, beside what was requested."""
    result = run()
    used = timeline_of(result.log).resources["memory"].used
    assert used == StepFunction((0.0, 1.0, 2.0, 3.0), (19.0 * MIB, 14.0 * MIB, 2.0 * MIB, 0.0))
    pictures = {one.name: one for one in draw_all(scene_of([result.reported]))}
    rows = pictures["requested-memory"].rows["used0"]
    assert [row["used"] for row in rows] == [19.0, 14.0, 2.0, 2.0]
