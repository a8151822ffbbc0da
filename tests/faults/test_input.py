"""Input that is wrong or changes: the last line gives the file, the place and the error."""

from __future__ import annotations

from typing import Any

from slotwise.core.events import TaskFailed
from slotwise.core.log import read_log

PROGRAMS = """\
import os
from slotwise import MapReduce

class Ints(MapReduce):
    def map(self, offset, line):
        yield int(line), 1

class Appends(MapReduce):
    def map(self, offset, line):
        with open(self.path, "a") as file:
            file.write("more\\n")
        yield line, 1
"""

JOBS = """\
slotwise: 1
jobs: [{{id: bad, program: "programs.py:{name}", inputs: "in/*", output: out/bad}}]
"""


def run(command: Any, name: str, *options: str) -> str:
    """Run a program over three small files. The last line of stderr."""
    command.write(PROGRAMS, "programs.py")
    for file, text in {"a": "1\n", "b": "2\nthree\n", "c": "4\n"}.items():
        command.write(text, f"in/{file}")
    command.write(JOBS.format(name=name))
    assert command.run("run", "jobs.yaml", "--slots", "1", *options) == 1
    assert command.left() == []
    last: str = command.stderr.splitlines()[-1]
    return last.replace(str(command.folder), "")


def test_the_message_names_the_file_and_line_of_an_error(command: Any) -> None:
    """They stand between the task and the error."""
    assert run(command, "Ints") == (
        "slotwise: flex: job bad failed: map task 0 of job bad (3 inputs, /in/a to /in/c):"
        " /in/b, line 2 (byte 2): ValueError: invalid literal for int() with base 10: 'three'"
    )


def test_input_that_changes_while_it_is_read(command: Any) -> None:
    """The message needs no traceback, no output is left, and nothing is tried again."""
    last = run(command, "Appends", "--log", "log.jsonl")
    events = [
        event for turn in read_log(command.folder / "log.jsonl").turns for event in turn.events
    ]
    assert [event.final for event in events if isinstance(event, TaskFailed)] == [True]
    before, _, after = last.partition("modified")
    assert before == (
        "slotwise: flex: job bad failed: map task 0 of job bad (3 inputs, /in/a to /in/c):"
        " input '/in/a' has changed since its job was planned. Then: 2 bytes, "
    )
    assert after.endswith(
        "Run the job again when nothing writes to its input, or use a copy of the input"
    )
    assert "Traceback" not in command.stderr
