"""A NumPy array that passes from one task to another: mapped, and copied by pickle.

Each row is the time of both tasks of one job on two slots, less that of the same job without
the array. `mapped` is what `Calls` does: the array is written once to shared memory, and the
receiver maps it. `pickled` returns the array to the manager, and sends it as an argument. The
receiver reads one number of each page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Workers
from slotwise.jobs.transfer import TransferFolders, get, put

MEGABYTES = (1, 10, 100)
ROUNDS = 7


def main() -> None:
    print(f"{'MB':>5} {'mapped, ms':>11} {'pickled, ms':>12} {'ratio':>6}")
    with Processes(2) as workers:
        folders = TransferFolders()
        folders.open("benchmark")
        for megabytes in (0, *MEGABYTES):  # The first warms up.
            mapped, copied = (
                median(measured(workers, way, megabytes) for _ in range(ROUNDS))
                for way in (lambda w, n: pass_mapped(w, n, folders.paths), pass_pickled)
            )
            if megabytes:
                ratio = copied / mapped
                print(f"{megabytes:5} {mapped * 1e3:11.1f} {copied * 1e3:12.1f} {ratio:6.1f}")
        folders.remove()


def measured(workers: Workers, way: Callable[[Workers, int], None], megabytes: int) -> float:
    begun = time.perf_counter()
    way(workers, megabytes)
    both = time.perf_counter() - begun
    begun = time.perf_counter()
    one(workers, 0, "make", make, megabytes)  # Making the array is not passing it.
    return max(both - (time.perf_counter() - begun), 1e-9)


def pass_mapped(workers: Workers, megabytes: int, folders: tuple[str, ...]) -> None:
    handle = one(workers, 0, "put", make_and_put, megabytes, folders)
    one(workers, 1, "get", get_and_read, handle)
    if handle.path:
        one(workers, 1, "unlink", unlink, handle.path)


def pass_pickled(workers: Workers, megabytes: int) -> None:
    array = one(workers, 0, "return", make_and_return, megabytes)
    one(workers, 1, "read", read, array)


def one(
    workers: Workers, slot: int, key: str, function: Callable[..., object], *arguments: object
) -> Any:
    workers.start(slot, key, function, arguments)
    reply = workers.wait()[0].opened()
    assert reply.status == "done", reply.value
    return reply.value


def make(megabytes: int) -> None:
    np.ones(megabytes << 17)


def make_and_put(megabytes: int, folders: tuple[str, ...]) -> object:
    return put(np.ones(megabytes << 17), folders, f"array-{time.monotonic_ns()}")


def make_and_return(megabytes: int) -> object:
    return np.ones(megabytes << 17)


def get_and_read(handle: Any) -> float:
    return read(get(handle))


def read(array: Any) -> float:
    return float(array[::512].sum())


def unlink(path: str) -> None:
    import os

    os.unlink(path)


if __name__ == "__main__":
    main()
