"""Agents: tasks a second, latency, shuffles between hosts, word count and sort, beside others.

    scripts/bench agents [PART ...] [--full] [--megabytes 200] [--runs 3] [--tasks 5000]

`tasks`     no-op tasks with one in flight for each of four slots, and one at a time: on two
            agents of two slots, in worker processes of this machine, and by `Client.submit` on
            a LocalCluster of two workers with two threads. Goals: 5,000 tasks/s and 0.5 ms.
`shuffle`   what each of three hosts fetches from the other two into a file, one pair after
            another, in partitions of 64 KiB: from the file servers of their agents, beside a
            bare `sendfile` of the same bytes, whose receiver drops them, or puts them into a
            file. Goal: 0.7 of the one that drops them.
`exchange`  records of 100 bytes in Parquet files, put into other files by their keys: a job on
            three agents with folders of their own, beside Dask's p2p shuffle on three workers
            of one thread. The job also sorts the records of a file. Goal: faster.
`words`     word count on three such agents, beside `dask.bag` on three such workers. Goal:
            faster.
`terasort`  TeraSort on three such agents, beside GNU sort with three threads and 1 GB.

All is measured in one run, in turn; times are of one machine, so only ratios have a meaning.
`--full` shuffles, exchanges and sorts 2 GB, which takes ten minutes or more.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from distributed import Client, LocalCluster, as_completed

from agent_processes import Loopback
from check import MEDIA, Result, serve
from dask import bag
from measuring import seconds_of
from shuffles import exchange, place, shuffle, shuffle_rates, terasort, three_workers
from shuffles import seconds_of as seconds_of_job
from slotwise.backends.agents.slots import AgentSlots
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Workers
from slotwise.core.cluster import Cluster, Host
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from wordcount import write_text

HOSTS, SLOTS = 2, 2
FULL_MEGABYTES = 2_000
SPLIT_BYTES = 32 << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    options.moved = FULL_MEGABYTES if options.full else options.megabytes
    for part in options.parts:
        print(f"== {part}", flush=True)
        PARTS[part](options)


def check() -> Iterator[Result]:
    """The shuffle at 0.7 of sendfile, and no-op tasks by those of `Client.submit`."""
    rates = shuffle_rates(200, 5)
    value = rates["agents"] / rates["sendfile"]
    cause = "its receiver writes a file, that of sendfile drops the bytes; see the next line"
    yield Result("shuffle", value, 0.7, "of a bare sendfile", "higher", MEDIA, cause)
    value = rates["agents"] / rates["into a file"]
    unit = "of a sendfile into a file"
    yield Result("shuffle into a file", value, 0.7, unit, "higher", MEDIA)
    seconds = {}
    for name, way, count in (("agents", by_agents, 2_000), ("submit", by_submit, 400)):
        with way() as gated:
            gated(4, 100)
            found = [seconds_of(partial(gated, HOSTS * SLOTS, count)) for _ in range(3)]
            seconds[name] = min(found) / count
    value = seconds["submit"] / seconds["agents"]
    yield Result("no-op tasks of agents", value, 20.0, "x those of Client.submit", "higher")


def noop(number: int) -> int:
    return number


def tasks(options: argparse.Namespace) -> None:
    """Rates, latencies and the manager's CPU time for each task."""
    ways = {"agents": by_agents, "local": by_processes, "Client.submit": by_submit}
    found: dict[str, list[tuple[float, float, list[float]]]] = {name: [] for name in ways}
    for _ in range(options.runs):
        for name, way in ways.items():
            count = options.tasks if way is not by_submit else options.tasks // 10
            with way() as gated:
                gated(4, 200)
                cpu, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
                gated(HOSTS * SLOTS, count)
                seconds = time.perf_counter() - begun
                used = cpu_since(cpu)
                trips = gated(1, count // 10)
            found[name].append((count / seconds, used / count, trips))
    print(f"{'':16}{'tasks/s':>10}{'CPU a task':>14}{'median':>11}{'p95':>11}")
    for name, runs in found.items():
        rate = max(rate for rate, _, _ in runs)
        used = min(used for _, used, _ in runs)
        trips = min((trips for _, _, trips in runs), key=statistics.median)
        median, p95 = statistics.median(trips), statistics.quantiles(trips, n=20)[-1]
        print(
            f"{name:16}{rate:10,.0f}{used * 1e6:11,.0f} us"
            f"{median * 1e3:8.2f} ms{p95 * 1e3:8.2f} ms"
        )


def cpu_since(before: resource.struct_rusage) -> float:
    """Seconds of CPU time of this process since then."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime


Gated = Callable[[int, int], list[float]]
"""Runs no-op tasks with this number in flight, in all this many; the seconds of each."""


@contextmanager
def by_agents() -> Iterator[Gated]:
    """Two agents on loopback."""
    hosts = tuple(Host(f"h{number}", {"task": SLOTS}) for number in range(HOSTS))
    source = Loopback(Cluster(hosts))
    slots = AgentSlots()
    try:
        for host in source.connect():
            slots.add(host)
        with slots as workers:
            yield gated_by(workers)
    finally:
        source.close()


@contextmanager
def by_processes() -> Iterator[Gated]:
    """Worker processes of this one."""
    with Processes(HOSTS * SLOTS) as workers:
        yield gated_by(workers)


def gated_by(workers: Workers) -> Gated:
    """The next task is started when one before it is reported."""

    def gated(slots: int, count: int) -> list[float]:
        begun: dict[int, float] = {}
        started, trips = 0, []
        free = list(range(slots))
        while len(trips) < count:
            for slot in free[: count - started]:
                begun[slot] = time.perf_counter()
                workers.start(slot, "noop", noop, (started,))
                started += 1
            free = []
            for reply in workers.wait(None):
                trips.append(time.perf_counter() - begun[reply.slot])
                free.append(reply.slot)
        return trips

    return gated


@contextmanager
def by_submit() -> Iterator[Gated]:
    """`Client.submit` with one task in flight for each thread."""
    with (
        LocalCluster(
            n_workers=HOSTS, threads_per_worker=SLOTS, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):

        def gated(slots: int, count: int) -> list[float]:
            begun = {}
            done, trips = as_completed(), []
            for number in range(min(slots, count)):
                future = client.submit(noop, number, pure=False)
                begun[future.key] = time.perf_counter()
                done.add(future)
            started = len(begun)
            for future in done:
                trips.append(time.perf_counter() - begun[future.key])
                if started < count:
                    future = client.submit(noop, started, pure=False)
                    begun[future.key] = time.perf_counter()
                    done.add(future)
                    started += 1
            return trips

        yield gated


def words(options: argparse.Namespace) -> None:
    """Seconds of a word count of the source of the standard library, repeated."""
    with place() as folder:
        text = folder / "text"
        write_text(text, options.megabytes * 1_000_000)
        execution = plan_mapreduce(
            "count",
            "wordcount",
            str(text),
            str(folder / "out"),
            reducers=3,
            split_bytes=SPLIT_BYTES,
        )
        own = seconds_of_job(folder, execution)
        with three_workers():
            begun = time.perf_counter()
            lines = bag.read_text(
                str(text), blocksize=SPLIT_BYTES, errors="replace", linedelimiter="\n"
            )
            counted = lines.map(str.split).flatten().frequencies().compute()
            other = time.perf_counter() - begun
        parts = (part.read_text().splitlines() for part in (folder / "out").glob("part-*"))
        found = {word: int(n) for part in parts for word, n in (x.split("\t") for x in part)}
        assert found == dict(counted)
    print(f"agents {own:.2f} s, dask.bag {other:.2f} s: agents take {own / other:.2f} of it")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "tasks": tasks,
    "shuffle": lambda options: shuffle(options.moved, options.runs),
    "exchange": lambda options: exchange(options.moved),
    "words": words,
    "terasort": lambda options: terasort(options.moved),
}


if __name__ == "__main__":
    serve(main, check)
