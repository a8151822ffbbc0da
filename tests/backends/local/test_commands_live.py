"""Commands in worker processes: stopped, killed, and ended with the manager."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.local.calling import TIMEOUT
from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.core.decisions import GiveUp, Launch, Locality, Preempt
from slotwise.core.events import Event, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import PhaseId
from slotwise.jobs.commands import plan_commands

PHASE = PhaseId("j", "command")

Start = Callable[[str], LocalBackend]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a shell command in a slot, and waits until it has made the file `ready`."""
    backends: list[LocalBackend] = []

    def begin(command: str) -> LocalBackend:
        execution = plan_commands("j", command, "out", base_dir=tmp_path)
        backend = LocalBackend([execution], 1)
        backends.append(backend)
        backend.wait(0.0)
        backend.perform(Launch(PHASE, 0, 1, HOST, Locality.ANY))
        wait_for((tmp_path / "ready").exists, backend)
        return backend

    yield begin
    for backend in backends:
        backend.close()


def wait_for(condition: Callable[[], object], backend: LocalBackend | None = None) -> None:
    """Block until a condition holds."""
    until = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        if backend is not None:
            assert not [e for e in backend.wait(0.0) if isinstance(e, TaskFailed)]
        time.sleep(0.01)


def next_end(backend: LocalBackend) -> Event:
    """The next event of a task."""
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        for event in backend.wait(backend.now + 1.0):
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                return event
    raise AssertionError("the task did not end in time")


def ends(pid_file: Path) -> Callable[[], bool]:
    """Whether the process whose id is in a file has ended."""
    pid = int(pid_file.read_text())

    def has_ended() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"

    return has_ended


def stop(backend: LocalBackend, grace: float | None) -> None:
    """Ask the task to stop, or kill it."""
    until = None if grace is None else backend.now + grace
    backend.perform(Preempt(PHASE, 0, 1, HOST, until))


def test_a_stop_request_ends_the_whole_command(start: Start, tmp_path: Path) -> None:
    """All of its processes get SIGTERM, and an end by it is no failure."""
    loop = "while :; do sleep 0.05; done"
    inner = f"trap 'touch told; exit 1' TERM; sleep 1000 & echo $! > pid; touch ready; {loop}"
    backend = start(f"cd {tmp_path}; ({inner}) & wait")
    stop(backend, TIMEOUT)
    assert isinstance(next_end(backend), TaskKilled)
    wait_for((tmp_path / "told").exists)
    wait_for(ends(tmp_path / "pid"))


def test_a_command_that_exits_with_0_after_a_stop_request_is_done(
    start: Start, tmp_path: Path
) -> None:
    """It used its grace period to complete."""
    # A loop, as a shell can miss a signal that comes between its check for one and `wait`.
    loop = "while :; do sleep 0.05; done"
    backend = start(f"cd {tmp_path}; trap 'echo done; exit 0' TERM; touch ready; {loop}")
    stop(backend, TIMEOUT)
    assert isinstance(next_end(backend), TaskFinished)
    assert (tmp_path / "out" / "task-00000.out").read_text() == "done\n"


@pytest.mark.parametrize("grace", [None, 0.05])
def test_a_kill_ends_a_command_in_a_session_of_its_own(
    start: Start, tmp_path: Path, grace: float | None
) -> None:
    """At once, or when the grace is over: it ignores the request."""
    inner = "trap '' TERM; echo $$ > pid; touch ready; while :; do sleep 0.05; done"
    backend = start(f'cd {tmp_path}; setsid sh -c "{inner.replace("$", chr(92) + "$")}"')
    stop(backend, grace)
    assert isinstance(next_end(backend), TaskKilled)
    wait_for(ends(tmp_path / "pid"))


def test_a_given_up_job_leaves_no_process_and_no_file(start: Start, tmp_path: Path) -> None:
    """The command of a cancelled job is killed, and its output goes."""
    backend = start(f"cd {tmp_path}; echo $$ > pid; touch ready; sleep 1000")
    stop(backend, None)
    backend.perform(GiveUp("j", "cancelled"))
    assert isinstance(next_end(backend), TaskKilled)
    wait_for(ends(tmp_path / "pid"))
    assert not (tmp_path / "out").exists()


def test_the_command_dies_with_its_worker(start: Start, tmp_path: Path) -> None:
    """Whatever kills the group of the worker kills the command."""
    backend = start(f"cd {tmp_path}; echo $$ > pid; touch ready; sleep 1000")
    (worker,) = backend._processes.pids()
    assert os.getpgid(int((tmp_path / "pid").read_text())) == worker
    backend.close()
    wait_for(ends(tmp_path / "pid"))


def test_a_failure_names_the_task_and_the_command(start: Start, tmp_path: Path) -> None:
    """The reason has the end of stderr and the exit code."""
    command = (
        f"touch {tmp_path}/ready; until test -e {tmp_path}/go; do sleep 0.01; done; exit 4"
    )
    backend = start(command)
    (tmp_path / "go").touch()
    event: Any = next_end(backend)
    # Agents add the host.
    host, code = r"(on host \S+: )?", "the command exited with code 4"
    assert re.fullmatch(re.escape(f"task 0 of job j ({command}): ") + host + code, event.reason)
