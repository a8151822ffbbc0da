"""What user code can do wrong: its job ends with the reason, all others are done."""

from __future__ import annotations

from typing import Any

import pytest

PROGRAMS = '''\
import os, sys, threading, time
from slotwise import MapReduce

class Nameless(Exception):
    def __repr__(self):
        raise RuntimeError("no name")
    __str__ = __repr__

class Raises(MapReduce):
    def map(self, offset, line):
        raise ValueError(f"cannot read {line!r}")

class OneSplit(MapReduce):
    def map(self, offset, line):
        if line == "poison":
            raise ValueError("poison found")
        yield line, 1

class Hangs(OneSplit):
    """Hangs in all splits but one, which fails after a while."""
    def map(self, offset, line):
        if line != "poison":
            time.sleep(600)
        time.sleep(0.3)
        raise ValueError("poison found")

class Rubbish(MapReduce):
    def map(self, offset, line):
        return 7

class RubbishPairs(MapReduce):
    def map(self, offset, line):
        yield "alone"

class ReduceRaises(MapReduce):
    def map(self, offset, line):
        yield 1, 1
    def reduce(self, key, values):
        raise KeyError(key)

class Exits(MapReduce):
    def map(self, offset, line):
        sys.exit(3)

class Interrupts(MapReduce):
    def map(self, offset, line):
        raise KeyboardInterrupt

class RaisesNameless(MapReduce):
    def map(self, offset, line):
        raise Nameless

class Locked(MapReduce):
    def __init__(self):
        self.lock = threading.Lock()
    def map(self, offset, line):
        yield line, 1

class YieldsFiles(MapReduce):
    def map(self, offset, line):
        yield "out", sys.stdout

class MixedKeys(MapReduce):
    def map(self, offset, line):
        yield 1, 1
        yield "one", 1

class Prints(MapReduce):
    def map(self, offset, line):
        print("noise " * 20_000)
        yield line, 1
'''

JOBS = """\
slotwise: 1
jobs:
  - {{id: good, program: wordcount, inputs: "in/*.txt", output: done/good, split_bytes: 5}}
  - {{id: bad, program: "programs.py:{name}", inputs: "in/*.txt", output: out/bad,
     split_bytes: 10}}
"""


SPLIT = "map task 1 of job bad ({folder}/in/b.txt, 0-7)"


@pytest.fixture
def run(command: Any) -> Any:
    """Runs a program beside a word count; the exit code."""

    def run(name: str) -> int:
        command.write(PROGRAMS, "programs.py")
        for book, text in {"a": "fine line\n", "b": "poison\n", "c": "another\n"}.items():
            command.write(text, f"in/{book}.txt")
        command.write(JOBS.format(name=name))
        code: int = command.run("run", "jobs.yaml", "--slots", "2", "--attempts", "2", "--json")
        return code

    return run


@pytest.mark.parametrize(
    ("name", "task", "reason"),
    [
        ("Raises", "map task", "ValueError: cannot read "),
        ("OneSplit", SPLIT, "ValueError: poison found"),
        ("Hangs", SPLIT, "ValueError: poison found"),
        ("Rubbish", "map task", "map of Rubbish must yield pairs (key, value)"),
        ("RubbishPairs", "map task", "must yield pairs (key, value); it yielded 'alone'"),
        ("ReduceRaises", "reduce task", "KeyError: 1"),
        ("Exits", "map task", "exited with code 3"),
        ("Interrupts", "map task", "KeyboardInterrupt"),
        ("RaisesNameless", "map task", "Nameless: <exception str() failed>"),
        ("Locked", "map task", "cannot pickle '_thread.lock' object"),
        ("YieldsFiles", "map task", "cannot pickle"),
        ("MixedKeys", "reduce task", "its keys cannot be sorted"),
    ],
)
def test_a_program_that_fails(
    name: str, task: str, reason: str, run: Any, command: Any
) -> None:
    """Exit code 1; the task with its split and the error on a line; the other job is done."""
    assert run(name) == 1
    last = command.stderr.splitlines()[-1]
    assert last.startswith("slotwise: flex: job bad failed: ")
    assert task.format(folder=command.folder) in last
    assert reason in last
    assert (command.folder / "done/good/_SUCCESS").exists()
    assert command.left() == []


def test_the_traceback_begins_in_user_code(run: Any, command: Any) -> None:
    """The traceback is shown once, from the user's line on, without frames of ours."""
    assert run("OneSplit") == 1
    assert command.stderr.count("Traceback (most recent call last):") == 1
    frames = [line for line in command.stderr.splitlines() if line.startswith("  File ")]
    assert len(frames) == 1
    assert f'"{command.folder}/programs.py", line ' in frames[0]


def test_what_user_code_prints_goes_to_stderr(run: Any, command: Any) -> None:
    """A program may print as much as it likes; stdout is still one object of JSON."""
    assert run("Prints") == 0
    assert command.stdout.count("\n") == 1
    assert command.stdout.startswith('{"scheduler": "flex", "world": "live"')
    assert command.stderr.count("noise ") == 60_000
