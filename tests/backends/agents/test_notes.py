"""Notes that tasks leave at the agent of another host."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_processes import TOKEN, Loopback
from slotwise.core.cluster import Cluster, Host
from slotwise.jobs.hosts import notes
from slotwise.jobs.hosts.auth import RefusedError, reader_token
from slotwise.jobs.hosts.messages import frame
from slotwise.jobs.hosts.notes import RemoteStore, serve_notes
from slotwise.jobs.work_folder import work_folder_name

JOB = work_folder_name()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of an agent that has the folder of a job, and its folder."""
    monkeypatch.setattr(notes, "reader_security", lambda: reader_token(TOKEN))
    source = Loopback(Cluster((Host("a", {"task": 1}),)), tmp_path)
    try:
        (connected,) = source.connect()
        (root,) = (tmp_path / "a").iterdir()
        (root / JOB / "0-1-1").mkdir(parents=True)
        yield connected.address, root
        connected.stream.close()
    finally:
        source.close()


def test_a_note_is_there_for_others_once_it_is_left(agent: tuple[str, Path]) -> None:
    """Until then there is none. Each asks by a connection of its own."""
    address, root = agent
    one, other = (RemoteStore(address, Path(JOB, "0-1-1")) for _ in range(2))
    assert other.note("2-0") is None
    assert one.note("2-0", "127.0.0.5:99") == "127.0.0.5:99"
    assert other.note("2-0") == "127.0.0.5:99"
    assert RemoteStore(address, Path(JOB, "0-1-2")).note("2-0") is None
    assert [path.name for path in (root / JOB / "0-1-1").iterdir()] == ["note-2-0"]
    one.close()
    other.close()


def test_a_note_without_its_folder_is_not_left(agent: tuple[str, Path]) -> None:
    """It may be made later; after the end of the job it is not there any more."""
    address, root = agent
    notes = RemoteStore(address, Path(JOB, "0-1-2"))
    assert notes.note("2-0", "x") is None
    assert not (root / JOB / "0-1-2").exists()
    (root / JOB / "0-1-2").mkdir()
    assert notes.note("2-0", "x") == "x"
    notes.close()


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (Path("other", "0-1-1"), "2-0"),
        (Path(JOB, ".."), "2-0"),
        (Path(JOB, "0-1-1"), "../2-0"),
        (Path(JOB, "0-1-1"), "/2-0"),
    ],
)
def test_notes_lie_in_folders_of_attempts_only(
    folder: Path, name: str, agent: tuple[str, Path]
) -> None:
    """The agent closes the connection of who asks for another place."""
    address, root = agent
    before = sorted(root.rglob("*"))
    with pytest.raises(ConnectionError):
        RemoteStore(address, folder).note(name, "x")
    assert sorted(root.rglob("*")) == before


def test_a_request_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    """As any other one that is not valid; the connection is closed."""
    agent, task = socket.socketpair()
    with task:
        task.sendall(frame(b"\x91" * 60_000))
        with pytest.raises(RefusedError, match="invalid request: it is not a message"):
            serve_notes(agent, tmp_path)
        assert task.recv(1) == b""


def test_a_pipe_is_no_note(agent: tuple[str, Path]) -> None:
    """The agent closes the connection instead of waiting for a writer."""
    address, root = agent
    os.mkfifo(root / JOB / "0-1-1" / "note-2-0")
    with pytest.raises(ConnectionError):
        RemoteStore(address, Path(JOB, "0-1-1")).note("2-0")


@pytest.mark.parametrize("token", [lambda: b"a guess", lambda: TOKEN])
def test_who_does_not_know_the_token_of_tasks_is_refused(
    token: Callable[[], bytes], agent: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before anything else."""
    monkeypatch.setattr(notes, "reader_security", token)
    with pytest.raises(ConnectionError, match="does not accept the token"):
        RemoteStore(agent[0], Path(JOB, "0-1-1")).note("2-0", "x")
