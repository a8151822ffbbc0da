"""Paths that lead nowhere, in a circle, or to what is no file: a message at once, wherever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slotwise.core.log import read_log

ODD = {
    "a link to itself": "loop",
    "a link to itself in the middle": "loop/file",
    "a link to nothing": "dangling",
    "a pipe": "pipe",
    "a device without an end": "/dev/zero",
    "a terminal or nothing": "/dev/tty",
    "a file as a folder": "jobs.yaml/file",
    "a name that is too long": 300 * "x",
    "a folder": "folder",
}

READING = {
    "plan": ["plan", "ODD"],
    "run": ["run", "ODD"],
    "explain": ["explain", "ODD", "--at", "0", "--job", "small"],
    "replay": ["replay", "ODD"],
    "report": ["report", "ODD", "-o", "page.html"],
    "history": ["history", "ODD"],
    "known": ["plan", "jobs.yaml", "--history", "ODD"],
    "import": ["trace", "import", "swim", "ODD", "-o", "out.yaml"],
    "import of a log": ["trace", "import", "swf", "ODD", "-o", "out.yaml"],
}

WRITING = {
    "log": ["simulate", "jobs.yaml", "--log", "ODD"],
    "log and history": ["run", "jobs.yaml", "--log", "ODD", "--history", "ODD"],
    "report": ["simulate", "jobs.yaml", "--report", "ODD"],
    "history": ["run", "jobs.yaml", "--history", "ODD"],
    "import": ["trace", "import", "swim", "trace.tsv", "-o", "ODD"],
}


@pytest.fixture(autouse=True)
def odd(folder: Path) -> Iterator[None]:
    """The files; a command that waits for ever is interrupted."""
    (folder / "jobs.yaml").write_text(
        "slotwise: 1\njobs: [{id: small, phases: [{name: map, work: 0.01}]}]\n"
    )
    (folder / "trace.tsv").write_text("a 0 0 1 1 1\n")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("gone/far")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")

    def cut_off(number: int, frame: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, cut_off)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", ODD.values(), ids=ODD)
@pytest.mark.parametrize("command", [*READING.values(), *WRITING.values()])
def test_a_path_that_is_not_a_file(path: str, command: list[str], slotwise: Any) -> None:
    """Exit code 2 and one line that names the path; nothing on stdout."""
    done = slotwise(*(path if word == "ODD" else word for word in command))
    writes_nowhere = command in WRITING.values() and path == "/dev/zero"
    if writes_nowhere and done.exit_code == 0:
        return  # Devices can be written to.
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("slotwise: ")
    assert done.stderr.count("\n") == 1
    assert path in done.stderr


@pytest.mark.parametrize(
    ("path", "reason"),
    {
        "loop": "Too many levels of symbolic links; it is a symbolic link to 'loop'",
        "loop/*": "Too many levels of symbolic links",
        "loop/file": "Too many levels of symbolic links",
        "dangling": "No such file or directory; it is a symbolic link to 'gone/far'",
        "in": "No such file or directory; it is a symbolic link to 'gone'",
        "in/*.txt": "No such file or directory; it is a symbolic link to 'gone'",
        "pipe": "is a pipe, a socket or a device",
        "/dev/zero": "is a pipe, a socket or a device",
        "jobs.yaml/file": "Not a directory",
        300 * "x": "File name too long",
        '"a\\0b"': "remove the control characters",
    }.items(),
)
def test_input_of_a_program(path: str, reason: str, slotwise: Any, folder: Path) -> None:
    """Input is checked before the program runs; the message has place, value and remedy."""
    (folder / "in").mkdir()
    (folder / "in" / "good.txt").write_text("x")
    (folder / "in" / "link.txt").symlink_to("gone")
    (folder / "jobs.yaml").write_text(
        f"slotwise: 1\njobs: [{{id: a, program: wordcount, inputs: {path}, output: out}}]\n"
    )
    done = slotwise("run", "jobs.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr
    assert done.stderr.startswith("slotwise: ")
    assert done.stderr.count("\n") == 1
    assert not (folder / "out").exists()


def test_a_program_in_a_path_that_is_not_a_file(slotwise: Any, folder: Path) -> None:
    """The same for the file of a program."""
    os.mkfifo(folder / "pipe.py")
    (folder / "loop.py").symlink_to("loop.py")
    for name in ("pipe", "loop", 300 * "x"):
        (folder / "jobs.yaml").write_text(
            f'slotwise: 1\njobs: [{{id: a, program: "{name}.py:A", inputs: ".", output: o}}]\n'
        )
        done = slotwise("run", "jobs.yaml")
        assert done.exit_code == 2
        assert " not found; check the path" in done.stderr


@pytest.mark.parametrize("output", ["loop", "loop/out", "dangling", "dangling/out", "pipe"])
def test_output_of_a_program(output: str, slotwise: Any, folder: Path) -> None:
    """An output that cannot be created gives a message, and files there are unchanged."""
    before = sorted(folder.iterdir())
    (folder / "jobs.yaml").write_text(
        "slotwise: 1\n"
        f"jobs: [{{id: a, program: wordcount, inputs: trace.tsv, output: {output}}}]\n"
    )
    done = slotwise("run", "jobs.yaml", "--slots", "1")
    assert done.exit_code in (1, 2)
    assert "Traceback" not in done.stderr
    assert sorted(folder.iterdir()) == before


def test_pipes_with_another_end(slotwise: Any, folder: Path) -> None:
    """A workload can be read from a pipe and a log written to one, as with <(...)."""
    jobs, feed = os.pipe()
    drain, log = os.pipe()
    os.write(feed, (folder / "jobs.yaml").read_bytes())
    os.close(feed)
    done = slotwise("simulate", f"/dev/fd/{jobs}", "--log", f"/dev/fd/{log}")
    written = os.read(drain, 1 << 16)
    for end in (jobs, drain, log):
        os.close(end)
    assert done.exit_code == 0, done.stderr
    (folder / "log.jsonl").write_bytes(written)
    assert len(read_log(folder / "log.jsonl").turns) > 1
