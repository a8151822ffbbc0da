"""A Dask cluster of processes on this machine, for the time of an experiment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from slotwise.core.cluster import Cluster

HERE = "127.0.0.1"

START_SECONDS = 120.0
"""The most that the processes may take to start on a busy machine."""


@contextmanager
def dask_cluster(cluster: Cluster) -> Iterator[str]:
    """The address of a scheduler with a worker for each host; they end with the context.

    A worker has the name, the slots, the speed and the first address of its host, by default
    that of loopback, and a folder of its own. RuntimeError if they do not start.
    """
    from distributed import Client

    with TemporaryDirectory(prefix="slotwise-dask-") as name, ExitStack() as processes:
        folder = Path(name)
        file = folder / "scheduler.json"
        bare = ("--host", HERE, "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        _start(processes, folder / "scheduler", ("scheduler", *bare))
        _wait_for(file)
        for host in cluster.hosts:
            options = {
                "--name": host.name,
                "--host": host.addresses[0] if host.addresses else HERE,
                "--nthreads": sum(host.slots.values()),
                "--local-directory": folder / host.name,
                "--scheduler-file": file,
            }
            stated = [str(part) for option in options.items() for part in option]
            slowed = {"DASK_SLOTWISE_AGENT__SPEED": str(host.speed)}
            begin = ("worker", "--no-nanny", "--no-dashboard", *stated)
            _start(processes, folder / host.name, begin, slowed)
        with Client(  # type: ignore[no-untyped-call]
            scheduler_file=str(file), set_as_default=False
        ) as client:
            client.wait_for_workers(len(cluster.hosts), timeout=START_SECONDS)
            address = client.scheduler.address
        yield address


def _start(
    processes: ExitStack,
    folder: Path,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start a command of Dask in a folder; the stack ends it. What it prints is in a file."""
    folder.mkdir()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=output,
        )
    processes.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(file: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while not file.exists():
        if time.monotonic() > until:
            printed = (file.parent / "scheduler" / "output").read_text(errors="replace")
            raise RuntimeError(f"the Dask scheduler does not start: {printed}")
        time.sleep(0.05)
