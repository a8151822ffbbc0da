"""Sessions on one machine know of each other's slots."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slotwise import InputError, Session
from slotwise.sessions import hosts
from slotwise.sessions.hosts import claim_cores, folder_of_user, other_sessions

OTHER = """
import sys
from slotwise.sessions.hosts import claim_cores
slots, claim = claim_cores(int(sys.argv[1]), 4)
print(slots, flush=True)
sys.stdin.read()
claim.close()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime folder of the user."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / hosts.FOLDER


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


def test_the_only_session_takes_all_cores_and_leaves_nothing(folder: Path) -> None:
    """Without a warning; its entry is there as long as it is open."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slots, claim = claim_cores(None, 4)
    assert (slots, len(list(folder.iterdir()))) == (4, 1)
    claim.close()
    claim.close()
    assert list(folder.iterdir()) == []


def test_a_second_session_takes_the_cores_that_are_free(open_other: Open) -> None:
    """It is told of the first one, in another process."""
    first = open_other(3)
    with pytest.warns(UserWarning, match=f"process {first.pid} with 3 slots") as told:
        slots, claim = claim_cores(None, 4)
    assert slots == 1
    assert "this one takes 1 slot; give slots for another number" in str(told[0].message)
    claim.close()


def test_a_session_has_at_least_one_slot(open_other: Open) -> None:
    """Also if the others take more than all cores."""
    open_other(9)
    with pytest.warns(UserWarning, match="this machine has 4 cores"):
        slots, claim = claim_cores(None, 4)
    assert slots == 1
    claim.close()


def test_given_slots_are_taken_with_a_warning_if_they_are_too_many(open_other: Open) -> None:
    """A session that fits beside the others gives no warning."""
    open_other(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slots, claim = claim_cores(1, 4)
    assert slots == 1
    with pytest.warns(UserWarning, match="they have 6 in all, so each of them will be slower"):
        slots, other = claim_cores(2, 4)
    assert slots == 2
    claim.close()
    other.close()


def test_a_killed_session_takes_no_cores(open_other: Open, folder: Path) -> None:
    """Its entry is ignored and removed."""
    first = open_other(3)
    first.kill()
    first.wait()
    assert len(list(folder.iterdir())) == 1
    slots, claim = claim_cores(None, 4)
    assert (slots, len(list(folder.iterdir()))) == (4, 1)
    claim.close()


def test_an_open_session_claims_its_slots_and_those_of_its_hosts(folder: Path) -> None:
    """The entry follows the hosts, and goes with the session."""
    with Session(1) as session:
        assert [one.slots for one in other_sessions(folder)] == [1]
        session.add_host("more", 2)
        assert session.submit(len, "ab").result(120.0) == 2
        assert other_sessions(folder) == [(os.getpid(), 3)]
    assert other_sessions(folder) == []


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
        assert [one.slots for one in other_sessions(folder)] == [1]
    assert other_sessions(folder) == []


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
        assert folder_of_user() is None
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.warns(UserWarning, match="it is not a folder"):
        slots, claim = claim_cores(None, 4)
    assert slots == 4
    claim.close()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_warnings_show_the_line_of_the_user(open_other: Open, folder: Path) -> None:
    """Of other sessions, and of a folder that cannot be used."""
    open_other(os.cpu_count() or 1)
    with pytest.warns(UserWarning, match="other sessions run here") as told, Session(1):
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
        assert folder_of_user() is None


def test_without_a_runtime_folder_the_temporary_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name has the number of the user, and only the user can open it."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = folder_of_user()
    assert found == tmp_path / f"{hosts.FOLDER}-{os.getuid()}"
    assert found.stat().st_mode & 0o777 == 0o700
