"""More slots than the system can start: a message says so, and no process is left."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from slotwise.model.errors import SlotwiseError
from slotwise.runtime.local.processes import Processes
from slotwise.runtime.local.workers import Workers


def test_the_message_gives_the_number_that_could_be_started(command: Any) -> None:
    """With a low limit on open files, the command ends with 2 and one line, before any task."""
    command.write("slotwise: 1\njobs: [{id: a, phases: [{name: m, work: 600}]}]\n")
    limits = {resource.RLIMIT_NOFILE: 64}
    assert command.run("run", "jobs.yaml", "--slots", "100", limits=limits) == 2
    (line,) = command.stderr.splitlines()
    assert line.startswith("slotwise: only ")
    assert line.endswith(
        " of 100 worker processes could be started: Too many open files; use fewer slots"
    )


def test_workers_that_had_started_are_ended(
    processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process and no open file is left in a program that continues."""
    before = set(processes.children(os.getpid())), len(list(Path("/proc/self/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] + 20, hard))
    try:
        with pytest.raises(SlotwiseError, match="of 100 worker processes could be started"):
            Workers(Processes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    after = set(processes.children(os.getpid())), len(list(Path("/proc/self/fd").iterdir()))
    assert after == before
