"""Calls run by slotwise show what the same calls show in a ProcessPoolExecutor."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("script_of_values.py")

PATHS = ("executor", "chunks", "map", "stored", "chained", "joblib", "dask", "calls")


@cache
def shown(path: str) -> list[str]:
    """What the script shows when its calls are made in this way."""
    command = [sys.executable, "-W", "ignore", SCRIPT, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.slow
def test_a_script_shows_what_it_shows_with_a_process_pool(path: str) -> None:
    """Classes, functions and exceptions are its own, unchanged; a job fails as a whole."""
    expected = shown("pool")
    if path == "calls":
        expected = [line for line in expected if not line.startswith(("failed", "group"))]
    assert shown(path) == expected


SESSIONS = """
import types
import slotwise

class Model:
    rate = 1
    def price(self):
        return helper.double(self.rate)

helper = types.ModuleType("helper")
exec("factor = 2\\ndef double(x): return factor * x", vars(helper))

def new():
    return Model()

def module():
    return helper

with slotwise.Session(1) as one, slotwise.Session(1) as other:
    before = one.submit(new)
    before.result()
    First = Model
    class Model:  # As in a cell of a notebook that is changed and run again.
        rate = 10
    after = other.submit(new)
    print(type(before.result()) is First, type(after.result()) is Model)
    found = other.submit(lambda x: x, before.result()).result()
    print(type(found) is First, found.price(), one.submit(module).result() is helper)
    First.rate = 5
    print(one.submit(First.price, found).result(), other.submit(found.price).result())
    made = one.submit(lambda: type("Made", (), {"x": 1})).result()
    print(other.submit(lambda: made().x).result(), one.submit(lambda: made).result() is made)
"""


def test_sessions_and_classes_that_are_defined_again_are_kept_apart(tmp_path: Path) -> None:
    """Two sessions know the same classes; what is sent is as it is then."""
    script = tmp_path / "script.py"
    script.write_text(SESSIONS)
    command = [sys.executable, "-W", "ignore", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = "True True\nTrue 2 True\n10 10\n1 True\n"
    assert (done.stdout, done.stderr) == (expected, "")
