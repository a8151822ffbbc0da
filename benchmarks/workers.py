"""Worker processes against ready-made pools: `python benchmarks/workers.py`.

Two slots with one task in flight each, as for a scheduler that decides again at every end of a
task: the next task is submitted when the result of the one before has arrived. Everything in
the table is measured or tested in this run; speeds are ratios to slotwise's own.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import loky
import pebble
from rich.console import Console
from rich.table import Table

from slotwise.backends.local.processes import Processes

TASKS, ROUNDS, SLOTS = 10_000, 3, 2
SPAWN = multiprocessing.get_context("spawn")  # Forking with the pools' threads is unsafe.


def noop(number: int) -> int:
    return number


def main_module_imported(_: int) -> bool:
    return getattr(sys.modules["__main__"], "__file__", "").endswith("benchmarks/workers.py")


def pid_of(_: int) -> int:
    return os.getpid()


def hang(_: int) -> None:
    time.sleep(600)


class Slotwise:
    """Our workers."""

    def __init__(self, slots: int) -> None:
        self._workers = Processes(slots)
        self._free = list(range(slots))

    def submit(self, function: Callable[[int], object], number: int) -> None:
        self._workers.start(self._free.pop(), function.__name__, function, (number,))

    def take(self) -> list[object]:
        outcomes = self._workers.wait(None)
        self._free += [outcome.slot for outcome in outcomes]
        return [outcome.opened().value for outcome in outcomes]

    def stop_running(self) -> None:
        self._workers.kill(0)
        self._free = [0]

    def close(self) -> None:
        self._workers.close()


class Pipes:
    """The minimal solution: a process and a pipe for each slot, with functions fixed before."""

    def __init__(self, slots: int) -> None:
        self._processes: dict[Connection, Any] = {}
        self._free: list[Connection] = []
        for _ in range(slots):
            self._add()

    def _add(self) -> None:
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=self.serve, args=(theirs,))
        process.start()
        theirs.close()
        self._processes[ours] = process
        self._free.append(ours)

    @staticmethod
    def serve(channel: Connection) -> None:
        while True:
            function, number = channel.recv()
            channel.send(function(number))

    def submit(self, function: Callable[[int], object], number: int) -> None:
        self._free.pop().send((function, number))

    def take(self) -> list[object]:
        ready = wait(list(self._processes))
        self._free += ready  # type: ignore[arg-type]
        return [channel.recv() for channel in ready]  # type: ignore[union-attr]

    def stop_running(self) -> None:
        self.close()
        self._processes, self._free = {}, []
        self._add()

    def close(self) -> None:
        for channel, process in self._processes.items():
            process.kill()
            process.join()
            channel.close()


class Pool:
    """A pool of futures; a callback passes them to the scheduling thread."""

    def __init__(self, make: Callable[[int], Any], slots: int) -> None:
        self._make, self._slots = make, slots
        self._done: queue.SimpleQueue[Future[object]] = queue.SimpleQueue()
        self._pool = make(slots)
        self._running: Future[object] | None = None

    def submit(self, function: Callable[[int], object], number: int) -> None:
        self._running = self._pool.submit(function, number)
        self._running.add_done_callback(self._done.put)

    def take(self) -> list[object]:
        return [self._done.get().result()]

    def stop_running(self) -> None:
        """Stop the whole pool, because a single task cannot be stopped."""
        for process in self._pool._processes.values():
            os.kill(process.pid, signal.SIGKILL)
        self._pool.shutdown()
        self._done = queue.SimpleQueue()
        self._pool = self._make(self._slots)

    def close(self) -> None:
        self._pool.shutdown()


class Pebble(Pool):
    """Cancelling a running future kills its process."""

    def __init__(self, slots: int) -> None:
        super().__init__(lambda n: pebble.ProcessPool(n, context=SPAWN), slots)

    def submit(self, function: Callable[[int], object], number: int) -> None:
        self._running = self._pool.submit(function, None, number)
        self._running.add_done_callback(self._done.put)

    def stop_running(self) -> None:
        assert self._running
        self._running.cancel()
        self._done.get()

    def close(self) -> None:
        self._pool.stop()
        self._pool.join()


CONTENDERS: dict[str, Callable[[int], Any]] = {
    "slotwise": Slotwise,
    "bare pipes": Pipes,
    "pebble": Pebble,
    "concurrent.futures": lambda slots: Pool(
        lambda n: ProcessPoolExecutor(n, mp_context=SPAWN), slots
    ),
    "loky": lambda slots: Pool(lambda n: loky.ProcessPoolExecutor(n), slots),
}


@contextmanager
def opened(name: str, slots: int) -> Iterator[Any]:
    """A pool that has already returned a result from all slots."""
    pool = CONTENDERS[name](slots)
    try:
        for _ in range(50):
            run_gated(pool, slots, slots)
        yield pool
    finally:
        pool.close()


def run_gated(pool: Any, slots: int, tasks: int) -> float:
    """Seconds of this number of no-op tasks with one in flight for each slot."""
    begun = time.perf_counter()
    for number in range(slots):
        pool.submit(noop, number)
    submitted, done = slots, 0
    while done < tasks:
        for _ in pool.take():
            done += 1
            if submitted < tasks:
                pool.submit(noop, submitted)
                submitted += 1
    return time.perf_counter() - begun


def ask(pool: Any, function: Callable[[int], object]) -> Any:
    pool.submit(function, 0)
    (value,) = pool.take()
    return value


def seconds_to_replace(pool: Any) -> float:
    """Seconds from stopping a running task to the result of the next in the same slot."""
    pool.submit(hang, 0)
    time.sleep(0.2)  # No pool reports the start of a task; this is long enough for all.
    begun = time.perf_counter()
    pool.stop_running()
    ask(pool, noop)
    return time.perf_counter() - begun


def after_kill_from_outside(name: str) -> str:
    """The effect on the pool of killing an idle worker with SIGKILL."""
    pool = CONTENDERS[name](1)
    pid = ask(pool, pid_of)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)  # Gives the pool time to notice it.
    try:
        assert ask(pool, pid_of) != pid
        return "replaced"
    except Exception as error:
        return type(error).__name__
    finally:
        pool.close()


def takes_lambdas(name: str) -> bool:
    try:
        with opened(name, 1) as pool:
            return bool(ask(pool, lambda _: True))
    except Exception:
        return False


def measure(name: str) -> dict[str, Any]:
    """One row of the table, speeds in seconds."""
    with opened(name, SLOTS) as pool:
        rate = min(run_gated(pool, SLOTS, TASKS) / TASKS for _ in range(ROUNDS))
        threads = threading.active_count() - 1
        imported = ask(pool, main_module_imported)
    with opened(name, 1) as pool:
        trip = min(run_gated(pool, 1, TASKS // 5) / (TASKS // 5) for _ in range(ROUNDS))
        replace = min(seconds_to_replace(pool) for _ in range(ROUNDS))
    return {
        "seconds": (rate, trip, replace),
        "facts": (
            str(threads),
            "yes" if imported else "no",
            "yes" if takes_lambdas(name) else "no",
            after_kill_from_outside(name),
        ),
    }


def main() -> None:
    rows = {name: measure(name) for name in CONTENDERS}
    own = rows["slotwise"]["seconds"]
    table = Table(title="Two slots, one no-op task in flight each; slotwise = 1")
    for heading in (
        "",
        "time a task",
        "round trip",
        "stop to next result",
        "threads",
        "imports main",
        "lambdas",
        "idle worker killed",
    ):
        table.add_column(heading)
    for name, row in rows.items():
        ratios = [f"{a / b:.2f}" for a, b in zip(row["seconds"], own, strict=True)]
        table.add_row(name, *ratios, *row["facts"])
    console = Console(width=132)
    console.print(table)
    console.print(
        f"slotwise here and now: {1 / own[0]:,.0f} tasks/s, {own[1] * 1e6:.0f} us a round trip,"
        f" {own[2] * 1e3:.0f} ms from stopping a task to the next result"
    )


if __name__ == "__main__":
    main()
