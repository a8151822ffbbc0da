"""Writers of a history that are killed, or write at once: every batch is complete."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slotwise.cli.main import app
from slotwise.core.history import LATEST, read_history
from tiers import examples

BATCH = 5

WRITER = """\
import sys
from slotwise.core.job import Observation
from slotwise.core import history
from slotwise.core.history import append_history

history.BUSY_SECONDS = 120.0  # A busy disk is no failure.
path, host, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for batch in range(batches):
    append_history(path, [Observation("p", "map", 1, host, 1.0, float(batch))] * 5)
    print(batch, flush=True)
"""

Writer = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Starts a process that waits for a line, then writes batches and prints their numbers."""
    begun: list[subprocess.Popen[str]] = []

    def start(host: str, batches: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "h.db"), host, str(batches)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    """Let a writer begin."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def batches_of(path: Path, host: str) -> list[int]:
    """The batches of a writer in the file, each of them complete."""
    seen = Counter(int(o.seconds) for o in read_history(path) if o.host == host)
    newest = sorted(seen)[-(LATEST // BATCH) :]  # The one before is only read in part.
    assert all(seen[batch] == BATCH for batch in newest), "a batch is incomplete"
    return newest


@pytest.mark.parametrize("number", range(examples(4, slow=8)))
def test_a_killed_writer_leaves_whole_batches(
    number: int, writer: Writer, tmp_path: Path
) -> None:
    """Killed while it makes the file or after some batches: what it printed is in the file."""
    path = tmp_path / "h.db"
    process = writer("killed", 1_000_000)
    assert process.stdout is not None
    go(process)
    printed: list[str] = []
    if number % 2:
        # Either the file itself, or the one that becomes it when it is complete.
        awaited = "h.db" if number % 4 == 3 else "*h.db*"
        while not any(tmp_path.glob(awaited)):
            assert process.poll() is None
    else:
        count = random.Random(number).randint(1, 60)
        printed = [process.stdout.readline() for _ in range(count)]
    process.send_signal(signal.SIGKILL)
    printed += process.stdout.readlines()
    if not path.exists():
        assert printed == []
    else:
        found = batches_of(path, "killed")
        last_printed, last_found = len(printed) - 1, max(found, default=-1)
        assert found == list(range(last_found + 1))[-(LATEST // BATCH) :], "one is missing"
        assert last_printed <= last_found <= last_printed + 1
    other = writer("next", 3)
    go(other)
    assert other.communicate(timeout=120)[0].split() == ["0", "1", "2"]
    assert batches_of(path, "next") == [0, 1, 2]


def test_several_write_at_once(writer: Writer, tmp_path: Path) -> None:
    """Three begin together without a file: no batch is lost; readers see complete ones only."""
    path, batches_each = tmp_path / "h.db", examples(8, slow=20)
    processes = {host: writer(host, batches_each) for host in ("a", "b", "c")}
    for process in processes.values():
        go(process)
    while any(process.poll() is None for process in processes.values()):
        if path.exists():
            for host in processes:
                batches = batches_of(path, host)
                assert batches == list(range(len(batches)))
    for host, process in processes.items():
        assert process.wait() == 0
        assert batches_of(path, host) == list(range(batches_each))
    assert [p.name for p in tmp_path.iterdir()] == ["h.db"]


STUCK = """\
import time
from slotwise import MapReduce

class Stuck(MapReduce):
    def map(self, offset, line):
        time.sleep(600)
"""

JOBS = """\
slotwise: 1
jobs:
  - {id: quick, program: wordcount, inputs: "in/book00.txt", output: done/quick, reducers: 1}
  - {id: next, phases: [{name: p, work: 0.01}]}
  - {id: stuck, program: "stuck.py:Stuck", inputs: "in/*.txt", output: out/stuck}
"""


WRITE_OFTEN = """\
from slotwise.core import history
history.WRITE_SECONDS = 0.1
"""
"""Lets the command write its history sooner."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_ended_before_a_run_was_stopped_is_known(
    number: signal.Signals, command: Any, few_books: object, processes: Any
) -> None:
    """After an interrupt, all of it; after a kill, what ended some seconds before."""
    command.write(STUCK, "stuck.py")
    command.write(JOBS)
    how = ["--slots", "1", "--scheduler", "fifo", "--history", "h.db"]
    process = command.start("run", "jobs.yaml", *how, before=WRITE_OFTEN)
    path = command.folder / "h.db"
    if number == signal.SIGKILL:
        processes.wait_for(lambda: path.exists() and len(read_history(path)) == 2)
    else:
        # The job after it runs in the same slot, so the end of the first one is recorded.
        processes.wait_for(lambda: "next: done" in command.stderr)
    process.send_signal(number)
    process.wait(processes.TIMEOUT)
    assert {(o.program, o.phase) for o in read_history(path)} == {
        ("wordcount", "map"),
        ("wordcount", "reduce"),
    }
    listed = CliRunner().invoke(app, ["history", str(path)])
    assert listed.exit_code == 0
    assert "wordcount  map" in listed.stdout
