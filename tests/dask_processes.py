"""A Dask cluster of processes on loopback, which a test may kill and freeze."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from distributed import Client

SECONDS = 120.0
"""A test that waits for this long has failed."""

WITHOUT_SLOTWISE = """\
import sys

class Without:
    def find_spec(self, name, *others):
        if name.partition(".")[0] == "slotwise":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


class DaskProcesses:
    """A scheduler and its workers, by name. Workers have one thread and no nanny."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._all = folder, []  # type: ignore[var-annotated]
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(file))
        _until(lambda: _address(file) != "")
        self.address = _address(file)

    def start(self, *names: str, lacks_slotwise: bool = False) -> None:
        """Start workers, and wait until the scheduler knows them."""
        before = WITHOUT_SLOTWISE if lacks_slotwise else ""
        for name in names:
            own = (
                "--nthreads",
                "1",
                "--no-nanny",
                "--local-directory",
                str(self._folder / name),
            )
            options = (self.address, "--name", name, *own)
            self.workers[name] = self._start("worker", *options, before=before)
        with Client(self.address, set_as_default=False) as client:
            _until(lambda: names_of(client) >= {*names})

    def kill(self, name: str) -> None:
        """Kill a worker."""
        self.workers[name].kill()
        self.workers[name].wait()

    def close(self) -> None:
        """Kill all processes."""
        for process in reversed(self._all):
            process.kill()
            process.wait()

    def _start(self, role: str, *options: str, before: str = "") -> subprocess.Popen[bytes]:
        code = f"{before}from distributed.cli.dask_{role} import main; main()"
        command = [
            sys.executable,
            "-c",
            code,
            *options,
            "--host",
            "127.0.0.1",
            "--no-dashboard",
        ]
        with (self._folder / f"{role}.log").open("ab") as log:
            started = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        self._all.append(started)
        return started


@contextmanager
def dask_processes(folder: Path, *names: str) -> Iterator[DaskProcesses]:
    """A cluster with these workers, for the time of a test."""
    cluster = DaskProcesses(folder)
    try:
        cluster.start(*names)
        yield cluster
    finally:
        cluster.close()


@contextmanager
def frozen(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process stands still meanwhile."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)


def names_of(client: Client) -> set[str]:
    """The names of the workers of a cluster."""
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return {str(worker["name"]) for worker in workers.values()}


def _address(file: Path) -> str:
    """The address in a scheduler file; empty while Dask has not written it."""
    try:
        return str(json.loads(file.read_text())["address"])
    except (OSError, ValueError):
        return ""


def _until(condition: Any) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
