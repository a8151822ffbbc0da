"""Bytes that pass from a file through a socket into another file."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from slotwise.jobs.hosts import sockets
from slotwise.jobs.hosts.sockets import BLOCK, give_up_after, receive_into, send_from

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two connected sockets, which give up after a while."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for one in (ours, theirs):
            give_up_after(one, 30.0)
        yield ours, theirs


def passed(pair: Pair, folder: Path, start: int, size: int) -> tuple[bytes, bytes]:
    """A range of a file, and what arrives of it behind something else in another file."""
    data = os.urandom(3 * BLOCK + 12_345)
    (folder / "from").write_bytes(data)

    def send() -> None:
        with (folder / "from").open("rb") as file:
            send_from(pair[0], file, start, size)

    sending = threading.Thread(target=send)
    with (folder / "to").open("wb") as out:
        out.write(b"head")
        out.flush()
        sending.start()
        receive_into(pair[1], out.fileno(), size)
        sending.join()
        out.write(b"tail")
    return data[start : start + size], (folder / "to").read_bytes()


@pytest.mark.parametrize("size", [0, 1, BLOCK, 2 * BLOCK + 4_321])
def test_a_range_arrives_as_it_was(pair: Pair, tmp_path: Path, size: int) -> None:
    """Between what was written before and after it."""
    sent, found = passed(pair, tmp_path, 777, size)
    assert found == b"head" + sent + b"tail"


def test_a_file_system_without_splice_gets_the_same(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that are in the pipe already are not lost."""
    splice = os.splice

    def to_a_pipe_only(source: int, target: int, count: int) -> int:
        if os.path.isfile(f"/proc/self/fd/{target}"):
            raise OSError(errno.EINVAL, "no splice here")
        return splice(source, target, count)

    monkeypatch.setattr(sockets.os, "splice", to_a_pipe_only)
    sent, found = passed(pair, tmp_path, 0, 2 * BLOCK + 1)
    assert found == b"head" + sent + b"tail"


def test_the_end_of_the_other_side_is_noticed(pair: Pair, tmp_path: Path) -> None:
    """Some bytes come, then no more."""
    pair[0].sendall(b"some")
    pair[0].close()
    with (tmp_path / "to").open("wb") as out, pytest.raises(EOFError):
        receive_into(pair[1], out.fileno(), 5)
    assert (tmp_path / "to").read_bytes() == b"some"


def test_silence_is_noticed_on_both_sides(pair: Pair, tmp_path: Path) -> None:
    """Nothing comes; or nobody takes what is sent."""
    for one in pair:
        give_up_after(one, 0.1)
    with (tmp_path / "to").open("wb") as out, pytest.raises(BlockingIOError):
        receive_into(pair[1], out.fileno(), 1)
    (tmp_path / "from").write_bytes(bytes(8 * BLOCK))
    with (tmp_path / "from").open("rb") as file, pytest.raises(BlockingIOError):
        send_from(pair[0], file, 0, 8 * BLOCK)


def test_a_file_that_has_become_shorter_is_noticed(pair: Pair, tmp_path: Path) -> None:
    """Its end comes before the end of the range."""
    (tmp_path / "from").write_bytes(b"short")
    with (tmp_path / "from").open("rb") as file, pytest.raises(EOFError):
        send_from(pair[0], file, 0, 10)
