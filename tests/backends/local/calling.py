"""Functions that run tasks in worker processes and wait for the ends of processes."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Reply, UserCodeError

TIMEOUT = 120.0
"""A time-out in seconds: a test that waits for this long has failed."""


def one(workers: Processes) -> Reply:
    """The only outcome of the next wait."""
    (outcome,) = workers.wait(TIMEOUT)
    return outcome.opened()


def call(
    workers: Processes, function: Callable[..., object], *arguments: object, slot: int = 0
) -> Reply:
    """Runs one task to its end; one that cannot be sent has an error at once."""
    try:
        workers.start(slot, f"call {time.monotonic_ns()}", function, arguments)
    except UserCodeError as error:
        return Reply(slot, "error", str(error))
    return one(workers)


def exists(pid: int) -> bool:
    """Whether there is such a process, be it dead and not yet waited for."""
    return Path(f"/proc/{pid}").exists()


def await_end(*pids: int) -> None:
    """Blocks until these processes, of whatever parent, have ended."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([watched], [], [], TIMEOUT)
        os.close(watched)
        assert ended, f"process {pid} still runs"
