"""A spilling channel whose disk takes nothing, and what its writer does then."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from jobs.channels.ends import writing
from slotwise.jobs.channels.carriers import BrokenChannelError
from slotwise.jobs.channels.streams import Reader
from slotwise.jobs.channels.wire import FAIL_SECONDS, Wire


def wait(reader: Reader) -> None:
    """Read nothing, as a reader that waits for another channel of the same writer."""
    threading.Event().wait(100)


@pytest.mark.parametrize("kind", ["spilling shm", "spilling tcp"])
def test_the_writer_hears_that_nothing_more_can_be_stored(kind: str, tmp_path: Path) -> None:
    """Otherwise it would wait for room, and its reader perhaps for it."""
    told = "unread records cannot be stored: .*No such file or directory"
    with (
        writing(kind, wait, tmp_path / "missing") as (writer, _),
        pytest.raises(BrokenChannelError, match=told),
    ):
        writer.write_all(bytes(100_000) for _ in range(1000))


def test_a_writer_does_not_wait_to_tell_a_reader_that_has_failed() -> None:
    """Such a reader may not read any more, so that there is never room for what it is told."""
    ours, theirs = socket.socketpair()
    writer, reader = Wire(ours), Wire(theirs)
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            ours.send(bytes(1 << 16))
    ours.setblocking(True)
    reader.leave("the disk is full")
    with pytest.raises(BrokenChannelError, match="the disk is full"):
        writer.next_message(None)
    began = monotonic()
    writer.send_failure("the disk of the reader is full")
    assert monotonic() - began < FAIL_SECONDS / 2
    writer.close()
    reader.close()
