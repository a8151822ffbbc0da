"""A session to which the program refers no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, pathlib, time
from slotwise import Session

def begin():
    session = Session(1)
    first = session.submit(time.sleep, 0.1)
    session.submit(lambda text, first: pathlib.Path(FILE).write_text(text), "done", first)

begin()
gc.collect()
"""


def test_the_end_of_the_program_waits_for_a_dropped_session(tmp_path: Path) -> None:
    """Also for a call that waits for the result of another."""
    program = PROGRAM.replace("FILE", repr(str(tmp_path / "file")))
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (tmp_path / "file").read_text() == "done"


REBINDS = """
import gc, os, time
from slotwise import Session

def workers():
    found = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            found += file.read().split()
    return len(found)

def wait_for(count):
    until = time.monotonic() + 100
    while workers() != count:
        assert time.monotonic() < until, workers()
        time.sleep(0.01)

gc.disable()  # Nothing may depend on it.
for number in range(6):
    session = Session(2)
    assert session.submit(pow, 2, number).result(100) == 2**number
wait_for(2)

executor = Session(1).executor()  # It keeps its session, and so does a map.
values = Session(1).map(abs, range(-9, 0))
assert executor.submit(abs, -1).result(100) == 1
assert list(values) == list(range(9, 0, -1))
del executor, values
wait_for(2)

first = Session(1)
last = first.submit(str, first.submit(time.sleep, 0.1))  # One runs, the other waits for it.
del first
assert last.result(100) == "None"
wait_for(2)
assert session.submit(abs, -1).result(100) == 1
"""


@pytest.mark.slow
def test_a_session_that_nothing_refers_to_ends_when_its_jobs_are_over() -> None:
    """As when a cell of a notebook is run again. Without a collection of garbage."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", REBINDS], check=True)
