"""Tasks that get GPUs: their variables, and the processes in which they run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backends.local.calling import TIMEOUT, call, one
from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.backends.local.processes import Processes
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import TaskFinished
from slotwise.core.job import PhaseId
from slotwise.jobs.commands import plan_commands


def seen() -> tuple[int, str | None, str | None]:
    """The process of a task, and what it sees of its GPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return os.getpid(), visible, os.environ.get("SLOTWISE_DEVICES")


def test_a_call_gets_its_gpus_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA reads the variables once in a process, and keeps memory until its end."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    with Processes(1) as workers:
        before, *without = call(workers, seen).value
        workers.start(0, "seen", seen, (), devices=(0, 2))
        during, *given = one(workers).value
        after, *again = call(workers, seen).value
    assert given == ["4,6", "0,2"]
    assert without == again == ["4,5,6", None]
    assert len({before, during, after}) == 3


def test_a_command_gets_its_gpus(tmp_path: Path) -> None:
    """By variables of its environment, for the agent of its host as for this process."""
    told = tmp_path / "told"
    command = f"echo $CUDA_VISIBLE_DEVICES $SLOTWISE_DEVICES > {told}"
    with LocalBackend([plan_commands("j", command, env={"A": "b"})], 1) as backend:
        backend.wait(0.0)
        phase = PhaseId("j", "command")
        backend.perform(Launch(phase, 0, 1, HOST, Locality.ANY, devices=(1, 3)))
        (end,) = backend.wait(TIMEOUT)
    assert isinstance(end, TaskFinished)
    assert told.read_text() == "1,3 1,3\n"
