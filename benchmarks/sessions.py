"""Calls in a session, beside ready-made pools: `python benchmarks/sessions.py`.

All make no-op calls in worker processes on 2 slots:

- the median time from submitting a call to its result, one at a time
- calls a second as tasks of one job: submitted one by one, as a job of `Calls`, which is
  submitted as a whole, and mapped with chunks
- jobs of one call each a second, while 1,000 and 10,000 are alive

Everything is measured in this run; speeds are ratios to slotwise's own in the same row.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any, Protocol

import loky
from rich.console import Console
from rich.table import Table

from check import Result, serve
from measuring import descendants, in_turn, processor_seconds, ratio, seconds_of
from slotwise import Calls, Session
from slotwise.core.job import Job, Phase, Tasks

SLOTS, ROUNDS = 2, 3
SPAWN = multiprocessing.get_context("spawn")  # Forking with the pools' threads is unsafe.
GOALS = {
    "latency": "< 0.5 ms",
    "calls": "20,000/s",
    "whole": "20,000/s",
    "mapped": "20,000/s",
    "jobs 1000": "5,000/s",
    "jobs 10000": "2,000/s",
}


def noop(number: int) -> int:
    return number


class Pool(Protocol):
    """What the peers have in common."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any: ...


@contextmanager
def slotwise_executor() -> Iterator[Pool]:
    with Session(SLOTS, "flex") as session, session.executor() as executor:
        yield executor


@contextmanager
def processes() -> Iterator[Pool]:
    with ProcessPoolExecutor(SLOTS, mp_context=SPAWN) as pool:
        yield pool


@contextmanager
def loky_pool() -> Iterator[Pool]:
    pool = loky.get_reusable_executor(max_workers=SLOTS)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, kill_workers=True)


@contextmanager
def dask_executor() -> Iterator[Pool]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=SLOTS, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor(pure=False)


PEERS = {
    "slotwise": slotwise_executor,
    "ProcessPoolExecutor": processes,
    "loky": loky_pool,
    "Dask": dask_executor,
}


def latency(pool: Pool, count: int) -> float:
    """The median seconds from a call to its result."""
    times = []
    for number in range(count):
        begun = time.perf_counter()
        assert pool.submit(noop, number).result() == number
        times.append(time.perf_counter() - begun)
    return median(times)


def calls(pool: Pool, count: int) -> float:
    """Calls a second if all are submitted at once."""
    begun = time.perf_counter()
    futures.wait([pool.submit(noop, number) for number in range(count)])
    return count / (time.perf_counter() - begun)


def jobs(submit: Callable[..., Any], alive: int, count: int) -> float:
    """Calls a second with this number of them alive all the time."""
    room = threading.Semaphore(alive)

    def submit_one(number: int) -> None:
        room.acquire()
        submit(noop, number).add_done_callback(lambda _: room.release())

    for number in range(alive):
        submit_one(number)
    begun = time.perf_counter()
    for number in range(count):
        submit_one(number)
    seconds = time.perf_counter() - begun
    for _ in range(alive):  # Until all are done.
        room.acquire()
    return count / seconds


def mapped(results: Iterable[int], count: int) -> float:
    """Items a second."""
    begun = time.perf_counter()
    assert sum(results) == count * (count - 1) // 2
    return count / (time.perf_counter() - begun)


def of_pool(name: str, size: int) -> dict[str, float]:
    """What is measured of one peer; it is warm before."""
    slow = 10 if name == "Dask" else 1
    with PEERS[name]() as pool:
        latency(pool, 50)
        found = {
            "latency": latency(pool, max(20, size // 10 // slow)),
            "calls": calls(pool, size // slow),
        }
        if name in ("ProcessPoolExecutor", "loky"):
            chunks: Any = pool
            found["mapped"] = mapped(
                chunks.map(noop, range(10 * size), chunksize=1000), 10 * size
            )
        return found


def of_jobs(scheduler: str, alive: int, size: int) -> float:
    with Session(SLOTS, scheduler) as session:
        latency(session, 50)
        return jobs(session.submit, alive, size)


def of_map(size: int) -> float:
    with Session(SLOTS) as session:
        latency(session, 50)
        return mapped(session.map(noop, range(10 * size)), 10 * size)


def of_whole_job(size: int) -> float:
    """Calls a second of a job of `Calls`, each of them a task."""
    with Session(SLOTS) as session:
        latency(session, 50)
        job = Job("calls", (Phase("call", Tasks(size)),))
        begun = time.perf_counter()
        results = session.run(Calls(job, noop)).result()
        assert results["call"][size - 1] == size - 1
        return size / (time.perf_counter() - begun)


SUBMITTED = (
    "the manager decides about each task and logs it: 93 us of its processor time for one that"
    " does nothing (docs/decisions/0036-interpreted-core.md); a pool has a queue and decides"
    " nothing"
)
LAZY = (
    f"{SUBMITTED}; and the thread that takes the results is woken for each task, to submit more"
)
WHOLE = (
    "0.7 in rounds of 200 chunks: of each the manager takes 0.29 ms and a worker 0.18 ms, those"
    " of a pool 0.5 and 0.17 ms; the first round of new workers has 1 s of them more"
)


def check() -> Iterator[Result]:
    """Sessions by a ProcessPoolExecutor: both are open, and measured in turn.

    Rates are those of the processor time of all processes, which depends little on other work.
    """
    with warnings.catch_warnings(), Session(SLOTS, "flex") as session:
        warnings.simplefilter("ignore")
        executor = session.executor()
        latency(executor, 50)
        of_session = descendants()
        with processes() as pool:
            latency(pool, 50)
            of_pool = descendants() - of_session
            peer: Any = pool
            work = partial(latency, count=500)
            value = by_processor(
                of_session, partial(work, executor), of_pool, partial(work, pool)
            )
            yield Result("one call at a time", value, 1.0, PROCESSOR, cause=SUBMITTED)
            work = partial(calls, count=3_000)
            value = by_processor(
                of_session, partial(work, executor), of_pool, partial(work, pool)
            )
            yield Result("calls submitted one by one", value, 1.0, PROCESSOR, cause=SUBMITTED)
            for size, count in ((10, 20_000), (100, 100_000), (1_000, 400_000)):
                way = partial(map_all, count=count, chunksize=size)
                theirs = partial(way, peer)
                value = by_processor(of_session, partial(way, executor), of_pool, theirs)
                cause = SUBMITTED if size < 1_000 else WHOLE
                yield Result(
                    f"executor.map, chunks of {size:,}", value, 1.0, PROCESSOR, cause=cause
                )
                value = by_processor(of_session, partial(way, session), of_pool, theirs)
                yield Result(
                    f"Session.map, chunks of {size:,}", value, 1.0, PROCESSOR, cause=LAZY
                )
            value = by_processor(
                of_session, partial(way, session, chunksize=None), of_pool, theirs
            )
            name = "Session.map, chunks that it chooses, by those of 1,000"
            yield Result(name, value, 1.0, PROCESSOR)


OF_POOL = "of ProcessPoolExecutor"
PROCESSOR = f"x the processor time {OF_POOL}"


def by_processor(
    ours: Iterable[int],
    work: Callable[[], object],
    theirs: Iterable[int],
    peer: Callable[[], object],
) -> float:
    """Processor time of work by that of the peer, each with its worker processes."""
    clocks = (partial(processor_seconds, ours), partial(processor_seconds, theirs))
    found = in_turn(
        {
            "ours": lambda: seconds_of(work, clocks[0]),
            "peer": lambda: seconds_of(peer, clocks[1]),
        },
        7,
    )
    return ratio(found, "ours", "peer")


def map_all(pool: Any, count: int, chunksize: int | None) -> float:
    """Items a second of a map in chunks."""
    return mapped(pool.map(noop, range(count), chunksize=chunksize), count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=20_000, help="calls of one measurement")
    size = parser.parse_args().size
    found = {name: [of_pool(name, size) for _ in range(ROUNDS)] for name in PEERS}
    best = {
        name: {
            key: (min if key == "latency" else max)(one[key] for one in rounds)
            for key in rounds[0]
        }
        for name, rounds in found.items()
    }
    best["slotwise"]["whole"] = max(of_whole_job(size) for _ in range(ROUNDS))
    best["slotwise"]["mapped"] = max(of_map(size) for _ in range(ROUNDS))
    table = Table("", *PEERS, "goal", title=f"No-op calls on {SLOTS} slots, best of {ROUNDS}")
    ours = best["slotwise"]
    for key, title in (
        ("latency", "one at a time, median"),
        ("calls", "tasks of one job, submitted one by one"),
        ("whole", "tasks of one job, submitted as a whole"),
        ("mapped", "mapped with chunks"),
    ):
        cells = []
        for name in PEERS:
            value = best[name].get(key)
            if value is None:
                cells.append("")
                continue
            shown = f"{1000 * value:.2f} ms" if key == "latency" else f"{value:,.0f}/s"
            ratio = value / ours[key]
            cells.append(shown if name == "slotwise" else f"{shown} (x{ratio:.2f})")
        table.add_row(title, *cells, GOALS.get(key, ""))
    peer = max(best["ProcessPoolExecutor"]["calls"], best["loky"]["calls"])
    for alive in (1_000, 10_000):
        for scheduler in ("fair", "flex"):
            rate = max(of_jobs(scheduler, alive, size // 2) for _ in range(ROUNDS))
            table.add_row(
                f"jobs of one call, {alive:,} alive, {scheduler}",
                f"{rate:,.0f}/s (x{rate / peer:.2f} of the faster pool above)",
                *[""] * (len(PEERS) - 1),
                GOALS[f"jobs {alive}"],
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    serve(main, check)
