"""A session to which the program refers no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
