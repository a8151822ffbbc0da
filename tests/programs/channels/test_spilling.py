"""A spilling channel whose disk takes nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from programs.channels.ends import writing
from slotwise.programs.channels.broken import BrokenChannelError
from slotwise.programs.channels.streams import Reader


def wait(reader: Reader) -> None:
    """Read nothing, as a reader that waits for another channel of the same writer."""
    threading.Event().wait(100)


@pytest.mark.parametrize("kind", ["spilling shm", "spilling tcp"])
def test_the_writer_hears_that_nothing_more_can_be_stored(kind: str, tmp_path: Path) -> None:
    """Otherwise it would wait for room, and its reader perhaps for it."""
    told = "what waits for its reader cannot be stored: .*No such file or directory"
    with (
        writing(kind, wait, tmp_path / "missing") as (writer, _),
        pytest.raises(BrokenChannelError, match=told),
    ):
        writer.write_all(bytes(100_000) for _ in range(1000))
