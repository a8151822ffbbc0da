"""The folder for intermediate files: permissions, and the removal of leftovers."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slotwise.core.errors import WorkFolderError
from slotwise.core.tracebacks import format_traceback
from slotwise.jobs import plan_mapreduce
from slotwise.jobs.blocks import PartitionedWriter
from slotwise.jobs.channels.files import FileWriter
from slotwise.jobs.commit import Layout
from slotwise.jobs.dataflow.ends import sorted_by_key
from slotwise.jobs.transfer import put
from slotwise.jobs.work_folder import (
    WorkFolder,
    named_file_errors,
    sweep,
    temporary_folder,
    work_folder_errors,
    work_folder_name,
)

KILLED = """\
import os, signal, sys
from slotwise.jobs.work_folder import WorkFolder

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


def _partitioned(folder: Path) -> None:
    with PartitionedWriter(folder / "pairs", 1) as file:
        file.append(0, bytes(LARGE))


def _channel(folder: Path) -> None:
    with FileWriter(folder / "channel", 1) as file:
        file.part(0).write_all(bytes(1 << 16) for _ in range(64))


def _sorted(folder: Path) -> None:
    list(sorted_by_key([b"%d" % n * 100 for n in range(2048)], len, 1, folder))


def _passed(folder: Path) -> None:
    put(bytes(LARGE), [str(folder)], "value")


def _attempt(folder: Path) -> None:
    Layout(str(folder), "/out", is_shared=True).make_attempt_dir("map", 0, 1)


WRITING = [_partitioned, _channel, _sorted, _passed]
"""What writes intermediate files: maps, spills and copies; channels; sorts; passed results."""

LARGE = 1 << 22


@pytest.mark.parametrize("write", [*WRITING, _attempt])
def test_a_missing_folder_is_named_with_a_remedy(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    """Whatever is written to it: the error has the folder, the reason and what to do."""
    folder = tmp_path / "gone"
    with pytest.raises(WorkFolderError, match=f"kept in {folder}: No such file") as raised:
        write(folder)
    assert "TMPDIR" in format_traceback(raised.value)
    assert "Traceback" not in format_traceback(raised.value)


@pytest.mark.parametrize("write", WRITING)
def test_a_full_folder_is_named_with_a_remedy(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    """A limit on the size of files stands for a full disk, for which one must be root."""
    told = f"kept in {tmp_path}: File too large"
    with limited_files(100_000), pytest.raises(WorkFolderError, match=told):
        write(tmp_path)


@contextmanager
def limited_files(most: int) -> Iterator[None]:
    """No file of this process may be longer than that."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_only_files_of_the_folder_are_its_errors(tmp_path: Path) -> None:
    """A run that vanished is one; a file that code of a user does not find is none."""
    work = tmp_path / "work"
    told = f"kept in {work}: No such file"
    with pytest.raises(WorkFolderError, match=told), named_file_errors(work):
        (work / "reduce-0-1" / "run-3").open()
    with pytest.raises(FileNotFoundError), named_file_errors(work):
        (tmp_path / "of-the-user").open()
    with pytest.raises(ConnectionError), work_folder_errors(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "gone")


def test_a_folder_that_vanishes_during_the_job_is_named(tmp_path: Path) -> None:
    """The next task fails with the folder and the remedy, not with a traceback."""
    (tmp_path / "text").write_text("b a\nb\n")
    execution = plan_mapreduce(
        "j", "wordcount", "text", "out", base_dir=tmp_path, work_dir=tmp_path / "work"
    )
    arguments = execution.arguments("map", 0, 0)
    shutil.rmtree(tmp_path / "work")
    with pytest.raises(WorkFolderError, match=f"kept in {tmp_path / 'work'}.*No such file"):
        execution.runner(*arguments)
    execution.close(False)


def test_a_stated_folder_that_cannot_be_used_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes another one without a word; one that can be used is taken."""
    missing = tmp_path / "missing"
    for stated in (missing, tmp_path):
        monkeypatch.setenv("TMPDIR", str(stated))
        monkeypatch.setattr(tempfile, "tempdir", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = temporary_folder()
        texts = [str(warning.message) for warning in caught]
        if stated is missing:
            assert texts == [
                f"TMPDIR is '{missing}', where no file can be written: No such file or"
                f" directory; intermediate files go to {found}; correct it, or leave it out"
            ]
        else:
            assert (texts, found) == ([], str(tmp_path))
