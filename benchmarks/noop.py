"""No-op tasks a second on 2 slots, one in flight in each, compared with Dask's LocalCluster.

Ours is the whole path: the loop, FAIR, a launch, a worker process, the event, the log in
memory. Dask is gated in the same way: the next task is submitted when one has returned.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from queue import SimpleQueue

import slotwise
from check import COUNTED, Result, serve
from measuring import in_turn, ratio
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs.calls import Calls

SLOTS = 2
SPAWN = multiprocessing.get_context("spawn")  # Forking with the pool's threads is unsafe.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--skip-dask", action="store_true")
    options = parser.parse_args()
    ours = max(slotwise_rate(options.tasks) for _ in range(3))
    print(f"slotwise            {ours:10,.0f} tasks/s   {ours / 5000:.1f} x the goal of 5,000")
    if not options.skip_dask:
        dask = dask_rate(min(options.tasks, 2_000))
        print(f"Dask LocalCluster   {dask:10,.0f} tasks/s   ours: {ours / dask:.0f} x as many")


GATED = 3_000


def check() -> Iterator[Result]:
    """Tasks of the whole loop by those of a pool, gated in the same way."""
    with ProcessPoolExecutor(SLOTS, mp_context=SPAWN) as pool:
        pool_rate(pool, 100)
        found = in_turn(
            {"ours": lambda: slotwise_rate(GATED), "pool": lambda: pool_rate(pool, GATED)}, 5
        )
    value = ratio(found, "ours", "pool")
    unit = "x the tasks a second of a ProcessPoolExecutor"
    yield Result("no-op tasks, one in flight a slot", value, 1.0, unit, "higher")
    value = calls_a_task()
    name = "calls of functions by the manager"
    yield Result(name, value, 150.0, "a task", noise=COUNTED)


def pool_rate(pool: ProcessPoolExecutor, tasks: int) -> float:
    """The next task is submitted when one has returned."""
    done: SimpleQueue[object] = SimpleQueue()

    def submit(number: int) -> None:
        pool.submit(nothing, number).add_done_callback(done.put)

    begun = time.perf_counter()
    for number in range(SLOTS):
        submit(number)
    for number in range(SLOTS, tasks):
        done.get()
        submit(number)
    for _ in range(SLOTS):
        done.get()
    return tasks / (time.perf_counter() - begun)


def calls_a_task() -> float:
    """Calls of functions in the thread of the loop for each task, of 2,000 more tasks."""
    return (calls_of(2_200) - calls_of(200)) / 2_000


def calls_of(tasks: int) -> int:
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    job = Job("noop", (Phase("map", Tasks(tasks, 0.0001)),))
    sys.setprofile(counted)
    try:
        slotwise.run([Calls(job, {"map": nothing})], "fair", slots=1)
    finally:
        sys.setprofile(None)
    return count


def nothing(task: int) -> None:
    """The body of each task."""


def slotwise_rate(tasks: int) -> float:
    job = Job("noop", (Phase("map", Tasks(tasks, 0.0001)),))
    result = slotwise.run([Calls(job, {"map": nothing})], "fair", slots=SLOTS)
    attempts = result.jobs["noop"]
    # From the first launch on, without the start of the worker processes.
    return tasks / ((attempts["completion"] or 0.0) - first_end(result))


def first_end(result: slotwise.Result) -> float:
    """The time at which the workers were up: the end of the first task."""
    return next(turn.events[0].at for turn in result.log.turns[1:] if turn.events)


def dask_rate(tasks: int) -> float:
    from distributed import Client, LocalCluster, as_completed

    with (
        LocalCluster(
            n_workers=SLOTS, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(nothing, range(SLOTS), pure=False))
        begun = time.perf_counter()
        flight = as_completed(client.map(nothing, range(SLOTS), pure=False))
        sent = SLOTS
        for _ in flight:
            if sent < tasks:
                flight.add(client.submit(nothing, sent, pure=False))
                sent += 1
        return tasks / (time.perf_counter() - begun)


if __name__ == "__main__":
    serve(main, check)
