"""Tasks that need more memory together than their workers have: plain Dask, and the gate.

Two workers with four threads and 600 MB each run 24 tasks that hold 178 or 67 MB for half a
second and state nothing. Four at once do not fit beside the process of a worker. Prints how
many ended with a result, how many workers were lost, the attempts, and the seconds. Plain Dask
loses its workers again and again, and is stopped after 90 s. Goal with the gate: all results,
and no worker is lost. Takes 1.3 GB.

`--figure FILE` draws the memory of the workers over time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import altair
import numpy
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

import dask
import slotwise.dask
from check import Result, serve
from slotwise.insight.report.text import BAD, BEST

LIMIT = 600_000_000
LARGE, SMALL = 170 << 20, 64 << 20
SECONDS = 0.5
TIMEOUT = 90

WAYS = ("plain Dask", "the gate with memory")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found = {way: run(way, options.tasks) for way in WAYS}
    print(f"{'':22}{'results':>8}{'lost workers':>14}{'attempts':>10}{'seconds':>9}")
    for way, one in found.items():
        results = f"{one.results}/{options.tasks}"
        lost, attempts = len(one.lost), one.attempts
        print(f"{way:22}{results:>8}{lost:>14}{attempts:>10}{one.seconds:>9.1f}")
    if options.figure:
        draw(found, options.figure)


def check() -> Iterator[Result]:
    """No worker is lost with the gate, and all tasks have results."""
    found = run(WAYS[1], 24)
    yield Result("workers lost with the gate", len(found.lost), 0, "workers", "lower")
    yield Result("results with the gate", found.results, 24, "of 24 tasks", "higher")


@dataclass
class Observer(SchedulerPlugin):
    """What happened: the lost workers, the attempts, and the memory of processes over time."""

    lost: list[float] = field(default_factory=list)
    samples: list[tuple[float, str, float]] = field(default_factory=list)
    attempts: int = 0
    results: int = 0
    seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)
    name = "observer"

    def transition(self, key: Any, start: str, finish: str, *_: Any, **details: Any) -> None:
        """A task begins at a worker."""
        self.attempts += finish == "processing"

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """A worker is lost."""
        self.lost.append(time.monotonic() - self.began)


@dask.delayed(pure=False)
def large(number: int) -> float:
    """A task with a large array."""
    return use(LARGE)


@dask.delayed(pure=False)
def small(number: int) -> float:
    """A task with a smaller one."""
    return use(SMALL)


def use(count: int) -> float:
    """Hold so many bytes for a while."""
    values = numpy.ones(count // 8)
    time.sleep(SECONDS)
    return float(values[:: 1 << 12].sum())


def run(way: str, tasks: int) -> Observer:
    """Run the tasks on a new cluster until they have ended."""
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.logging.distributed": "critical"}))
        cluster = stack.enter_context(
            LocalCluster(
                n_workers=2,
                threads_per_worker=4,
                memory_limit=LIMIT,
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            )
        )
        client = stack.enter_context(Client(cluster, set_as_default=False))
        if way != WAYS[0]:
            slotwise.dask.install(client, scheduler="fair", memory=True)
        observer = Observer()
        cluster.scheduler.add_plugin(observer)
        graph = [(small if n % 2 else large)(n) for n in range(tasks)]
        futures = client.compute(graph)
        while any(one.status == "pending" for one in futures):
            at = time.monotonic() - observer.began
            if at > TIMEOUT:
                break
            for worker in list(cluster.scheduler.workers.values()):
                used = int(worker.metrics.get("memory", 0))
                observer.samples.append((at, str(worker.name), used / 1e6))
            time.sleep(0.1)
        observer.seconds = time.monotonic() - observer.began
        observer.results = sum(one.status == "finished" for one in futures)
        cluster.scheduler.remove_plugin(observer.name)  # Before the workers are closed.
        return observer


def draw(found: dict[str, Observer], path: Path) -> None:
    """The memory of each worker over time, and the instants at which workers were lost."""
    rows = [
        {"way": way, "s": at, "worker": f"worker {name}", "MB": used}
        for way, one in found.items()
        for at, name, used in one.samples
    ]
    lost = [{"way": way, "s": at} for way, one in found.items() for at in one.lost]
    base = altair.Chart().properties(width=330, height=180)
    layers = [
        base.mark_line(interpolate="step-after").encode(
            x=altair.X("s:Q", title="seconds"),
            y=altair.Y("MB:Q", title="memory of the process, MB"),
            color=altair.Color("worker:N", title=None).scale(range=[BEST, "#d8a13c"]),
        ),
        base.mark_rule(color=BAD, strokeDash=[4, 3]).encode(y=altair.datum(LIMIT / 1e6)),
    ]
    charts = []
    for way in found:
        mine = [row for row in rows if row["way"] == way]
        gone = [row for row in lost if row["way"] == way]
        ticks = altair.Chart(altair.Data(values=gone)).mark_point(
            shape="cross", color=BAD, size=70, filled=True, angle=45
        )
        drawn = altair.layer(*layers, data=altair.Data(values=mine)) + ticks.encode(
            x="s:Q", y=altair.datum(LIMIT / 1e6)
        )
        title = f"{way}: {found[way].results} of 24 results, {len(gone)} workers lost"
        charts.append(drawn.properties(title=title))
    altair.hconcat(*charts).resolve_scale(y="shared", color="shared").save(path)


if __name__ == "__main__":
    serve(main, check)
