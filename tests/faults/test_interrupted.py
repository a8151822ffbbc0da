"""Runs that a signal stops: they end at once, report what was done, and leave nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slotwise
from faults.programs import STUCK
from slotwise.core.log import following
from slotwise.insight.report.page import page
from slotwise.insight.report.reported import scene_of
from slotwise.results import Result

JOBS = """\
slotwise: 1
jobs:
  - {id: quick, program: wordcount, inputs: "in/book00.txt", output: done/quick, reducers: 1}
  - {id: stuck, program: "stuck.py:Stuck", parameters: {folder: pids}, inputs: "in/*.txt",
     split_bytes: 3000, output: out/a/b/stuck}
"""


@pytest.fixture
def stuck(command: Any, few_books: object, processes: Any) -> Callable[..., Any]:
    """Starts a run in which one job is done and another one hangs in both slots."""

    def start(*more: str, as_json: bool = True, **options: object) -> Any:
        command.write(STUCK, "stuck.py")
        command.write(JOBS)
        (command.folder / "pids").mkdir()
        how = ["--slots", "2", "--log", "log.jsonl", *more, *(["--json"] if as_json else [])]
        process = command.start("run", "jobs.yaml", *how, **options)
        processes.wait_for(lambda: len(pids(command.folder)) == 2)
        # A task may begin before the run has recorded the turn that launched it.
        processes.wait_for(lambda: "quick: done" in command.stderr)
        return process

    return start


def pids(folder: Path) -> list[int]:
    """The processes that user code has started."""
    return [int(path.name.removeprefix("pid-")) for path in (folder / "pids").iterdir()]


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGHUP, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)],
)
def test_a_stopped_run_leaves_nothing(
    number: signal.Signals, stuck: Callable[..., Any], command: Any, processes: Any
) -> None:
    """The exit code is 130; processes and files are gone; the log can be replayed."""
    process = stuck(interpreter=number == signal.SIGINT)
    running = [*processes.children(process.pid), *pids(command.folder)]
    assert len(running) == 4
    os.killpg(process.pid, number)
    assert process.wait(processes.TIMEOUT) == 130
    processes.wait_for(lambda: not any(map(processes.lives, running)))
    assert command.left() == []
    assert not (command.folder / "out").exists()
    assert (command.folder / "done/quick/_SUCCESS").exists()
    assert "interrupted after 2 tasks; done: quick" in command.stderr
    assert command.stderr.endswith("; to continue: slotwise run jobs.yaml --resume\n")
    assert "Traceback" not in command.stderr
    (line,) = command.stdout.splitlines()
    shown = json.loads(line)
    assert shown["interrupted"] is True
    completions = {job: times["completion"] for job, times in shown["jobs"].items()}
    assert completions["stuck"] is None
    assert completions["quick"] == shown["metrics"]["makespan"] > 0
    assert slotwise.replay(command.folder / "log.jsonl").is_identical


def test_a_stopped_run_writes_its_report(
    stuck: Callable[..., Any], command: Any, processes: Any
) -> None:
    """The page and the table say that it was interrupted, and so does a page from its log."""
    process = stuck("--report", "page.html", as_json=False)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(processes.TIMEOUT) == 130
    assert "(interrupted)" in command.stdout
    assert "report: page.html" in command.stderr
    with following(command.folder / "log.jsonl") as log:
        again = page(scene_of([Result.of_log(log).reported]), [], [], "")  # Without pictures.
    for text in ((command.folder / "page.html").read_text(), again):
        assert "flex was interrupted: its record ends at" in text
        assert "when 1 of 2 jobs had ended" in text


def test_further_signals_do_not_stop_the_cleanup(
    stuck: Callable[[], Any], command: Any, processes: Any
) -> None:
    """A signal every millisecond until the process has ended."""
    process = stuck()
    until = time.monotonic() + processes.TIMEOUT
    while process.poll() is None:
        assert time.monotonic() < until
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.001)
    assert process.returncode == 130
    assert command.left() == []
    assert "Traceback" not in command.stderr


def test_workers_die_with_their_manager(
    stuck: Callable[[], Any], command: Any, processes: Any
) -> None:
    """After SIGKILL to the manager no worker and no process of user code is left."""
    process = stuck()
    running = [*processes.children(process.pid), *pids(command.folder)]
    assert len(running) == 4
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    processes.wait_for(lambda: not any(map(processes.lives, running)))
    assert not (command.folder / "out/a/b/stuck/_SUCCESS").exists()
