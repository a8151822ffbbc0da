"""Full and read-only disks: the job that needs them fails, others go on, nothing is left."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slotwise.run_folder import RunFolder

JOBS = """\
slotwise: 1
jobs:
  - {id: large, program: sort, inputs: "in/*.txt", output: out/large, reducers: 1}
  - {id: small, program: grep, parameters: {pattern: nothing-like-it}, inputs: in/book00.txt,
     output: done/small}
"""


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is a file system of 200 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def check(command: Any, reason: str) -> None:
    """One line says why the large job failed; the small job is done; no file is left."""
    lines = command.stderr.splitlines()
    assert lines[-1].startswith("slotwise: flex: job large failed: ")
    assert reason in lines[-1]
    assert "Traceback" not in lines[-1]
    assert (command.folder / "done/small/_SUCCESS").exists()
    assert command.left() == []


def test_a_limit_on_the_size_of_files(command: Any, books: Counter[str]) -> None:
    """A job that needs a larger file fails with "File too large"."""
    command.write(JOBS)
    assert (
        command.run("run", "jobs.yaml", "--slots", "2", limits={resource.RLIMIT_FSIZE: 50_000})
        == 1
    )
    check(command, f"kept in {command.temporary}/slotwise-")
    check(command, "File too large; check that this folder exists")


def test_a_full_disk_for_shuffled_data(
    command: Any, books: Counter[str], tiny_disk: Path
) -> None:
    """Where the disk for temporary files is full, the job fails and the disk is empty again."""
    # While the disk is full no task of the small job could begin either, so it runs later.
    command.write(f"{JOBS}pools: [{{name: default, jobs_max: 1}}]\n")
    environment = {"TMPDIR": str(tiny_disk)}
    assert command.run("run", "jobs.yaml", "--slots", "2", environment=environment) == 1
    check(command, f"its intermediate files cannot be kept in {tiny_disk}/slotwise-")
    check(command, "No space left on device; check that this folder exists")
    assert list(tiny_disk.iterdir()) == []


def test_a_stated_folder_for_temporary_files_that_is_missing(
    command: Any, books: Counter[str]
) -> None:
    """One line warns of it, and the run goes on with another folder."""
    command.write(JOBS)
    missing = f"{command.folder}/missing"
    assert command.run("run", "jobs.yaml", "--slots", "2", environment={"TMPDIR": missing}) == 0
    first = command.stderr.splitlines()[0]
    assert first.startswith(
        f"slotwise: TMPDIR is '{missing}', where no file can be written: No"
    )


def test_an_output_that_cannot_be_made_although_access_says_so(
    command: Any, books: Counter[str]
) -> None:
    """Nothing runs. Users other than root are told so by access."""
    command.write(JOBS.replace("out/large", "/proc/none/large"))
    assert command.run("run", "jobs.yaml", "--slots", "2") == 2
    (line,) = command.stderr.splitlines()
    assert line.startswith(
        "slotwise: jobs.yaml: jobs[0] (line 3): job 'large': output '/proc/none/"
    )
    assert command.left() == []
    assert not (command.folder / "done").exists()


def test_a_full_disk_for_output(command: Any, books: Counter[str], tiny_disk: Path) -> None:
    """Where the disk of the output is full, the job fails and what it wrote is gone."""
    command.write(JOBS.replace("out/large", "disk/large"))
    assert command.run("run", "jobs.yaml", "--slots", "2") == 1
    check(command, "No space left on device")
    assert list(tiny_disk.iterdir()) == []


def test_an_output_below_a_file(command: Any, books: Counter[str]) -> None:
    """It is refused before anything runs; the message gives the file."""
    command.write("", "file")
    command.write(JOBS.replace("out/large", "file/large"))
    assert command.run("run", "jobs.yaml", "--slots", "2") == 2
    assert f"is below the file '{command.folder}/file'" in command.stderr


def test_an_output_on_a_disk_that_is_read_only(
    command: Any, books: Counter[str], tiny_disk: Path
) -> None:
    """It is refused before anything runs; the message gives the place."""
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    command.write(JOBS.replace("out/large", "disk/large"))
    assert command.run("run", "jobs.yaml", "--slots", "2") == 2
    assert f"cannot be written: '{tiny_disk}' is not writable" in command.stderr
    assert command.left() == []


def test_a_full_disk_for_the_log(command: Any, books: Counter[str], tiny_disk: Path) -> None:
    """When the log cannot be written any more, the run goes on, and says so at its end."""
    command.write("slotwise: 1\njobs: [{id: a, phases: [{name: m, work: 4, tasks: 4000}]}]\n")
    run = ("run", "jobs.yaml", "--slots", "2", "--json")
    assert command.run(*run, "--log", f"{tiny_disk}/log") == 2
    assert "Traceback" not in command.stderr
    assert command.stderr.splitlines()[-1].startswith(
        "slotwise: the run is over, but not all of it is recorded: log"
        f" '{tiny_disk}/log': No space"
    )
    assert json.loads(command.stdout)["metrics"]["tasks_done"] == 4000
    assert command.left() == []
    assert os.listdir(tiny_disk) == ["log"]


@pytest.mark.parametrize("is_full_before", [True, False])
def test_a_full_disk_for_what_tasks_print(
    command: Any, tiny_disk: Path, monkeypatch: pytest.MonkeyPatch, is_full_before: bool
) -> None:
    """The run goes on without it, and the output of the job is complete."""
    job = "tasks: 3, command: head -c 90000 /dev/zero"
    command.write(f"slotwise: 1\njobs: [{{id: a, output: out, {job}}}, {{id: b, {job}}}]\n")
    if is_full_before:
        (tiny_disk / "rest").write_bytes(b"x" * 200_000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tiny_disk))
    assert command.run("run", "jobs.yaml", "--slots", "1") == 0
    sizes = [path.stat().st_size for path in sorted((command.folder / "out").glob("*.out"))]
    assert sizes == [90_000] * 3
    text = "this run is not kept" if is_full_before else "output of tasks is not kept"
    assert command.stderr.count(text) == 1
    # Neither the run nor the record of completed jobs is kept.
    assert command.stderr.count("No space left on device") == 1 + is_full_before
    states = [run.state for run in RunFolder.all()]
    assert states == ([] if is_full_before else ["done"])
