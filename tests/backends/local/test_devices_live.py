"""Tasks that get GPUs: their variables, and the processes in which they run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import slotwise
from backends.local.calling import TIMEOUT, call, one
from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Conditions
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.resources import UNIT
from slotwise.jobs.commands import plan_commands
from slotwise.jobs.memory import usable_memory


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
        workers.start(0, "seen", seen, (), Conditions(devices=(0, 2)))
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


def list_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for `nvidia-smi` on the PATH that lists two GPUs; the file of calls."""
    program, calls = folder / "nvidia-smi", folder / "calls"
    calls.touch()
    listed = r"printf '0, GPU-a, T4\n1, GPU-b, T4\n'"
    program.write_text(f"#!/bin/sh\necho asked >> {calls}\n{listed}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return calls


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has two GPUs."""
    list_gpus(tmp_path, monkeypatch)


def test_this_machine_has_its_memory_and_its_gpus(two_gpus: None) -> None:
    """What a user states replaces what was found."""
    (host,) = LocalBackend.cluster(2).hosts
    assert host.resources == {"memory": usable_memory(), "gpu": 2 * UNIT}
    (host,) = LocalBackend.cluster(2, {"memory": 5, "tape": 3}).hosts
    assert host.resources == {"memory": 5, "gpu": 2 * UNIT, "tape": 3 * UNIT}


@pytest.mark.parametrize(
    ("resources", "stated", "times"),
    [({}, {}, 0), ({"gpu": 0.5}, {}, 1), ({"gpu": 0.5}, {"gpu": 1}, 0)],
)
def test_gpus_are_looked_for_only_if_a_job_requests_some(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resources: dict[str, float],
    stated: dict[str, int],
    times: int,
) -> None:
    """And if the user has not stated them: `nvidia-smi` may take seconds."""
    calls = list_gpus(tmp_path, monkeypatch)
    job = slotwise.command("true", id="j", resources=resources)
    slotwise.run([job], "fair", slots=1, resources=stated)
    assert calls.read_text() == "asked\n" * times


def test_a_session_looks_for_gpus_unless_they_are_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its calls will request is not known when it begins."""
    calls = list_gpus(tmp_path, monkeypatch)
    for stated in ({}, {"gpu": 0}):
        with slotwise.Session(slots=1, resources=stated):
            pass
    assert calls.read_text() == "asked\n"


def test_tasks_that_run_together_have_different_gpus(two_gpus: None, tmp_path: Path) -> None:
    """Each of three tasks writes what it sees, and the first two wait for each other."""

    def write(task: int) -> None:
        (tmp_path / f"{task}").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
        while task < 2 and not (tmp_path / f"{1 - task}").exists():
            time.sleep(0.01)

    phase = Phase("p", Tasks(3), resources={"gpu": 1})
    slotwise.run([slotwise.Calls(Job("j", (phase,)), write)], "fair", slots=3)
    seen_by = [(tmp_path / f"{task}").read_text() for task in range(3)]
    assert sorted(seen_by[:2]) == ["0", "1"]
    assert seen_by[2] in ("0", "1")
