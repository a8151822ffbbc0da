"""Agents: tasks a second, latency, a shuffle between hosts, and word count, beside others.

`tasks`    no-op tasks with one in flight for each of four slots, and one at a time: on two
           agents of two slots, in worker processes of this machine, and by `Client.submit` on a
           LocalCluster of two workers with two threads. Goals: 5,000 tasks/s and 0.5 ms.
`shuffle`  what each of three hosts fetches from the other two, one pair after another, in
           partitions of 64 KiB: from the file servers of their agents, beside a bare `sendfile`
           of the same bytes. Goal: 0.7 of it.
`words`    word count on three agents with folders of their own, beside `dask.bag` on three
           workers of one thread. Goal: faster.

All is measured in one run, in turn; times are of one machine, so only ratios have a meaning.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, as_completed

from agent_processes import TOKEN, Loopback
from benchmarks.wordcount import write_text
from dask import bag
from slotwise.model.cluster import Cluster, Host
from slotwise.programs.hosts.files import Wanted, fetch
from slotwise.programs.hosts.greeting import reader_token
from slotwise.programs.mapreduce.planning import plan_mapreduce
from slotwise.programs.shuffle.partitioned import PartitionedWriter
from slotwise.programs.work_folder import work_folder_name
from slotwise.runtime.agents.backend import AgentsBackend, cluster_of
from slotwise.runtime.agents.slots import AgentSlots
from slotwise.runtime.local.processes import Processes
from slotwise.runtime.local.workers import Workers
from slotwise.runtime.loop import run
from slotwise.runtime.state import State
from slotwise.scheduler import make_scheduler

HOSTS, SLOTS = 2, 2
PIECE = 1 << 16
"""The bytes of a partition of a map's output; shuffles have many small ones."""

SPLIT_BYTES = 32 << 20
SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["tasks", "shuffle", "words"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        "tasks": tasks,
        "shuffle": shuffle,
        "words": words,
    }
    for part in options.parts:
        print(f"== {part}", flush=True)
        parts[part](options)


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
        with Workers(slots) as workers:
            yield gated_by(workers)
    finally:
        source.close()


@contextmanager
def by_processes() -> Iterator[Gated]:
    """Worker processes of this one."""
    with Workers(Processes(HOSTS * SLOTS)) as workers:
        yield gated_by(workers)


def gated_by(workers: Workers) -> Gated:
    """The next task is started when one before it is reported."""

    def gated(slots: int, count: int) -> list[float]:
        begun: dict[int, float] = {}
        started, trips = 0, []
        free = list(range(slots))
        while len(trips) < count:
            for slot in free if started < count else ():
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


def shuffle(options: argparse.Namespace) -> None:
    """Megabytes a second from one host to another, for all pairs of three hosts."""
    names = "abc"
    pieces = max(1, options.megabytes * 1_000_000 // PIECE // (len(names) - 1) // len(names))
    with tempfile.TemporaryDirectory(prefix="slotwise-bench-") as place:
        source = Loopback(Cluster(tuple(Host(n, {"task": 1}) for n in names)), Path(place))
        hosts = source.connect()  # Agents serve files while their manager is there.
        ports, servers = [], []
        try:
            files = {name: write_output(Path(place) / name, pieces) for name in names}
            for name in names:
                ours, theirs = SPAWN.Pipe()
                servers.append(SPAWN.Process(target=send_file, args=(files[name], theirs)))
                servers[-1].start()
                ports.append(ours.recv())
            pairs = [(to, name) for to in names for name in names if to != name]
            best = {"agents": 0.0, "sendfile": 0.0}
            for _ in range(options.runs):
                begun = time.perf_counter()
                for _, name in pairs:
                    fetch_file(source.ports[name], files[name], pieces)
                middle = time.perf_counter()
                for _, name in pairs:
                    read_all(ports[names.index(name)], pieces * PIECE)
                ends = time.perf_counter()
                total = pieces * PIECE * len(pairs)
                best["agents"] = max(best["agents"], total / (middle - begun))
                best["sendfile"] = max(best["sendfile"], total / (ends - middle))
            assert len(hosts) == len(names)
        finally:
            source.close()
            for server in servers:
                server.kill()
                server.join()
    for name, rate in best.items():
        print(f"{name:16}{rate / 1e6:10,.0f} MB/s{rate / best['sendfile']:8.2f} of sendfile")


def write_output(host: Path, pieces: int) -> Path:
    """A file as a map writes it, in the folder that the agent of a host serves."""
    (served,) = (path for path in host.iterdir() if path.is_dir())
    attempt = served / work_folder_name() / "map-0-1"
    attempt.mkdir(parents=True)
    data = os.urandom(PIECE)
    with PartitionedWriter(attempt / "pairs", pieces) as file:
        for piece in range(pieces):
            file.append(piece, data)
    return attempt / "pairs"


def fetch_file(port: int, file: Path, pieces: int) -> None:
    """All partitions of a file from the agent at a port, as a reduce gets them."""
    wanted = [Wanted(file.parent.name, file.name, 0, pieces)]
    job = file.parent.parent.name
    chunks = fetch(f"127.0.0.1:{port}", reader_token(TOKEN), job, wanted)
    assert sum(len(chunk) for _, _, chunk in chunks) == pieces * PIECE


def send_file(file: Path, pipe: Any) -> None:
    """Send a file to all who connect to a port, which is told first."""
    with socket.create_server(("127.0.0.1", 0)) as server, file.open("rb") as opened:
        pipe.send(server.getsockname()[1])
        while True:
            connected, _ = server.accept()
            with connected:
                connected.sendfile(opened, 0)


def read_all(port: int, size: int) -> None:
    """Receive at least this many bytes."""
    with socket.create_connection(("127.0.0.1", port)) as connected:
        buffer = memoryview(bytearray(1 << 20))
        while size > 0 and (got := connected.recv_into(buffer)):
            size -= got


def words(options: argparse.Namespace) -> None:
    """Seconds of a word count of the source of the standard library, repeated."""
    with tempfile.TemporaryDirectory(prefix="slotwise-bench-") as place:
        text = Path(place) / "text"
        write_text(text, options.megabytes * 1_000_000)
        names = "abc"
        source = Loopback(Cluster(tuple(Host(n, {"task": 1}) for n in names)), Path(place))
        execution = plan_mapreduce(
            "count", "wordcount", str(text), f"{place}/out", reducers=3, split_bytes=SPLIT_BYTES
        )
        hosts = source.connect()
        begun = time.perf_counter()
        with AgentsBackend([execution], source, hosts) as backend:
            run(make_scheduler("fair"), backend, State(cluster_of(hosts)), lambda *turn: None)
        own = time.perf_counter() - begun
        with (
            LocalCluster(
                n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as cluster,
            Client(cluster),
        ):
            begun = time.perf_counter()
            lines = bag.read_text(
                str(text), blocksize=SPLIT_BYTES, errors="replace", linedelimiter="\n"
            )
            counted = lines.map(str.split).flatten().frequencies().compute()
            other = time.perf_counter() - begun
        parts = (part.read_text().splitlines() for part in Path(place, "out").glob("part-*"))
        found = {word: int(n) for part in parts for word, n in (x.split("\t") for x in part)}
        assert found == dict(counted)
    print(f"agents {own:.2f} s, dask.bag {other:.2f} s: agents take {own / other:.2f} of it")


if __name__ == "__main__":
    main()
