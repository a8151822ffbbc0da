"""Disks that are full or not to be written: that job ends, others go on, nothing stays."""

from __future__ import annotations

import os
import resource
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

JOBS = """\
slotwise: 1
jobs:
  - {id: large, program: sort, inputs: "in/*.txt", output: out/large, reducers: 1}
  - {id: small, program: grep, parameters: {pattern: nothing-like-it}, inputs: in/book00.txt,
     output: done/small}
"""


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 200 kB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only who may mount a file system can have a small one")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def check(command: Any, reason: str) -> None:
    """The large job failed for this reason, in one line; the small one is done; no rest."""
    lines = command.stderr.splitlines()
    assert lines[-1].startswith("slotwise: flex: job large failed: ")
    assert reason in lines[-1]
    assert "Traceback" not in lines[-1]
    assert (command.folder / "done/small/_SUCCESS").exists()
    assert command.left() == []


def test_a_file_that_may_not_grow(command: Any, books: Counter[str]) -> None:
    """Where files may not grow beyond a size, the job that needs it fails, by that name."""
    command.write(JOBS)
    assert (
        command.run("run", "jobs.yaml", "--slots", "2", limits={resource.RLIMIT_FSIZE: 50_000})
        == 1
    )
    check(command, "File too large")


def test_a_full_disk_for_shuffled_data(
    command: Any, books: Counter[str], tiny_disk: Path
) -> None:
    """Where the disk for temporary files is full, the job fails and the disk is empty again."""
    # A task of the small job could not begin either while the disk is full: it comes behind.
    command.write(f"{JOBS}pools: [{{name: default, jobs_max: 1}}]\n")
    environment = {"TMPDIR": str(tiny_disk)}
    assert command.run("run", "jobs.yaml", "--slots", "2", environment=environment) == 1
    check(command, "No space left on device")
    assert list(tiny_disk.iterdir()) == []


def test_a_full_disk_for_output(command: Any, books: Counter[str], tiny_disk: Path) -> None:
    """Where the disk of the output is full, the job fails and what it wrote is gone."""
    command.write(JOBS.replace("out/large", "disk/large"))
    assert command.run("run", "jobs.yaml", "--slots", "2") == 1
    check(command, "No space left on device")
    assert list(tiny_disk.iterdir()) == []


def test_an_output_below_a_file(command: Any, books: Counter[str]) -> None:
    """An output that can never be made is told with its place; the other job is done."""
    command.write("", "file")
    command.write(JOBS.replace("out/large", "file/large"))
    assert command.run("run", "jobs.yaml", "--slots", "2") in (1, 2)
    assert f"Not a directory ({command.folder}/file" in command.stderr


def test_an_output_on_a_disk_that_is_read_only(
    command: Any, books: Counter[str], tiny_disk: Path
) -> None:
    """An output on a disk that cannot be written is told with its place."""
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    command.write(JOBS.replace("out/large", "disk/large"))
    assert command.run("run", "jobs.yaml", "--slots", "2") == 1
    check(command, f"Read-only file system ({tiny_disk}/large")


def test_a_full_disk_for_the_log(command: Any, books: Counter[str], tiny_disk: Path) -> None:
    """A log that cannot be written any more ends the run with a message, and leaves nothing."""
    command.write("slotwise: 1\njobs: [{id: a, phases: [{name: m, work: 4, tasks: 4000}]}]\n")
    assert command.run("run", "jobs.yaml", "--slots", "2", "--log", f"{tiny_disk}/log") == 2
    assert "Traceback" not in command.stderr
    assert command.stderr.splitlines()[-1].startswith(
        f"slotwise: log '{tiny_disk}/log': No space"
    )
    assert command.left() == []
    assert os.listdir(tiny_disk) == ["log"]
