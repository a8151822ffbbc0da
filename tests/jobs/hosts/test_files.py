"""Partitions of files that are fetched from another host, with a token and with TLS."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from certificates import make_certificate
from jobs.test_work_folder import limited_files
from slotwise.core.errors import WorkFolderError
from slotwise.jobs.blocks import PartitionedReader, PartitionedWriter
from slotwise.jobs.hosts import task_files
from slotwise.jobs.hosts.auth import (
    RefusedError,
    Security,
    greet_peer,
    reader_token,
    tls_context,
)
from slotwise.jobs.hosts.files import MissingFilesError, Wanted, fetch, serve_files
from slotwise.jobs.hosts.task_files import TaskFile
from slotwise.jobs.work_folder import work_folder_name

TOKEN = os.urandom(16)
JOB = work_folder_name()
LARGE = os.urandom((1 << 21) + 77)
CHUNKS = [[b"one", b"two"], [], [LARGE, b"three"]]
"""Those of the partitions of a file."""


@pytest.fixture(params=["token", "tls"])
def securities(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Security, Security]:
    """What the agent has, and what its readers have."""
    if request.param == "token":
        return TOKEN, reader_token(TOKEN)
    given = make_certificate(tmp_path)
    purposes = (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH)
    agent, reader = (tls_context(given, purpose) for purpose in purposes)
    return agent, reader


@pytest.fixture
def address(securities: tuple[Security, Security], tmp_path: Path) -> Iterator[str]:
    """Of one that serves a file of a job as an agent does."""
    attempt = tmp_path / JOB / "map-0-1"
    attempt.mkdir(parents=True)
    with PartitionedWriter(attempt / "pairs", len(CHUNKS)) as file:
        for partition, chunks in enumerate(CHUNKS):
            for chunk in chunks:
                file.append(partition, chunk)

    def serve(connected: socket.socket) -> None:
        with suppress(RefusedError):
            connected, _ = greet_peer(connected, securities[0], {})
            serve_files(connected, tmp_path)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connected, _ = server.accept()
                threading.Thread(target=serve, args=(connected,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_partitions_are_fetched_into_a_file(
    address: str, securities: tuple[Security, Security], tmp_path: Path
) -> None:
    """More requests than may be under way at once; each file's partitions follow in order."""
    wanted = [Wanted("map-0-1", "pairs", 0, 3), Wanted("map-0-1", "pairs", 2, 1)] * 20
    with PartitionedWriter(tmp_path / "copy", 4 * 20) as copy:
        partition = 0
        for sizes in fetch(address, securities[1], JOB, wanted, copy.descriptor):
            for of_one in sizes:
                copy.has_written(partition, of_one)
                partition += 1
    copied = PartitionedReader(tmp_path / "copy")
    found = [list(copied.chunks(partition)) for partition in range(4 * 20)]
    assert found == [*CHUNKS, CHUNKS[2]] * 20


def test_a_copy_without_room_names_its_folder(
    address: str,
    securities: tuple[Security, Security],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other host is not to blame; a limit on the size of files stands for a full disk."""
    monkeypatch.setattr(task_files, "reader_security", lambda: securities[1])
    file = TaskFile("map", 0, 1, address, Path(f"/there/{JOB}/map-0-1/pairs"), 2)
    told = f"kept in {tmp_path}: File too large"
    with limited_files(1 << 20), pytest.raises(WorkFolderError, match=told):
        task_files.fetched([file], 1, tmp_path / "copies")


def test_a_file_that_is_not_there_is_named(
    address: str, securities: tuple[Security, Security], tmp_path: Path
) -> None:
    """By its number among those that were asked for; all others are written."""
    wanted = [Wanted(f"map-{task}-1", "pairs", 0, 1) for task in (0, 1, 0)]
    with (tmp_path / "copy").open("wb") as out, pytest.raises(MissingFilesError) as raised:
        list(fetch(address, securities[1], JOB, wanted, out.fileno()))
    assert raised.value.numbers == [1]
    assert (tmp_path / "copy").read_bytes() == b"onetwo" * 2


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, -1), (3, 1), (2**62, 1)])
def test_parts_that_no_file_can_have_are_refused(
    first: int, count: int, address: str, securities: tuple[Security, Security], tmp_path: Path
) -> None:
    """The connection is closed, and nothing comes."""
    wanted = [Wanted("map-0-1", "pairs", first, count)]
    with (tmp_path / "copy").open("wb") as out, pytest.raises(ConnectionError):
        list(fetch(address, securities[1], JOB, wanted, out.fileno()))
    assert (tmp_path / "copy").read_bytes() == b""


def test_only_regular_files_are_served(
    address: str, securities: tuple[Security, Security], tmp_path: Path
) -> None:
    """A pipe or a link in the folder of an attempt is a file that is missing."""
    attempt = tmp_path / JOB / "map-0-1"
    os.mkfifo(attempt / "pipe")
    (attempt / "link").symlink_to("pairs")
    wanted = [Wanted("map-0-1", name, 0, 1) for name in ("pipe", "link", "pairs")]
    with (tmp_path / "copy").open("wb") as out, pytest.raises(MissingFilesError) as raised:
        list(fetch(address, securities[1], JOB, wanted, out.fileno()))
    assert raised.value.numbers == [0, 1]
    assert (tmp_path / "copy").read_bytes() == b"onetwo"


def test_others_get_nothing(address: str, tmp_path: Path) -> None:
    """A wrong token, whether or not certificates are demanded."""
    wanted = [Wanted("map-0-1", "pairs", 0, 1)]
    with (tmp_path / "copy").open("wb") as out, pytest.raises(ConnectionError):
        list(fetch(address, reader_token(b"another"), JOB, wanted, out.fileno()))
    assert (tmp_path / "copy").read_bytes() == b""
