"""The files with what attempts print: their names, limits, and disks that take no more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slotwise.backends.attempt_logs import (
    ATTEMPT_BYTES_MAX,
    AttemptLogs,
    AttemptOutput,
    attempt_files,
    file_name,
)
from slotwise.core.decisions import Launch, Locality
from slotwise.core.job import Job, Phase, PhaseId, Tasks

ONE = Job("a", (Phase("p", Tasks(3)),))
TWO = Job("a/b", (Phase("map", Tasks(3)), Phase("reduce-1", Tasks(1))))


@pytest.fixture
def warnings() -> list[str]:
    """The warnings of `logs`."""
    return []


@pytest.fixture
def logs(tmp_path: Path, warnings: list[str]) -> AttemptLogs:
    """Logs of a run, without a limit that matters."""
    return AttemptLogs(tmp_path / "logs", 1 << 30, warnings.append)


def output_of(
    logs: AttemptLogs, job: Job = ONE, task: int = 0, phase: int = 0
) -> AttemptOutput:
    """The output of the first attempt of a task."""
    launch = Launch(PhaseId(job.id, job.phases[phase].name), task, 1, "h", Locality.ANY)
    return AttemptOutput(logs, job, launch, is_shown=True)


def contents(logs: AttemptLogs) -> dict[str, bytes]:
    """The contents of all files, by path."""
    found = (path for path in logs.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(logs.folder)): path.read_bytes() for path in found}


def test_a_file_begins_with_the_first_byte(logs: AttemptLogs) -> None:
    """It can be read at once; what comes after the end of the attempt is appended."""
    output = output_of(logs)
    assert (contents(logs), output.path) == ({}, "")
    output.write("out", b"one ")
    assert contents(logs) == {"a/0.1.out": b"one "}
    output.close()
    output.write("out", b"two")
    assert contents(logs) == {"a/0.1.out": b"one two"}
    assert output.path == str(logs.folder / "a/0.1.out")
    output.write("err", b"e")
    assert output.path == str(logs.folder / "a/0.1.err")


def test_names_of_files_tell_job_phase_task_and_attempt(logs: AttemptLogs) -> None:
    """Also those of jobs with several phases, and with names that are no names of files."""
    output_of(logs, TWO, 2).write("out", b"m")
    output_of(logs, TWO, 0, phase=1).write("err", b"r")
    found = sorted(file[:-1] for file in attempt_files(logs.folder))
    assert found == [("a/b", "map", 2, 1, "out"), ("a/b", "reduce-1", 0, 1, "err")]


def test_each_name_of_a_job_has_its_own_folder() -> None:
    """Readable, never outside of the folder of logs, and not too long."""
    names = ["a", "a/b", "a%2Fb", ".", "..", "x" * 500, "x" * 499, "\u00e9" * 300, "\ud800"]
    found = [file_name(name) for name in names]
    assert found[:5] == ["a", "a%2Fb", "a%252Fb", "%2E", "%2E."]
    assert len(set(found)) == len(found)
    assert max(len(name.encode()) for name in found) <= 200


def test_the_end_of_a_long_output_is_cut_with_a_note(logs: AttemptLogs) -> None:
    """The end of stderr is still known, for messages."""
    output = output_of(logs)
    for _ in range(ATTEMPT_BYTES_MAX // (1 << 20) + 2):
        output.write("err", b"x" * (1 << 20))
    output.write("err", b"the end")
    (kept,) = contents(logs).values()
    note = b"\n[slotwise keeps 16 MiB of this output; the rest is cut]\n"
    assert kept == b"x" * ATTEMPT_BYTES_MAX + note
    assert output.tail.endswith(b"xthe end")


def test_output_above_the_limit_of_a_run_is_dropped_with_a_warning(
    tmp_path: Path, warnings: list[str]
) -> None:
    """Each file counts as a block at least, so that many small ones have a limit, too."""
    logs = AttemptLogs(tmp_path, 10_000, warnings.append)
    for task in range(3):
        output_of(logs, task=task).write("out", b"x")
    assert sorted(contents(logs)) == ["a/0.1.out", "a/1.1.out"]
    output_of(logs, task=0).write("out", b"x" * 10_000)
    limit = "the output of this run has reached its limit; the run continues"
    assert [one.endswith(limit) for one in warnings] == [True, True]


def test_a_disk_that_takes_no_more_gives_a_warning(
    logs: AttemptLogs, warnings: list[str]
) -> None:
    """No error reaches the run."""
    (logs.folder / "a").mkdir(parents=True)
    (logs.folder / "a/0.1.out").symlink_to("/dev/full")
    output_of(logs).write("out", b"x")
    logs.folder.joinpath("b").write_text("")
    output_of(logs, Job("b", ONE.phases)).write("out", b"x")
    reasons = {"a": "No space left on device", "b": "File exists"}
    assert warnings == [
        f"output of tasks is not kept: {logs.folder}/{job}/0.1.out: {why}; the run continues"
        for job, why in reasons.items()
    ]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_files_of_the_job_itself_outlive_it(
    logs: AttemptLogs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """They are read from the first byte on, also on another file system; empty ones vanish."""
    if is_elsewhere:
        monkeypatch.setattr(os, "link", lambda *_: os.close(-1))  # Raises OSError.
    staged = tmp_path / "staged.out", tmp_path / "staged.err"
    output = output_of(logs)
    output.link(list(map(str, staged)))
    with staged[0].open("w+b") as file:
        file.write(b"first")
        file.flush()
        assert contents(logs) == {"a/0.1.out": b"first", "a/0.1.err": b""}
    output.close()
    for path in staged:
        path.unlink()
    assert contents(logs) == {"a/0.1.out": b"first"}
