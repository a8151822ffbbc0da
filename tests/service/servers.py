"""Servers without their processes: of one job of commands under supervisors, and whole ones."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forked import ForkedProcess, Forker
from slotwise.backends.local.backend import LocalBackend
from slotwise.core.log import Header, LogFile
from slotwise.core.loop import initial_state, run
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.jobs.commands import plan_commands
from slotwise.policy.scheduler import make_scheduler
from slotwise.service.engine.engine import Engine
from slotwise.service.engine.hub import Hub
from slotwise.service.engine.submitting import JobSubmitter, Submission
from slotwise.service.settings import Settings
from slotwise.service.store.store import Store
from slotwise.service.supervision.supervised import Spawner, SupervisedCommands, Supervision
from waiting import until

OWNER = "SUPERVISED_TEST"
"""The environment variable of each command with the folder of its test."""

WAITS = "echo begun >> begun; echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo done"
"""A command that notes each of its beginnings and ends when there is a file."""


@contextmanager
def job(
    folder: Path, number: int, command: Any, *, output_max: int = 1 << 30, **about: Any
) -> Iterator[SupervisedCommands]:
    """The job j of commands in a run of the server, with its spawner."""
    spawner = Spawner(folder)
    try:
        planned = plan_commands(
            "j", command, base_dir=folder, env={OWNER: str(folder)}, **about
        )
        by = Supervision(str(folder), number, spawner, output_max)
        yield SupervisedCommands(planned, by, is_new=False)
    finally:
        spawner.close()


def header(backend: LocalBackend, slots: int) -> Header:
    """The header of the log of a run."""
    return Header(
        backend="live",
        scheduler={"name": "fair"},
        objective={"penalty": "stretch", "aggregate": "sum"},
        cluster=backend.cluster(slots, needs_gpus=False),
        pools=(),
        jobs_expected=1,
    )


def serve(
    folder: str, number: int, command: Any, slots: int = 1, **about: Any
) -> tuple[Path, State]:
    """Run the job to its end; returns the log of the run and the last state."""
    log = Path(folder, f"{number}.jsonl")
    with (
        job(Path(folder), number, command, **about) as execution,
        LocalBackend([execution], slots) as backend,
    ):
        head = header(backend, slots)
        state = initial_state(head)
        with LogFile(log, head) as record:
            run(make_scheduler("fair"), backend, state, record)
    return log, state


def start(
    forker: Forker, folder: Path, number: int, command: Any, **about: Any
) -> ForkedProcess:
    """`serve` in a process of its own."""
    paths = [str(Path(__file__).parents[1])]
    call = f"serve({str(folder)!r}, {number}, {command!r}, **{about!r})"
    before = f"sys.path[:0] = {paths!r}\nfrom service.servers import serve\n{call}\nos._exit(0)"
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return forker.start([], folder, [null, null, sys.stderr.fileno()], before=before)
    finally:
        os.close(null)


def killed(
    forker: Forker,
    folder: Path,
    number: int,
    command: Any,
    when: Callable[[], object],
    **about: Any,
) -> None:
    """Kill a server, and with it its workers, as soon as something has happened."""
    server = start(forker, folder, number, command, **about)
    until(lambda: when() or server.poll() is not None)
    assert server.poll() is None
    server.send_signal(signal.SIGKILL)
    server.wait(60.0)


def processes_of(folder: Path, *, commands_only: bool = False) -> list[int]:
    """The processes of the commands, supervisors and spawners of a test."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        is_spawned = f"{folder}/spawner".encode() in words and not commands_only
        if is_spawned or f"{OWNER}={folder}".encode() in variables:
            found.append(int(name))
    return found


@contextmanager
def opened(
    folder: Path, run: int = 1, scheduler: str = "fair", slots: int = 2
) -> Iterator[Engine]:
    """A server without its process, with its state in `service` there. It leaves in order."""
    with Store(folder / "service") as store:
        pools = (Pool("a"), Pool("b"))
        settings = Settings(slots=slots, scheduler=scheduler, pools=pools)
        engine = Engine(store, settings, run, Hub())
        try:
            yield engine
        finally:
            engine.leave(0)


def submit(engine: Engine, folder: Path, *jobs: dict[str, Any], **more: Any) -> list[str]:
    """The ids of jobs that it has accepted."""
    given = Submission(jobs, str(folder), {"PATH": "/usr/bin:/bin"}, engine.own, **more)
    return [one.id for one in JobSubmitter(engine).submit(given)]
