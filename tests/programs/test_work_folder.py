"""The folder for intermediate files: permissions, and the removal of leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slotwise.programs import plan_mapreduce
from slotwise.programs.work_folder import WorkFolder, sweep, work_folder_name

KILLED = """\
import os, signal, sys
from slotwise.programs.work_folder import WorkFolder

folder = WorkFolder(sys.argv[1])
folder.open("j")
open(sys.argv[1] + "/pairs", "w").close()
os.kill(os.getpid(), signal.SIGKILL)
"""


def leave(root: Path) -> Path:
    """A folder whose owner was killed."""
    folder = root / work_folder_name()
    ended = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (folder / "pairs").exists()
    return folder


@pytest.fixture
def open_umask() -> object:
    """An umask that hides nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_intermediate_files_are_private(tmp_path: Path, open_umask: object) -> None:
    """Folders have mode 0700 and files 0600, whatever the umask is."""
    (tmp_path / "text").write_text("b a\nb\n")
    execution = plan_mapreduce(
        "j", "wordcount", "text", "out", base_dir=tmp_path, work_dir=tmp_path / "work"
    )
    execution.finished("map", 0, 0, execution.runner(*execution.arguments("map", 0, 0)))
    (work,) = (tmp_path / "work").iterdir()
    modes = {path: path.stat().st_mode & 0o777 for path in (work, *work.rglob("*"))}
    assert {path.name for path in modes} >= {"map-0-0", "pairs", "lock"}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())
    execution.close(False)


def test_leftovers_are_swept(tmp_path: Path) -> None:
    """A job that begins removes the folders of killed runs, and those alone."""
    leave(tmp_path)
    (tmp_path / work_folder_name()).mkdir()
    living = WorkFolder(tmp_path / work_folder_name())
    living.open("living")
    theirs = tmp_path / work_folder_name()
    theirs.mkdir()
    (theirs / "file").touch()
    (tmp_path / "slotwise-notes").mkdir()
    begun = WorkFolder(tmp_path / work_folder_name())
    begun.open("j")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {living.path.name, theirs.name, "slotwise-notes", begun.path.name}
    living.remove()
    begun.remove()
    assert {path.name for path in tmp_path.iterdir()} == {theirs.name, "slotwise-notes"}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link of such a name to a leftover elsewhere is not swept, and nor is what it names."""
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    root.mkdir()
    folder = leave(elsewhere)
    (root / work_folder_name()).symlink_to(folder)
    sweep(root)
    assert (folder / "pairs").exists()
