"""Logs in the Standard Workload Format: what a line becomes, what is left out or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotwise.core.errors import InputError
from slotwise.core.job import Job
from slotwise.workload.file import read_workload
from slotwise.workload.swf import SwfLog, read_swf
from slotwise.workload.writer import write_workload

LOG = """\
; Version: 2.2
; MaxNodes: 4
; MaxProcs: 16
; Note: uses the EASY scheduler
;
    1      100  50   40    8     -1    -1   10    60    -1  1   3   1  -1 -1 -1 -1 -1
    2      105   0   30    4     -1    -1   -1    -1    -1  0   4   1   7 -1 -1 -1 -1

    3      110   0    0    4     -1    -1    4    60    -1  5   4   1   7 -1 -1 -1 -1
    4      115  -1   -1    4     -1    -1    4    60    -1  5   4   1   7 -1 -1 -1 -1
    5      120   0   30   -1     -1    -1   -1    60    -1  5   4   1   7 -1 -1 -1 -1
    6      125   0   30   17     -1    -1   17    60    -1  1   4   1   7 -1 -1 -1 -1
    7    130.5   0 10.5    1     -1    -1    1     5    -1  1  -1  -1  -1 -1 -1 -1 -1
"""

WITH_MEMORY = """\
; MaxProcs: 8
; MaxNodes: 2
; MaxMemory: 1000
1 0 0 9 4 -1 300 4 9 200 1 1 1 1 1 1 -1 -1
2 0 0 9 4 -1  -1 4 9  -1 1 1 1 1 1 1 -1 -1
3 0 0 9 4 -1  -1 4 9 900 1 1 1 1 1 1 -1 -1
"""


def written(folder: Path, text: str) -> Path:
    """A log with this text."""
    path = folder / "log.swf"
    path.write_text(text, encoding="utf-8")
    return path


def imported(folder: Path, text: str = LOG, **options: Any) -> SwfLog:
    """What is read from a log with this text."""
    return read_swf(written(folder, text), **options)


def shape(job: Job) -> tuple[int, int, bool, float | None]:
    """The tasks of a job, the slots of each, whether they are a gang, and their work."""
    (phase,) = job.phases
    return phase.tasks.count, phase.slots, phase.gang, phase.tasks.work_of(0)


def test_a_line_becomes_a_rigid_job(tmp_path: Path) -> None:
    """Times count from the first job; what is unknown is left out."""
    first, second, last = imported(tmp_path).jobs
    assert (first.id, first.arrival, first.time_requested) == ("1", 0.0, 60.0)
    assert shape(first) == (1, 10, False, 40.0)
    assert (first.user, first.program) == ("user-3", "user-3-group-1")
    assert (second.arrival, second.time_requested) == (5.0, None)
    assert shape(second) == (1, 4, False, 30.0)
    assert (second.user, second.program) == ("user-4", "program-7")
    assert (last.arrival, last.time_requested, last.user, last.program) == (30.5, 5.0, None, "")


def test_what_cannot_run_is_left_out_and_counted(tmp_path: Path) -> None:
    """Jobs without a run time or processors, and those of more than all processors."""
    found = imported(tmp_path)
    assert (len(found.jobs), found.unknown, found.large) == (3, 3, 1)


def test_the_computer_is_one_host_or_several(tmp_path: Path) -> None:
    """On several, a job that needs more than one of them is a gang of equal tasks."""
    assert [host.slots for host in imported(tmp_path).cluster.hosts] == [{"task": 16}]
    found = imported(tmp_path, nodes=4)
    assert [(host.name, host.slots) for host in found.cluster.hosts] == [
        (f"n{number}", {"task": 4}) for number in range(4)
    ]
    assert [shape(job)[:3] for job in found.jobs] == [
        (3, 4, True),
        (1, 4, False),
        (1, 1, False),
    ]


def test_processors_may_be_given(tmp_path: Path) -> None:
    """They replace those of the header."""
    found = imported(tmp_path, processors=20)
    assert found.cluster.capacity == {"task": 20}
    assert (len(found.jobs), found.large) == (4, 0)


def test_true_times_may_be_requested(tmp_path: Path) -> None:
    """Each job requests the time that it runs."""
    assert [job.time_requested for job in imported(tmp_path, true_times=True).jobs] == [
        *(40.0, 30.0, 10.5)
    ]


def test_only_the_first_jobs(tmp_path: Path) -> None:
    """Further lines are not read."""
    assert [job.id for job in imported(tmp_path, f"{LOG}?\n", first=2).jobs] == ["1", "2"]


def test_memory_counts_if_the_computer_states_it(tmp_path: Path) -> None:
    """In KiB of each processor, and of each node."""
    found = imported(tmp_path, WITH_MEMORY)
    (host,) = found.cluster.hosts
    assert host.resources["memory"] == 2000 * 1024
    assert [job.phases[0].needs.get("memory", 0) for job in found.jobs] == [800 * 1024, 0]
    assert found.jobs[0].phases[0].tasks.peaks == 1200 * 1024
    assert found.large == 1
    plain = imported(tmp_path, WITH_MEMORY.replace("MaxMemory", "Memory"))
    assert [dict(job.phases[0].needs) for job in plain.jobs] == [{}] * 3


def test_the_workload_file_has_the_same_jobs(tmp_path: Path) -> None:
    """With requested times, users and the names of programs."""
    found = imported(tmp_path, nodes=2)
    write_workload(found.jobs, tmp_path / "jobs.yaml", cluster=found.cluster)
    workload = read_workload(tmp_path / "jobs.yaml")
    assert workload.jobs == found.jobs
    assert workload.cluster == found.cluster


LINE = "1 0 0 9 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no jobs with run time and processors; name a log in SWF"),
        ("; MaxProcs: 4\n", "no jobs with run time and processors; name a log in SWF"),
        (LINE, "line 1: no comment before it states MaxProcs; add '; MaxProcs: N', or"),
        (f"; MaxProcs: many\n{LINE}", "line 2: no comment before it states MaxProcs; add"),
        ("; MaxProcs: 4\n1 2 3\n", "line 2: 3 fields; a line of a log in SWF has 18 numbers"),
        (f"; MaxProcs: 4\n\n{LINE}{LINE}", "line 4: job number '1' occurs twice; rename one"),
        (
            f"; MaxProcs: 4\n{LINE.replace(' 9 4', ' nine 4', 1)}",
            "line 2: run time is 'nine'; expected a number, or -1 if unknown",
        ),
        (
            f"; MaxProcs: 4\n{LINE.replace('1 0 0', '1 -1 0', 1)}",
            "line 2: submit time is -1; give seconds >= 0",
        ),
        (
            f"; MaxProcs: 4\n{LINE.replace(' 9 4', f' {10**15} 4', 1)}",
            "line 2: run time is 1e+15; give seconds, at most",
        ),
        (f"; MaxProcs: {10**9}\n{LINE}", "line 2: 1000000000 processors of a host; give at"),
        ("\x00\xff\xfe\n", "line 1: no comment before it states MaxProcs"),
    ],
)
def test_an_invalid_log_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The message names file, line and value, and what to do."""
    path = tmp_path / "log.swf"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_swf(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes is 0; give a number, at least 1"),
        ({"nodes": 17}, "line 6: 17 nodes for 16 processors; give at most 16 nodes"),
        ({"processors": 0}, "processors is 0; give a number, at least 1"),
        ({"first": 0}, "first is 0; give a number, at least 1"),
    ],
)
def test_an_invalid_option_is_refused(
    tmp_path: Path, options: dict[str, int], message: str
) -> None:
    """In one message."""
    with pytest.raises(InputError, match=message):
        imported(tmp_path, **options)
