"""Programs with a session that end by Ctrl-C, pressed several times, or without `with`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

PROGRAM = """
import sys, threading, time
import slotwise

def report(future):
    print("cancelled", flush=True)
    threading.Event().wait()  # A callback that never ends.

def begin(session):
    calls = [session.submit(time.sleep, 1000) for _ in range(3)]
    calls[-1].add_done_callback(report)
    while not calls[0].running():
        time.sleep(0.001)
    return calls

kind = sys.argv[1]
if "with" in kind:
    with slotwise.Session(2) as session:
        calls = begin(session)
        print(*session._intake.files.folders, flush=True)
        if "result" in kind:
            calls[0].result()
else:
    session = slotwise.Session(2)
    calls = begin(session)
    print(*session._intake.files.folders, flush=True)
    if "result" in kind:
        calls[0].result()
"""

LAST_CALLS = """
import sys
import numpy as np
import slotwise

def save(array, path):
    with open(path, "w") as file:
        file.write(str(array.sum()))

session = slotwise.Session(1)
large = session.submit(np.ones, 10**6)
large.result()
session.submit(save, session.submit(np.negative, large), sys.argv[1])
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program, whose temporary files are in `tmp`."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "tmp").mkdir()
    environment = os.environ | dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), f"{tmp_path}/tmp")

    def run(program: str, *arguments: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                # A shell that starts tests in the background may have set it to be ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        )
        return started[-1]

    yield run
    for one in started:
        one.kill()
        one.communicate()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "kind",
    [
        "with",
        "result without block",
        pytest.param("with result", marks=pytest.mark.slow),
        pytest.param("without block", marks=pytest.mark.slow),
    ],
)
def test_further_interrupts_end_a_session(
    kind: str, start: Start, processes: SimpleNamespace, tmp_path: Path
) -> None:
    """The first one cancels its calls; the others end the wait for a callback that hangs."""
    program = start(PROGRAM, kind.replace("without block", ""))
    assert program.stdout is not None
    folders = program.stdout.readline().split()
    workers = processes.children(program.pid)
    assert len(workers) == 2
    assert all(map(os.path.exists, folders))
    program.send_signal(signal.SIGINT)
    assert program.stdout.readline() == "cancelled\n"
    for _ in range(3):
        program.send_signal(signal.SIGINT)
    _, messages = program.communicate(timeout=processes.TIMEOUT)
    assert "KeyboardInterrupt" in messages
    processes.wait_for(lambda: not any(map(processes.lives, workers)))
    assert not any(map(os.path.exists, folders))
    assert [path.name for path in (tmp_path / "tmp").rglob("*")] == ["slotwise-sessions"]


def test_calls_get_large_results_at_the_end_of_the_program(
    start: Start, processes: SimpleNamespace, tmp_path: Path
) -> None:
    """Their files are there until the session has ended, which nobody has closed."""
    program = start(LAST_CALLS, str(tmp_path / "sum"))
    assert program.wait(processes.TIMEOUT) == 0
    assert (tmp_path / "sum").read_text() == "-1000000.0"
    assert [path.name for path in (tmp_path / "tmp").rglob("*")] == ["slotwise-sessions"]
