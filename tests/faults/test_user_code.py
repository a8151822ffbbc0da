"""Errors in user code: its job ends with the reason, and all other jobs are done."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

PROGRAMS = '''\
import os, sys, threading, time
from pathlib import Path
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
    """Hangs in all splits but one, which fails while another one hangs."""
    def map(self, offset, line):
        if line != "poison":
            Path("hangs").touch()
            time.sleep(600)
        while not Path("hangs").exists():
            time.sleep(0.01)
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
        yield "out", open(__file__, "a")

class MixedKeys(MapReduce):
    def map(self, offset, line):
        yield 1, 1
        yield "one", 1

class Prints(MapReduce):
    def map(self, offset, line):
        print("noise " * 20_000)
        yield line, 1
'''

GOOD = """\
  - {id: good, program: wordcount, inputs: "in/*.txt", output: done/good, split_bytes: 5}"""

BAD = """\
  - {{id: {name}, program: "programs.py:{name}", inputs: "in/*.txt", output: out/{name},
     split_bytes: 10}}"""

SPLIT = "map task 1 of job {name} ({folder}/in/b.txt, 0-7)"

FAILURES = [
    ("Raises", "map task", "ValueError: cannot read "),
    ("OneSplit", SPLIT, "ValueError: poison found"),
    ("Rubbish", "map task", "map of Rubbish must yield pairs (key, value)"),
    ("RubbishPairs", "map task", "must yield pairs (key, value); it yielded 'alone'"),
    ("ReduceRaises", "reduce task", "KeyError: 1"),
    ("Interrupts", "map task", "KeyboardInterrupt"),
    ("RaisesNameless", "map task", "Nameless: <exception str() failed>"),
    ("Locked", "map task", "cannot pickle '_thread.lock' object"),
    ("YieldsFiles", "map task", "Cannot pickle files that are not opened for reading"),
    ("MixedKeys", "reduce task", "its keys cannot be sorted"),
]
"""Programs, the kind of task that fails, and the error that its job ends with."""

EXITS = ("Exits", "map task", "exited with code 3")
"""Slow, because each of its many attempts needs a new worker."""


def run(command: Any, *names: str, slots: int = 2, attempts: int = 2) -> int:
    """Run programs together with a word count. The exit code."""
    command.write(PROGRAMS, "programs.py")
    for book, text in {"a": "fine line\n", "b": "poison\n", "c": "another\n"}.items():
        command.write(text, f"in/{book}.txt")
    jobs = [GOOD, *(BAD.format(name=name) for name in names)]
    command.write("\n".join(["slotwise: 1", "jobs:", *jobs, ""]))
    options = ("--slots", str(slots), "--attempts", str(attempts), "--json")
    code: int = command.run("run", "jobs.yaml", *options)
    return code


@pytest.fixture(scope="module")
def all_failures(make_command: Callable[[], Any], request: pytest.FixtureRequest) -> Any:
    """One run of all programs that fail."""
    command = make_command()
    failures = [*FAILURES, EXITS] if request.config.getoption("--slow") else FAILURES
    assert run(command, *(name for name, _, _ in failures), slots=1, attempts=1) == 1
    return command


def assert_reported(command: Any, name: str, task: str, reason: str) -> None:
    """One line names the job, the task with its split, and the error; the good job is done."""
    start = f"slotwise: flex: job {name} failed: "
    (line,) = (line for line in command.stderr.splitlines() if line.startswith(start))
    assert task.format(name=name, folder=command.folder) in line
    assert reason in line
    assert (command.folder / "done/good/_SUCCESS").exists()
    assert command.left() == []


@pytest.mark.parametrize(
    ("name", "task", "reason"), [*FAILURES, pytest.param(*EXITS, marks=pytest.mark.slow)]
)
def test_each_program_that_fails_is_reported(
    name: str, task: str, reason: str, all_failures: Any
) -> None:
    """All in one run, which exits with code 1; the good job is done."""
    assert_reported(all_failures, name, task, reason)


@pytest.fixture(scope="module")
def run_of(make_command: Callable[[], Any]) -> Callable[[str], Any]:
    """Runs a program that fails, once."""

    @cache
    def run_once(name: str) -> Any:
        command = make_command()
        assert run(command, name) == 1
        return command

    return run_once


HANGS = ("Hangs", SPLIT, "ValueError: poison found")
SLOW = [pytest.param(*failure, marks=pytest.mark.slow) for failure in [*FAILURES, EXITS]]


@pytest.mark.parametrize(("name", "task", "reason"), [HANGS, *SLOW])
def test_a_program_that_fails_alone(
    name: str, task: str, reason: str, run_of: Callable[[str], Any]
) -> None:
    """Exit code 1; the report is the last line; tasks that hang are ended with their job."""
    command = run_of(name)
    assert_reported(command, name, task, reason)
    assert command.stderr.splitlines()[-1].startswith(f"slotwise: flex: job {name} failed: ")


@pytest.mark.parametrize("name", ["Hangs", pytest.param("OneSplit", marks=pytest.mark.slow)])
def test_the_traceback_begins_in_user_code(name: str, run_of: Callable[[str], Any]) -> None:
    """The traceback is shown once, from the user's line on, without frames of slotwise."""
    command = run_of(name)
    assert command.stderr.count("Traceback (most recent call last):") == 1
    frames = [line for line in command.stderr.splitlines() if line.startswith("  File ")]
    assert len(frames) == 1
    assert f'"{command.folder}/programs.py", line ' in frames[0]


def test_output_of_user_code_goes_to_stderr(command: Any) -> None:
    """Whatever a program prints, stdout is still one object of JSON."""
    assert run(command, "Prints") == 0
    assert command.stdout.count("\n") == 1
    assert command.stdout.startswith('{"scheduler": "flex", "world": "live"')
    # A line of progress, which begins with spaces, may come between two parts of the output.
    printed = re.sub(r" +\d+\.\d s  \w+: .*\n", "", command.stderr)
    assert printed.count("noise") == 60_000
