"""Jobs and calls of the server of slotwise on two slots, beside those of its peers.

All in one run, as multiples of a spawn, `subprocess.run(["/bin/true"])`:

- submit: from the call of a client until a shell job is accepted, while others hold the slots.
  A server of slotwise has then stored it for good, which costs a bare commit
- shell job: /bin/true, many submitted one by one, or at once, until all have ended
- call: a Python function that does nothing, one after another, or many at once
- behind: a small job submitted after 1,000 of another pool, of 50 ms each, until it has ended:
  as the peer comes, and with the best that it offers
- the start of the server, empty and with 100,000 old jobs

What the peers are, and how they are installed: service_peers.py.
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

from check import Result, serve
from check import shown as digits
from measuring import seconds_of
from service_peers import PEERS, SLOTS, Peer, serving, slotwise
from slotwise.service.store.store import Store

TRUE, JOB_SECONDS = ["/bin/true"], 0.05
OLD_JOBS, GROUP = 100_000, 5_000
LIMIT = 90.0
"""Seconds after which a job is not waited for any longer."""

PARTS = {"Dask": 0.2, "gflow": 0.04, "Slurm": 0.04}
"""The part of the jobs and calls that is measured of slow peers."""

ROWS = {
    "submit": "submit, median",
    "p99": "submit, p99",
    "single": "shell job, one by one",
    "many": "shell job, at once",
    "call": "call, alone",
    "calls": "call, at once",
    "behind": "behind many",
    "best": "with the best offer",
}


class Bell:
    """A pipe into which jobs write, so that this process sees at once that they ran."""

    def __init__(self, folder: Path) -> None:
        path, self._hold = folder / "bell", folder / "hold"
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR)
        self.job = ["/bin/sh", "-c", f"echo > {path}"]
        until = f"while [ -e {self._hold} ]; do sleep 0.05; done"
        self._holder = ["/bin/sh", "-c", f"echo > {path}; {until}"]

    def wait(self, jobs: int = 1) -> bool:
        """Wait for so many; False if they take too long."""
        until = time.monotonic() + LIMIT
        while jobs and select.select([self._end], [], [], max(0, until - time.monotonic()))[0]:
            jobs -= len(os.read(self._end, jobs))
        return not jobs

    @contextmanager
    def held(self, peer: Peer) -> Iterator[None]:
        """Meanwhile jobs hold all slots."""
        self._hold.touch()
        peer.submit(self._holder, SLOTS, False)
        assert self.wait(SLOTS), "jobs do not begin"
        yield
        self._hold.unlink()

    def all_end(self, peer: Peer) -> None:
        """Wait for a last job, and for the ends of all if they are reported."""
        peer.submit(self.job, 1, False)
        assert self.wait(), "jobs do not end"
        peer.finish()


@contextmanager
def using(name: str) -> Iterator[tuple[Peer, Bell]]:
    with tempfile.TemporaryDirectory(prefix="sw-", ignore_cleanup_errors=True) as place:
        folder = Path(place, "peer")
        folder.mkdir()
        with PEERS[name](folder) as peer:
            yield peer, Bell(Path(place))


def of(act: Callable[[], object], count: int) -> tuple[float, float]:
    """The median and the 99th percentile of the seconds of calls."""
    times = [seconds_of(act) for _ in range(count)]
    return median(times), quantiles(times, n=100, method="inclusive")[98]


def spawns(count: int) -> float:
    return of(partial(subprocess.run, TRUE, check=True), count)[0]


def commits(count: int) -> tuple[float, float]:
    """Bare commits of 300 bytes, on the disk that the peers use."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        database = sqlite3.connect(Path(folder, "bare.db"), isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE rows (data)")
        insert = partial(database.execute, "INSERT INTO rows VALUES (zeroblob(300))")
        found = of(insert, count)
        database.close()
        return found


def submissions(peer: Peer, bell: Bell, count: int) -> tuple[float, float]:
    with bell.held(peer):
        found = of(lambda: peer.submit(TRUE, 1, False), count)
    bell.all_end(peer)
    return found


def shell_jobs(peer: Peer, bell: Bell, count: int, at_once: int) -> float:
    """Seconds a job."""
    begun = time.perf_counter()
    for _ in range(count // at_once):
        peer.submit(TRUE, at_once, False)
    bell.all_end(peer)
    return (time.perf_counter() - begun) / (count + 1)


def calls(peer: Peer, count: int) -> dict[str, float]:
    act = peer.calls
    assert act is not None
    act(10 * SLOTS)  # The workers have started.
    alone, _ = of(partial(act, 1), max(3, count // 4))
    return {"call": alone, "calls": seconds_of(partial(act, count)) / count}


def behind(name: str, others: int, is_first: bool) -> float:
    """Seconds until a small job has ended; infinite if it takes too long."""
    with using(name) as (peer, bell):
        bell.all_end(peer)  # It has started.
        peer.submit(["/bin/sleep", str(JOB_SECONDS)], others, False)
        begun = time.perf_counter()
        peer.submit(bell.job, 1, is_first)
        return time.perf_counter() - begun if bell.wait() else inf


def measured(name: str, size: int, others: int) -> dict[str, float]:
    """Seconds, by row. ImportError if the peer is not installed."""
    count = max(4, int(size * PARTS.get(name, 1)))
    with using(name) as (peer, bell):
        submit, late = submissions(peer, bell, count)
        found = {"submit": submit, "p99": late}
        found["single"] = shell_jobs(peer, bell, count, 1)
        found["many"] = shell_jobs(peer, bell, count, count)
        if peer.calls:  # HyperQueue starts an interpreter for each.
            found |= calls(peer, count // 50 if name == "HyperQueue" else count)
    found["behind"] = behind(name, others, False)
    if peer.best:
        found["best"] = behind(name, others, True)
    return found


def started(old: int) -> float:
    """Seconds from the start of a server with old jobs, which printed nothing, until it accepts
    others."""
    with tempfile.TemporaryDirectory(prefix="sw-") as place:
        fill(Path(place), old)
        begun = time.perf_counter()
        with serving(Path(place)):
            return time.perf_counter() - begun


def fill(folder: Path, count: int) -> None:
    """Copy a job that has ended, with the end of its task."""
    with slotwise(folder) as peer:
        peer.submit(TRUE, 1, False)
        peer.finish()
    with Store(folder / "service") as store:
        (job,) = store.jobs()
        (task,) = store.tasks(job.id)
        environ = store.environment(job.environ) if job.environ else None
        for begin in range(0, count, GROUP):
            new = [store.new_id() for _ in range(min(GROUP, count - begin))]
            jobs = [replace(job, number=number, id=name) for number, name in new]
            store.add(jobs, environ=environ).result()
            for done in [store.end_task(replace(task, job=one.id)) for one in jobs]:
                done.result()


JOB_CAUSE = (
    "2.2 ms of the process that plans, stores, schedules and reports each job, 0.8 ms of a"
    " worker, 0.5 ms of its supervisor and a spawn, on two processors"
)
SUBMIT_CAUSE = (
    "processor time a job: 1.4 ms to plan it, 1.2 ms for HTTP, 0.5 ms to store it, and 0.9 ms"
    " for the turn of the scheduler that follows, which delays the next submission"
)
BEHIND_CAUSE = (
    "it is submitted while the 1,000 arrive, which takes the scheduler 0.1 s; a second later it"
    " ends within 0.9 of the time of one of these"
)


def check() -> Iterator[Result]:
    """The goals of the server, by spawns and bare commits of this run."""
    spawn, (commit, _) = spawns(200), commits(200)
    with using("slotwise") as (peer, bell):
        submit, _ = submissions(peer, bell, 300)
        many = min(shell_jobs(peer, bell, 500, 500) for _ in range(3))
        call = calls(peer, 1_000)["calls"]
    unit, value = "x the longer of 2 ms and three bare commits", submit / max(0.002, 3 * commit)
    yield Result("submission of a shell job, median", value, 1.0, unit, cause=SUBMIT_CAUSE)
    yield Result("shell jobs at once", many / spawn, 2.0, "x a spawn", cause=JOB_CAUSE)
    yield Result("calls at once", 1e3 * call, 1.0, "ms a call")
    value, unit = behind("slotwise", 1_000, False) / JOB_SECONDS, "x one of these"
    name = "a small job behind 1,000 of another pool"
    yield Result(name, value, 2.0, unit, cause=BEHIND_CAUSE)
    yield Result("start with 100,000 old jobs", started(OLD_JOBS), 2.0, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=500, help="jobs or calls of a measurement")
    parser.add_argument("--others", type=int, default=1_000, help="jobs before a small one")
    parser.add_argument("--old", type=int, default=OLD_JOBS, help="jobs in the store")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    given = parser.parse_args()
    (commit, late), each = commits(given.size), list[float]()
    found, why = dict[str, dict[str, float]](), dict[str, str]()
    for name in given.peers:
        each.append(spawns(100))
        try:
            found[name] = measured(name, given.size, given.others)
        except ImportError:
            why[name] = "not installed"
        except Exception as error:  # The others are measured all the same.
            why[name] = f"failed: {error!r}"
    spawn = median(each)
    console, title = Console(width=170), f"ms (x a spawn of {1e3 * spawn:.2f} ms)"
    table = Table(f"{SLOTS} slots", *found, title=title)
    for key, text in ROWS.items():
        table.add_row(text, *(shown(one.get(key), spawn) for one in found.values()))
    console.print(table)
    for name, text in why.items():
        console.print(f"{name}: {text}")
    console.print(f"bare commit: median {1e3 * commit:.3f} ms, p99 {1e3 * late:.3f} ms")
    for old in (0, given.old):
        console.print(f"start of the server with {old:,} old jobs: {started(old):.2f} s")


def shown(seconds: float | None, spawn: float) -> str:
    if seconds is None:
        return ""
    if seconds == inf:
        return f"> {LIMIT:.0f} s"
    return f"{digits(1e3 * seconds)} (x{digits(seconds / spawn)})"


if __name__ == "__main__":
    serve(main, check)
