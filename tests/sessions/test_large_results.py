"""Large results pass from call to call and to the caller in files that are mapped."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slotwise import Session

PATIENCE = 120.0
NUMBERS = 40_000
"""An array of so many numbers takes 320 kB, which is large."""


def files_of(session: Session) -> list[str]:
    """The files of large results that exist."""
    folders = [folder for folder in session._intake.files.folders if os.path.isdir(folder)]
    return sorted(name for one in folders for name in os.listdir(one) if name != "lock")


def plus_one(array: Any) -> Any:
    """A call that gets and returns a large array."""
    return array + 1


def report(array: Any) -> tuple[float, bool, bool]:
    """The sum of an array, whether it can be written to, and whether it is part of a file."""
    return float(array.sum()), array.flags.writeable, not array.flags.owndata


def wait_for_file(path: str) -> None:
    """A call that lasts until a file exists."""
    while not os.path.exists(path):
        time.sleep(0.005)


def leave_and_die(session_folders: tuple[str, ...], mark: str) -> None:
    """The file of a result, whose worker is killed before it can report it; once."""
    if not os.path.exists(mark):
        open(mark, "w").close()
        with open(os.path.join(session_folders[0], "0-0-1"), "w") as file:
            file.write("half a result")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_large_array_passes_through_calls_to_the_caller() -> None:
    """Of 50 MB through three calls: equal, and no file is left."""
    count = 50_000_000 // 8
    with Session(2) as session:
        first = session.submit(np.arange, count)
        third = session.submit(plus_one, session.submit(plus_one, first))
        found = session.submit(report, third)
        assert found.result(PATIENCE) == (count * (count - 1) / 2 + 2 * count, True, True)
        array = third.result(PATIENCE)
        assert np.array_equal(array, np.arange(2, count + 2))
        folders = session._intake.files.folders
    assert not any(map(os.path.exists, folders))
    assert array[-1] == count + 1


@pytest.mark.local_only("results of agents travel in messages, not in files")
def test_a_file_lives_as_long_as_a_future_or_a_call_needs_it() -> None:
    """A call that waits keeps the file of its input, even if its future is forgotten."""
    with Session(1) as session:
        future = session.submit(np.zeros, NUMBERS)
        future.result(PATIENCE)
        assert len(files_of(session)) == 1
        total = session.submit(report, future)
        del future
        assert total.result(PATIENCE) == (0.0, True, True)
        session.submit(len, "").result(PATIENCE)  # The turn of `total` is over.
        gc.collect()
        assert files_of(session) == []


@pytest.mark.local_only("arguments of calls on agents travel in messages, not in files")
@pytest.mark.parametrize("kind", [bytes, bytearray, np.zeros])
def test_large_arguments_pass_in_files_that_end_with_their_calls(
    kind: Any, tmp_path: Path
) -> None:
    """`submit` allocates nothing of their size. They are as they were when it was called."""
    size = 8 << 20
    value = kind(size)
    with Session(1) as session:
        blocks = session.submit(wait_for_file, str(tmp_path / "go"))
        tracemalloc.start()
        try:
            length = session.submit(len, value)
            lengths = session.submit(sum, [session.submit(len, [value]), length])
            assert tracemalloc.get_traced_memory()[1] < size // 4
        finally:
            tracemalloc.stop()
        assert len(files_of(session)) == 2
        if kind is bytearray:
            value.clear()
        (tmp_path / "go").touch()
        assert blocks.result(PATIENCE) is None
        assert (length.result(PATIENCE), lengths.result(PATIENCE)) == (size, size + 1)
        session.submit(len, "").result(PATIENCE)  # The turns of the others are over.
        assert files_of(session) == []


def test_results_stay_after_the_end_of_the_session() -> None:
    """The file is removed; the future has its content."""
    with Session(1) as session:
        future = session.submit(np.arange, NUMBERS)
    assert not any(map(os.path.exists, session._intake.files.folders))
    assert np.array_equal(future.result(), np.arange(NUMBERS))


def test_small_arrays_can_be_written_to() -> None:
    """They are copies, and have no file."""
    with Session(1) as session:
        array = session.submit(np.zeros, 10).result(PATIENCE)
        array += 1
        assert array.sum() == 10
        assert files_of(session) == []


def test_without_room_results_travel_as_pickles() -> None:
    """There is no file, and the result is the same."""
    with Session(1) as session:
        for folder in session._intake.files.folders:
            os.rename(folder, f"{folder}-away")
        try:
            found = session.submit(np.arange, NUMBERS).result(PATIENCE)
            assert np.array_equal(found, np.arange(NUMBERS))
        finally:
            for folder in session._intake.files.folders:
                os.rename(f"{folder}-away", folder)


def test_a_killed_worker_leaves_no_file(tmp_path: Path) -> None:
    """The file of its attempt is removed when the call starts again."""
    with Session(1) as session:
        call = session.submit(
            leave_and_die, session._intake.files.folders, str(tmp_path / "mark")
        )
        assert call.result(PATIENCE) is None
        assert files_of(session) == []


OWNER = """
import os, signal
import numpy
from slotwise import Session
session = Session(1)
future = session.submit(numpy.zeros, 100_000)
future.result()
print(*session._intake.files.folders, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_session_removes_the_files_of_a_killed_process() -> None:
    """Nobody else can."""
    done = subprocess.run(
        [sys.executable, "-c", OWNER], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    folders = done.stdout.split()
    until = time.monotonic() + PATIENCE
    while any(map(os.path.exists, folders)):  # Its workers may hold the lock a moment longer.
        assert time.monotonic() < until
        Session(1).close()
