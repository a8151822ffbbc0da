"""Outputs of a dataflow in several folders: committed, replaced and taken over as one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import slotwise
from dataflow_nodes import parity
from slotwise.core.errors import InputError
from slotwise.jobs.dataflow.planning import plan_dataflow
from slotwise.jobs.staged import StagedExecution

BOTH = ["_SUCCESS", "parity-even/part-n-00000", "parity-odd/part-n-00000"]


def execution(folder: Path, outputs: int = 2, *, overwrite: bool = False) -> StagedExecution:
    """A job that writes one output or both of a node, all tasks of which are done."""
    flow = slotwise.Dataflow()
    both = flow.node(parity, flow.values(range(4)), outputs=("even", "odd"))
    for name in ("even", "odd")[:outputs]:
        flow.write(both[name])
    made = plan_dataflow(
        "j", flow, folder / "out", work_dir=folder / "work", overwrite=overwrite
    )
    (task,) = made.job.phases
    made.finished(task.name, 0, 1, made.runner(*made.arguments(task.name, 0, 1)))
    return made


def files(folder: Path) -> list[str]:
    """All files of the output."""
    out = folder / "out"
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


def test_one_manifest_lists_the_parts_of_all_folders(tmp_path: Path) -> None:
    """It is in the output itself; before the commit no folder is there."""
    job = execution(tmp_path)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["_temporary"]
    job.close(True)
    assert files(tmp_path) == BOTH
    manifest = json.loads((tmp_path / "out" / "_SUCCESS").read_text())
    assert manifest["parts"] == BOTH[1:]


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (2, 2)])
def test_other_outputs_replace_all_old_parts(tmp_path: Path, first: int, then: int) -> None:
    """One output has no folder, two have one each; nothing of the earlier ones is left."""
    execution(tmp_path, first).close(True)
    execution(tmp_path, then, overwrite=True).close(True)
    assert files(tmp_path) == (["_SUCCESS", "part-n-00000"] if then == 1 else BOTH)
    folders = [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert sorted(folders) == (["parity-even", "parity-odd"] if then == 2 else [])


def test_files_of_users_in_the_folders_stay(tmp_path: Path) -> None:
    """A folder with such a file is not removed."""
    execution(tmp_path).close(True)
    (tmp_path / "out" / "parity-odd" / "notes").touch()
    execution(tmp_path, 1, overwrite=True).close(True)
    assert files(tmp_path) == ["_SUCCESS", "parity-odd/notes", "part-n-00000"]


@pytest.mark.parametrize("name", ["parity-odd", "parity-odd/part-n-00000"])
def test_a_file_of_a_user_in_the_way_is_refused(tmp_path: Path, name: str) -> None:
    """Also where a folder belongs."""
    execution(tmp_path, 1).close(True)
    (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / name).touch()
    with pytest.raises(InputError, match=f"holds '{name}', which no job has written"):
        execution(tmp_path, overwrite=True)
    assert name in files(tmp_path)


KILLED = """\
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from jobs.dataflow.test_output_folders import execution

made = execution(Path(), overwrite=True)
count, replace = int(sys.argv[1]), os.replace
def killed(source, target):
    global count
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)
    count -= 1
    replace(source, target)
os.replace = killed
made.close(True)
"""
"""A job that is killed during its commit, after this many renames."""


@pytest.mark.parametrize(("first", "renames"), [(0, 1), (1, 2)])
def test_a_killed_commit_is_no_success_and_is_replaced(
    tmp_path: Path, first: int, renames: int
) -> None:
    """Between the folders, too; the next job removes what is there."""
    if first:
        execution(tmp_path, first).close(True)
    tests = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", KILLED, str(renames), tests]
    ended = subprocess.run(command, cwd=tmp_path, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert "_SUCCESS" not in files(tmp_path)
    with pytest.raises(InputError, match="exists"):
        execution(tmp_path)
    execution(tmp_path, 1, overwrite=True).close(True)
    assert files(tmp_path) == ["_SUCCESS", "part-n-00000"]


def test_a_commit_that_is_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses the part of the second folder."""
    job, replace = execution(tmp_path), os.replace

    def refuse(source: str, target: str) -> None:
        if "odd" in target:
            raise OSError("the disk is full")
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="full"):
            job.close(True)
    job.close(False)
    assert not (tmp_path / "out").exists()
