"""A task that fetches from an agent that is frozen gives up, and says what it has lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_processes import TOKEN, Loopback
from slotwise.core.cluster import Cluster, Host
from slotwise.jobs.blocks import PartitionedWriter
from slotwise.jobs.execution import LostInputError
from slotwise.jobs.hosts import auth, files
from slotwise.jobs.hosts import task_files as fetching
from slotwise.jobs.hosts.auth import reader_token
from slotwise.jobs.hosts.task_files import TaskFile, fetched
from slotwise.jobs.work_folder import work_folder_name

JOB = work_folder_name()
LARGE = 64


def refuse(seconds: float) -> None:
    """Instead of a pause before another try."""
    raise AssertionError("a silent host is not tried again")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TaskFile, int]]:
    """A file of an agent, larger than the buffers of a connection, and the agent."""
    monkeypatch.setattr(fetching, "reader_security", lambda: reader_token(TOKEN))
    monkeypatch.setattr(fetching, "time", SimpleNamespace(sleep=refuse))
    source = Loopback(Cluster((Host("a", {"task": 1}),)), tmp_path)
    try:
        (connected,) = source.connect()
        (root,) = (tmp_path / "a").iterdir()
        attempt = root / JOB / "map-0-1"
        attempt.mkdir(parents=True)
        with PartitionedWriter(attempt / "pairs", 1) as file:
            for _ in range(LARGE):
                file.append(0, os.urandom(1 << 20))
        pid = source.agents["a"].pid
        yield TaskFile("map", 0, 1, connected.address, attempt / "pairs", 0), pid
        os.kill(pid, signal.SIGCONT)
        connected.stream.close()
    finally:
        source.close()


def test_an_agent_that_does_not_greet_has_lost_its_files(
    served: tuple[TaskFile, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of its host accepts connections meanwhile."""
    file, agent = served
    monkeypatch.setattr(auth, "GREETING_SECONDS", 0.5)
    os.kill(agent, signal.SIGSTOP)
    with pytest.raises(LostInputError) as caught:
        fetched([file], 1, tmp_path / "copy")
    place = f"map-0-1/pairs at {file.address} cannot be fetched: "
    assert str(caught.value).startswith(place)


def test_an_agent_that_sends_no_more_has_lost_its_files(
    served: tuple[TaskFile, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops when the task has begun to receive. What it sends before is not enough."""
    file, agent = served
    receive = files.receive_into

    def freeze(*given: object) -> None:
        os.kill(agent, signal.SIGSTOP)
        receive(*given)  # type: ignore[arg-type]

    fetched([file], 1, tmp_path / "copy")
    assert (tmp_path / "copy-0").stat().st_size > LARGE << 20
    monkeypatch.setattr(files, "SILENT_SECONDS", 0.5)  # A busy agent takes longer to greet.
    monkeypatch.setattr(files, "receive_into", freeze)
    with pytest.raises(
        LostInputError, match=r"cannot be fetched: the agent at .* does not answer"
    ):
        fetched([file], 1, tmp_path / "other")
