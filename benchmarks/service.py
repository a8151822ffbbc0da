"""Jobs and calls of the server of slotwise on two slots, beside those of its peers.

Measured in one run, as multiples of a spawn, `subprocess.run(["/bin/true"])`:

- submit: from a client's call until a shell job is accepted, while others hold the slots. That
  of the server is durable then; the others keep it in memory, or write it without a flush
- shell job: /bin/true, many submitted one by one or at once, until all have ended
- call: a Python function that does nothing, one after another, and many at once
- behind: a small job that is submitted after 1,000 of another pool, each of 50 ms, until it has
  ended: as the peer comes, and with the best that it offers

Then the start of the server with 100,000 old jobs in its store. Peers are in service_peers.py.
"""

from __future__ import annotations

import argparse
import os
import select
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

from check import TIMED, Result, serve
from measuring import seconds_of
from service_peers import PEERS, SLOTS, Peer, serving, slotwise
from slotwise.service.store import Store

TRUE, JOB_SECONDS = ["/bin/true"], 0.05
OLD_JOBS, GROUP = 100_000, 5_000
LIMIT = 90.0
"""Seconds after which a job is not waited for any longer."""

PARTS = {"Dask": 0.2, "gflow": 0.05, "Slurm": 0.05}
"""Of slow peers, the part of the jobs and calls that are measured."""

COLUMNS = {
    "submit": "submit, median",
    "p99": "p99",
    "single": "shell job, one by one",
    "many": "at once",
    "call": "call, alone",
    "calls": "at once",
    "behind": "behind 1,000",
    "best": "with the best",
}


class Bell:
    """A pipe: commands write to it, and this process sees that at once."""

    def __init__(self, folder: Path) -> None:
        path, self._hold = folder / "bell", folder / "hold"
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR)
        self.ring = ["/bin/sh", "-c", f"echo > {path}"]
        wait = f"while [ -e {self._hold} ]; do sleep 0.05; done"
        self.hold = ["/bin/sh", "-c", f"echo > {path}; {wait}"]

    def wait(self, count: int = 1) -> bool:
        """Wait for so many commands; False after `LIMIT`."""
        until = time.monotonic() + LIMIT
        while count and select.select([self._end], [], [], max(0, until - time.monotonic()))[0]:
            count -= len(os.read(self._end, count))
        return not count

    @contextmanager
    def held(self, peer: Peer) -> Iterator[None]:
        """Meanwhile jobs hold all slots."""
        self._hold.touch()
        peer.submit_all(self.hold, SLOTS)
        assert self.wait(SLOTS), "jobs do not begin"
        yield
        self._hold.unlink()


@contextmanager
def using(make: Callable[[Path], object]) -> Iterator[tuple[Peer, Bell]]:
    with tempfile.TemporaryDirectory(prefix="sw-", ignore_cleanup_errors=True) as place:
        folder = Path(place, "peer")
        folder.mkdir()
        with make(folder) as peer:  # type: ignore[attr-defined]
            yield peer, Bell(Path(place))


def times_of(act: Callable[[], object], count: int) -> tuple[float, float]:
    """The median and the 99th percentile of the seconds of calls."""
    times = [seconds_of(act) for _ in range(count)]
    return median(times), quantiles(times, n=100, method="inclusive")[98]


def submissions(peer: Peer, bell: Bell, count: int) -> tuple[float, float]:
    with bell.held(peer):
        found = times_of(lambda: peer.submit(TRUE, False), count)
    all_end(peer, bell)
    return found


def all_end(peer: Peer, bell: Bell) -> None:
    """Wait for the end of a last job, and of all as far as that is told."""
    peer.submit(bell.ring, False)
    assert bell.wait(), "jobs do not end"
    peer.finish()


def shell_jobs(peer: Peer, bell: Bell, count: int, at_once: bool) -> float:
    """Seconds a job."""
    begun = time.perf_counter()
    if at_once:
        peer.submit_all(TRUE, count - 1)
    else:
        for _ in range(count - 1):
            peer.submit(TRUE, False)
    all_end(peer, bell)
    return (time.perf_counter() - begun) / count


def behind(make: Callable[[Path], object], others: int, is_first: bool) -> float:
    """Seconds until a small job has ended."""
    with using(make) as (peer, bell):
        peer.submit(bell.ring, False)
        assert bell.wait()  # All of it has started.
        peer.submit_all(["/bin/sleep", str(JOB_SECONDS)], others)
        begun = time.perf_counter()
        peer.submit(bell.ring, is_first)
        return time.perf_counter() - begun if bell.wait() else inf


def measured(name: str, size: int, others: int) -> dict[str, float]:
    """Seconds of one peer, by column. ImportError if it is not installed."""
    count = max(4, int(size * PARTS.get(name, 1)))
    found: dict[str, float] = {}
    with using(PEERS[name]) as (peer, bell):
        found["submit"], found["p99"] = submissions(peer, bell, count)
        found["single"] = shell_jobs(peer, bell, count, at_once=False)
        found["many"] = shell_jobs(peer, bell, count, at_once=True)
        if peer.calls is not None:
            found |= calls(peer.calls, count // 50 if name == "HyperQueue" else count)
        best = peer.best
    found["behind"] = behind(PEERS[name], others, False)
    if best:
        found["best"] = behind(PEERS[name], others, True)
    return found


def calls(act: Callable[[int], object], count: int) -> dict[str, float]:
    act(SLOTS)  # The workers have started.
    alone, _ = times_of(partial(act, 1), max(3, count // 4))
    return {"call": alone, "calls": seconds_of(partial(act, count)) / count}


def spawn() -> None:
    subprocess.run(TRUE, check=True)


def commits(count: int) -> tuple[float, float]:
    """Seconds of bare commits of 300 bytes on the disk of the others, synchronous=FULL."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        database = sqlite3.connect(Path(folder, "bare.db"), isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE rows (data)")
        found = times_of(
            partial(database.execute, "INSERT INTO rows VALUES (?)", (b"x" * 300,)), count
        )
        database.close()
        return found


def started(old: int) -> float:
    """Seconds from the start of a server with old jobs until it accepts others."""
    with tempfile.TemporaryDirectory(prefix="sw-") as place:
        folder = Path(place)
        fill(folder, old)
        begun = time.perf_counter()
        with serving(folder):
            return time.perf_counter() - begun


def fill(folder: Path, count: int) -> None:
    """Copy a job that has ended."""
    with slotwise(folder) as peer:
        peer.submit(TRUE, False)
        peer.finish()
    with Store(folder / "service") as store:
        (job,) = store.jobs()
        (task,) = store.tasks(job.id)
        environ = store.environment(job.environ) if job.environ else None
        for _ in range(0, count, GROUP):
            new = [store.new_id() for _ in range(min(GROUP, count))]
            jobs = [replace(job, number=number, id=name) for number, name in new]
            store.add(jobs, environ=environ)
            ends = [store.end_task(replace(task, job=one.id)) for one in jobs]
            ends[-1].result()


SUBMIT = "x the greater of 2 ms and three bare commits"


def check() -> Iterator[Result]:
    """The goals of the server, each with its yardstick of the same run."""
    commit, _ = commits(200)
    of_spawn, _ = times_of(spawn, 200)
    with using(slotwise) as (peer, bell):
        submit, _ = submissions(peer, bell, 300)
        many = min(shell_jobs(peer, bell, 500, at_once=True) for _ in range(3))
        call = calls(peer.calls, 1000)["calls"]
    yield Result("submission of a shell job, median", submit / max(0.002, 3 * commit), 1.0, SUBMIT)
    yield Result("shell jobs at once", many / of_spawn, 2.0, "x a spawn")
    yield Result("calls at once", 1e3 * call, 1.0, "ms a call")
    value = behind(slotwise, 1000, False) / JOB_SECONDS
    yield Result("a small job behind 1,000", value, 2.0, "x one of their tasks")
    yield Result("start with 100,000 old jobs", started(OLD_JOBS), 2.0, "s", noise=TIMED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=500, help="jobs or calls of a measurement")
    parser.add_argument("--others", type=int, default=1_000, help="jobs before a small one")
    parser.add_argument("--old", type=int, default=OLD_JOBS, help="jobs in the store")
    parser.add_argument("names", nargs="*", default=list(PEERS), help=f"of {', '.join(PEERS)}")
    options = parser.parse_args()
    commit, commit_late = commits(options.size)
    spawns, found = [], {}
    for name in options.names:
        spawns.append(times_of(spawn, 100)[0])
        try:
            found[name] = measured(name, options.size, options.others)
        except ImportError:
            found[name] = {}
    one = median(spawns)
    table = Table("ms (x a spawn)", *COLUMNS.values(), title=f"{SLOTS} slots")
    for name, values in found.items():
        cells = [shown(values.get(key), one) for key in COLUMNS] if values else ["not installed"]
        table.add_row(name, *cells)
    console = Console(width=150)
    console.print(table)
    console.print(f"spawn: {1e3 * one:.2f} ms; bare commit: {1e3 * commit:.3f} ms"
                  f" (p99 {1e3 * commit_late:.3f} ms)")
    for old in (0, options.old):
        console.print(f"start of the server with {old:,} old jobs: {started(old):.2f} s")


def shown(seconds: float | None, one: float) -> str:
    if seconds is None:
        return ""
    if seconds == inf:
        return f"> {LIMIT:.0f} s"
    return f"{1e3 * seconds:,.3g} ({seconds / one:,.2g})"


if __name__ == "__main__":
    serve(main, check)
