"""Runs and sessions on one machine know of each other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import slotwise
from slotwise import InputError, Job, Phase, Session, Tasks
from slotwise.backends.local import presence
from slotwise.backends.local.presence import enter, folder_of_user, others_in
from slotwise.running import warn_user
from slotwise.sources import processors

OTHER = """
import sys
from slotwise.backends.local.presence import enter
with enter(int(sys.argv[1]), 99, print):
    print(sys.argv[1], flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime folder of the user."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / presence.FOLDER


@pytest.fixture
def open_other() -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    """Starts a process with a session of so many slots."""
    started: list[subprocess.Popen[str]] = []

    def start(slots: int) -> subprocess.Popen[str]:
        one = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(slots)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == f"{slots}\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


Open = Callable[[int], "subprocess.Popen[str]"]


def quiet(text: str) -> None:
    """Fails if there is a warning."""
    raise AssertionError(text)


def test_an_entry_is_there_as_long_as_its_run(folder: Path) -> None:
    """Nothing is left of it, and it can be closed again."""
    presence = enter(4, 4, quiet)
    assert len(list(folder.iterdir())) == 1
    presence.close()
    presence.close()
    assert list(folder.iterdir()) == []


def test_a_second_run_warns_if_slots_are_too_many(open_other: Open) -> None:
    """It names the first one, in another process. One that fits beside it gives no warning."""
    first = open_other(3)
    told: list[str] = []
    with enter(1, 4, quiet), enter(2, 4, told.append):
        pass
    (text,) = told
    assert f"process {first.pid} with 3 slots" in text
    assert "they have 6 in all, so each of them will be slower; give fewer slots" in text


def test_a_run_tells_of_another_that_fits_beside_it(open_other: Open) -> None:
    """In one line, with the process and its slots, but not of others in its own process."""
    first = open_other(3)
    told: list[str] = []
    with enter(1, 9, told.append, reports=True), enter(1, 9, told.append, reports=True):
        pass
    assert len(told) == 2
    assert all(f", process {first.pid}, uses 3 slots of this machine" in text for text in told)
    assert all(str(os.getpid()) not in text for text in told)


def test_a_killed_run_is_not_counted(open_other: Open, folder: Path) -> None:
    """Its entry is ignored and removed."""
    first = open_other(3)
    first.kill()
    first.wait()
    assert len(list(folder.iterdir())) == 1
    with enter(4, 4, quiet):
        assert len(list(folder.iterdir())) == 1


def test_a_run_and_a_session_are_there_while_they_last(folder: Path) -> None:
    """Nothing is left of them."""
    seen: list[list[tuple[int, int]]] = []
    with Session(1) as session:
        assert others_in(folder) == [(os.getpid(), 1)]
        assert session.submit(len, "ab").result(120.0) == 2
    job = Job("j", (Phase("p", Tasks(1, 0.0)),))
    slotwise.run(job, slots=1, progress=lambda *turn: seen.append(list(others_in(folder))))
    assert seen[0] == [(os.getpid(), 1)]
    assert others_in(folder) == []


def test_a_session_without_slots_takes_all_processors(open_other: Open) -> None:
    """Also beside another one."""
    open_other(1)
    with pytest.warns(UserWarning, match="slotwise also runs here"), Session() as session:
        assert session.slots == processors()


def test_a_forked_child_leaves_the_entry_of_its_parent(folder: Path) -> None:
    """Also if it closes the session."""
    with Session(1) as session:
        assert session.submit(len, "ab").result(120.0) == 2
        child = os.fork()
        if child == 0:
            try:
                session.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert [one.slots for one in others_in(folder)] == [1]
    assert others_in(folder) == []


def test_a_session_that_cannot_open_leaves_no_entry(folder: Path) -> None:
    """The options are refused after the entry was made."""
    with pytest.raises(InputError, match="unknown penalty"):
        Session(1, objective="sloth")
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_can_change_is_not_used(folder: Path) -> None:
    """Nor a link, a file, or a folder of another user; the session opens without an entry."""
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="other users may use it; set its mode to 0700"):
        assert folder_of_user(warn_user) is None
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.warns(UserWarning, match="it is not a folder"):
        enter(4, 4, warn_user).close()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_warnings_show_the_line_of_the_user(open_other: Open, folder: Path) -> None:
    """Of other sessions, and of a folder that cannot be used."""
    open_other(os.cpu_count() or 1)
    with pytest.warns(UserWarning, match="slotwise also runs here") as told, Session(1):
        pass
    assert told[0].filename == __file__
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="set its mode to 0700") as told, Session(1):
        pass
    assert told[0].filename == __file__


def test_a_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may have made it first in the temporary folder."""
    folder.mkdir(mode=0o700)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.warns(UserWarning, match=f"it belongs to user {user}"):
        assert folder_of_user(warn_user) is None


def test_without_a_runtime_folder_the_temporary_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name has the number of the user, and only the user can open it."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = folder_of_user(warn_user)
    assert found == tmp_path / f"{presence.FOLDER}-{os.getuid()}"
    assert found.stat().st_mode & 0o777 == 0o700
