"""What `scripts/bench agents` measures of shuffles: bytes, records by key, and a sort.

Three agents on loopback have folders of their own, and a slot each.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from agent_processes import TOKEN, Loopback
from slotwise.backends.agents.backend import AgentsBackend, cluster_of
from slotwise.core.cluster import Cluster, Host
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.jobs.blocks import PartitionedWriter
from slotwise.jobs.builtin.teragen import KEY_BYTES, TeraGen
from slotwise.jobs.execution import Execution
from slotwise.jobs.hosts.auth import reader_token
from slotwise.jobs.hosts.files import Wanted, fetch
from slotwise.jobs.hosts.sockets import join_address
from slotwise.jobs.mapreduce.planning import plan_mapreduce
from slotwise.jobs.mapreduce.program import BatchMapReduce
from slotwise.jobs.work_folder import work_folder_name
from slotwise.policy.scheduler import make_scheduler

NAMES = "abc"
"""The hosts."""

PIECE = 1 << 16
"""The bytes of a partition of a map's output; shuffles have many small ones."""

SPLIT_BYTES = 64 << 20
PARTITIONS = 12
"""Files of records, and as many partitions by their keys."""

TEXT_BYTES = 92
"""With a key of 8 bytes, a record has 100."""

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def place() -> Iterator[Path]:
    """A folder that all hosts see."""
    with tempfile.TemporaryDirectory(prefix="slotwise-bench-") as name:
        yield Path(name)


def three_hosts(folder: Path) -> Loopback:
    """Agents that are to be connected."""
    return Loopback(Cluster(tuple(Host(name, {"task": 1}) for name in NAMES)), folder)


def seconds_of(folder: Path, execution: Execution) -> float:
    """How long a job takes on three agents that run already."""
    source = three_hosts(folder)
    hosts = source.connect()
    begun = time.perf_counter()
    with AgentsBackend([execution], source, hosts) as backend:
        run(make_scheduler("fair"), backend, State(cluster_of(hosts)), lambda *turn: None)
        return time.perf_counter() - begun


@contextmanager
def three_workers() -> Iterator[None]:
    """Three Dask workers with a thread each, and a client of theirs."""
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster),
    ):
        yield


def shuffle(megabytes: int, runs: int) -> None:
    """Print megabytes a second from one host into a file of another, for all pairs of hosts."""
    rates = shuffle_rates(megabytes, runs)
    for name, rate in rates.items():
        print(f"{name:16}{rate / 1e6:10,.0f} MB/s{rate / rates['sendfile']:8.2f} of sendfile")


def shuffle_rates(megabytes: int, runs: int) -> dict[str, float]:
    """Bytes a second of each way."""
    pieces = max(1, megabytes * 1_000_000 // PIECE // (len(NAMES) - 1) // len(NAMES))
    size = pieces * PIECE
    with place() as folder:
        source = three_hosts(folder)
        hosts = source.connect()  # Agents serve files while their manager is there.
        ports, servers = {}, []
        try:
            files = {name: write_output(folder / name, pieces) for name in NAMES}
            for name, file in files.items():
                ours, theirs = SPAWN.Pipe()
                servers.append(SPAWN.Process(target=send_file, args=(file, size, theirs)))
                servers[-1].start()
                ports[name] = ours.recv()
            out = folder / "out"
            ways: dict[str, Callable[[str], None]] = {
                "agents": lambda n: fetch_file(
                    join_address(*source.listen[n]), files[n], pieces, out
                ),
                "sendfile": lambda n: receive(ports[n], size),
                "into a file": lambda n: receive(ports[n], size, out),
            }
            from_each = [name for name in NAMES for _ in range(len(NAMES) - 1)]
            best = dict.fromkeys(ways, float("inf"))
            for _ in range(runs):
                for name, taken in in_turn(ways, from_each, out).items():
                    best[name] = min(best[name], taken)
            assert len(hosts) == len(NAMES)
        finally:
            source.close()
            for server in servers:
                server.kill()
                server.join()
    return {name: size * len(from_each) / taken for name, taken in best.items()}


def in_turn(
    ways: dict[str, Callable[[str], None]], from_each: Sequence[str], out: Path
) -> dict[str, float]:
    """The seconds of each way, for all of these hosts; one way after another for each."""
    taken = dict.fromkeys(ways, 0.0)
    for host in from_each:
        for name, way in ways.items():
            out.unlink(missing_ok=True)
            begun = time.perf_counter()
            way(host)
            taken[name] += time.perf_counter() - begun
    return taken


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


def fetch_file(address: str, file: Path, pieces: int, out: Path) -> None:
    """Put all partitions of a file from an agent into another, as a reduce does."""
    wanted = [Wanted(file.parent.name, file.name, 0, pieces)]
    job = file.parent.parent.name
    with PartitionedWriter(out, pieces) as copy:
        written = fetch(address, reader_token(TOKEN), job, wanted, copy.descriptor)
        for partition, sizes in enumerate(next(written)):
            copy.has_written(partition, sizes)
        written.close()
    assert copy.bytes == pieces * PIECE


def send_file(file: Path, size: int, pipe: Any) -> None:
    """Send the begin of a file to all who connect to a port, which is told first."""
    with socket.create_server(("127.0.0.1", 0)) as server, file.open("rb") as opened:
        pipe.send(server.getsockname()[1])
        while True:
            connected, _ = server.accept()
            with connected, suppress(OSError):
                connected.sendfile(opened, 0, size)


def receive(port: int, size: int, out: Path | None = None) -> None:
    """Receive this many bytes, and put them into a file if one is given."""
    with (
        socket.create_connection(("127.0.0.1", port)) as connected,
        open(out or os.devnull, "wb", buffering=0) as file,
    ):
        buffer = memoryview(bytearray(1 << 20))
        while size > 0 and (got := connected.recv_into(buffer)):
            size -= got
            if out is not None:
                file.write(buffer[:got])
    assert size == 0


class ByKey(BatchMapReduce):
    """The same rows, in partitions by their keys."""

    keys = ("key",)

    def map(self, table: pa.Table) -> pa.Table:
        """The table itself."""
        return table


def exchange(megabytes: int) -> None:
    """Seconds from files of records to files of records, partitioned by key."""
    import dask.dataframe as dd

    logging.getLogger("distributed.shuffle").setLevel("ERROR")  # It tells when it begins.
    with place() as folder:
        keys = write_records(folder / "in", megabytes * 1_000_000)
        execution = plan_mapreduce(
            "exchange",
            ByKey,
            str(folder / "in" / "*.parquet"),
            str(folder / "out"),
            reducers=PARTITIONS,
            split_bytes=SPLIT_BYTES,
            input_format="parquet",
            output_format="parquet",
        )
        own = seconds_of(folder, execution)
        check_keys(folder / "out", keys)
        with three_workers():
            begun = time.perf_counter()
            frame = dd.read_parquet(folder / "in")
            moved = frame.shuffle("key", npartitions=PARTITIONS, shuffle_method="p2p")
            moved.to_parquet(folder / "other", compression=None, write_index=False)
            other = time.perf_counter() - begun
        check_keys(folder / "other", keys)
    print(f"agents {own:.1f} s, Dask's p2p {other:.1f} s: agents take {own / other:.2f} of it")


def write_records(folder: Path, size: int) -> tuple[int, int]:
    """Files of random records; their number, and the sum of their keys."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    count, total = size // 100 // PARTITIONS, 0
    for number in range(PARTITIONS):
        keys = rng.integers(0, 1 << 40, count)
        text = rng.integers(ord("a"), ord("z") + 1, count * TEXT_BYTES, dtype=np.uint8)
        ends = np.arange(0, (count + 1) * TEXT_BYTES, TEXT_BYTES, dtype=np.int32)
        texts = pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(text))
        pq.write_table(
            pa.table({"key": keys, "text": texts}),
            folder / f"{number}.parquet",
            compression="none",
            use_dictionary=False,
            row_group_size=100_000,
        )
        total += int(keys.sum())
    return count * PARTITIONS, total


def check_keys(folder: Path, expected: tuple[int, int]) -> None:
    """Every record is there, and records of one key are in one file."""
    count, total = 0, 0
    for file in folder.glob("*.parquet"):
        keys = pq.read_table(file, columns=["key"])["key"].to_numpy()
        count += len(keys)
        total += int(keys.sum())
    assert (count, total) == expected


def terasort(megabytes: int) -> None:
    """Seconds of TeraSort, beside `sort` of the same records with as many processes."""
    with place() as folder:
        records = megabytes * 1_000_000 // TeraGen.record_bytes
        made = plan_mapreduce(
            "make", "teragen", (), str(folder / "in"), parameters={"records": records}
        )
        seconds_of(folder, made)
        sort = plan_mapreduce(
            "sort",
            "terasort",
            str(folder / "in" / "part*"),
            str(folder / "out"),
            reducers=PARTITIONS,
            split_bytes=SPLIT_BYTES,
        )
        own = seconds_of(folder, sort)
        check_order(folder / "out", records)
        print(f"agents {own:.1f} s, {megabytes / own:.0f} MB/s", end="")
        if tool := shutil.which("sort"):
            begun = time.perf_counter()
            stated = (f"--parallel={len(NAMES)}", "-S", "1G", "-T", folder)
            subprocess.run(
                [tool, *stated, "-o", folder / "sorted", *(folder / "in").glob("part*")],
                env=os.environ | {"LC_ALL": "C"},
                check=True,
            )
            other = time.perf_counter() - begun
            print(f"; GNU sort {other:.1f} s: agents take {own / other:.2f} of it", end="")
    print()


def check_order(folder: Path, records: int) -> None:
    """All records are there, in order of their keys from one part to the next."""
    count, last = 0, b""
    for part in sorted(folder.glob("part-*")):
        with part.open("rb") as file:
            for line in file:
                assert last <= line[:KEY_BYTES]
                last = line[:KEY_BYTES]
                count += 1
    assert count == records
