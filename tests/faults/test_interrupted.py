"""Runs that are stopped from outside: quickly, telling what was done, leaving nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.programs import STUCK

JOBS = """\
slotwise: 1
jobs:
  - {id: quick, program: wordcount, inputs: "in/book00.txt", output: done/quick, reducers: 1}
  - {id: stuck, program: "stuck.py:Stuck", parameters: {folder: pids}, inputs: "in/*.txt",
     split_bytes: 3000, output: out/a/b/stuck}
"""


@pytest.fixture
def stuck(command: Any, books: object, processes: Any) -> Callable[..., Any]:
    """Starts a run one job of which is done and one of which hangs with both slots."""

    def start(*more: str, as_json: bool = True) -> Any:
        command.write(STUCK, "stuck.py")
        command.write(JOBS)
        (command.folder / "pids").mkdir()
        how = ["--slots", "2", "--log", "log.jsonl", *more, *(["--json"] if as_json else [])]
        process = command.start("run", "jobs.yaml", *how)
        processes.wait_for(lambda: len(pids(command.folder)) == 2)
        return process

    return start


def pids(folder: Path) -> list[int]:
    """The processes that user code has started."""
    return [int(path.name.removeprefix("pid-")) for path in (folder / "pids").iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_leaves_nothing(
    number: signal.Signals, stuck: Callable[[], Any], command: Any, processes: Any
) -> None:
    """It ends long before its tasks would, with 130, no process, no file, and says what was
    done."""
    process = stuck()
    running = [*processes.children(process.pid), *pids(command.folder)]
    assert len(running) == 4
    os.killpg(process.pid, number)
    assert process.wait(processes.TIMEOUT) == 130
    processes.wait_for(lambda: not any(map(processes.lives, running)))
    assert command.left() == []
    assert not (command.folder / "out").exists()
    assert (command.folder / "done/quick/_SUCCESS").exists()
    assert "interrupted after 2 tasks; done: quick" in command.stderr
    assert "Traceback" not in command.stderr
    (line,) = command.stdout.splitlines()
    told = json.loads(line)
    assert told["interrupted"] is True
    completions = {job: times["completion"] for job, times in told["jobs"].items()}
    assert completions["stuck"] is None
    assert completions["quick"] == told["metrics"]["makespan"] > 0


def test_a_stopped_run_writes_its_report(
    stuck: Callable[..., Any], command: Any, processes: Any
) -> None:
    """The page and the table say that it was interrupted, as a page from its log does."""
    process = stuck("--report", "page.html", as_json=False)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(processes.TIMEOUT) == 130
    assert "flex (interrupted)" in command.stdout
    assert "report: page.html" in command.stderr
    assert command.run("report", "log.jsonl", "-o", "again.html") == 0
    for page in ("page.html", "again.html"):
        text = (command.folder / page).read_text()
        assert "flex was interrupted: its record ends at" in text
        assert "when 1 of 2 jobs had ended" in text


def test_impatience_does_not_hurt(
    stuck: Callable[[], Any], command: Any, processes: Any
) -> None:
    """More signals while it cleans up do not keep it from cleaning up."""
    process = stuck()
    until = time.monotonic() + processes.TIMEOUT
    while process.poll() is None:
        assert time.monotonic() < until
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.001)
    assert process.returncode == 130
    assert command.left() == []
    assert "Traceback" not in command.stderr


def test_the_log_of_a_stopped_run_can_be_read(
    stuck: Callable[[], Any], command: Any, processes: Any
) -> None:
    """What had happened until then is in the log, and is decided the same again."""
    process = stuck()
    os.kill(process.pid, signal.SIGINT)
    process.wait(processes.TIMEOUT)
    assert command.run("replay", "log.jsonl") == 0
    assert command.stdout.startswith("identical: ")


def test_workers_die_with_their_manager(
    stuck: Callable[[], Any], command: Any, processes: Any
) -> None:
    """After SIGKILL to the manager no worker and no process of user code goes on."""
    process = stuck()
    running = [*processes.children(process.pid), *pids(command.folder)]
    assert len(running) == 4
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    processes.wait_for(lambda: not any(map(processes.lives, running)))
    assert not (command.folder / "out/a/b/stuck/_SUCCESS").exists()
