"""More slots than the system can start: a message says so, and no process is left."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import Any

import pytest

from slotwise import Session
from slotwise.backends.local.processes import Processes
from slotwise.core.errors import InputError, SlotwiseError


def test_what_limits_say_is_refused_before_any_process_starts(command: Any) -> None:
    """With a low limit on open files, the command ends with 2 and one line, before any task."""
    command.write("slotwise: 1\njobs: [{id: a, phases: [{name: m, work: 600}]}]\n")
    limits = {resource.RLIMIT_NOFILE: 64}
    assert command.run("run", "jobs.yaml", "--slots", "100", limits=limits) == 2
    (line,) = command.stderr.splitlines()
    assert re.fullmatch(
        r"slotwise: 100 worker processes cannot be started, one for each slot: this machine has"
        r" room for \d+, as a program may open 64 files [(]see ulimit -n[)]; use fewer slots",
        line,
    )


def test_a_session_of_a_million_slots_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with the processors of this machine."""
    monkeypatch.setattr("slotwise.backends.local.processes.WorkerProcess", None)
    with pytest.raises(InputError, match="slots is 1000000 for a run on this machine"):
        Session(10**6)


def test_workers_that_had_started_are_ended(
    processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process and no open file is left in a program that continues."""
    monkeypatch.setattr("slotwise.backends.local.processes.check_room", lambda workers: None)
    before = set(processes.children(os.getpid())), len(list(Path("/proc/self/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] + 20, hard))
    try:
        with pytest.raises(SlotwiseError, match="of 100 worker processes could be started"):
            Processes(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    after = set(processes.children(os.getpid())), len(list(Path("/proc/self/fd").iterdir()))
    assert after == before
