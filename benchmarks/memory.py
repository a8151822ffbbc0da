"""Peak memory of a simulation with a log, and of replay, explanation and report of that log.

`scripts/bench memory PATH` uses a SWIM trace (see slotwise.workload.swim) on 3,000 hosts x 2
slots under FAIR + delay, as `benchmarks/trace.py` does; without a path it generates one. Each
step runs in a process of its own. It is repeated with the first half of the jobs: what grows
with the jobs that are over would double.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
import trace
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import check as checking
import slotwise
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.log import following
from slotwise.core.placement import place_blocks
from slotwise.results import Result
from slotwise.workload.swim import racked_cluster
from slotwise.workload.workload import Workload

TRUTH = Simulation(
    seed=1,
    noise=trace.NOISE,
    remote_factor=trace.REMOTE_FACTOR,
    rack_factor=trace.RACK_FACTOR,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", help="a SWIM trace; generated if omitted")
    parser.add_argument("--first", type=int, default=2000, help="read only this number of jobs")
    parser.add_argument("--hosts", type=int, default=trace.HOSTS)
    parser.add_argument("--steps", default=",".join(STEPS), help="of " + ", ".join(STEPS))
    options = parser.parse_args()
    steps = options.steps.split(",")
    peaks: list[dict[str, float]] = []
    for first in (options.first // 2, options.first):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log.jsonl")
            peaks.append({})
            for name in steps:
                given = (options.path, first, options.hosts, log)
                peaks[-1][name], seconds = measured(STEPS[name], *given)
                print(f"{first:6,} jobs: {name:9} {peaks[-1][name]:5.2f} GiB", end="")
                print(f" in {seconds:5.0f} s; the log has {log.stat().st_size / 1e9:.2f} GB")
    half, whole = peaks
    ratios = ", ".join(f"{name} {whole[name] / half[name]:.2f}" for name in steps)
    print(f"peak memory of all jobs / of half of them: {ratios}")


def check() -> Iterator[checking.Result]:
    """Bytes that each further task adds to the peak; 2 GiB for the 8.6 million of a day."""
    counts = (300, 900)
    tasks = [
        sum(phase.tasks.count for job in trace.trace(None, n) for phase in job.phases)
        for n in counts
    ]
    peaks = []
    for first in counts:
        with tempfile.TemporaryDirectory() as folder:
            given = (None, first, 300, Path(folder, "log.jsonl"))
            peaks.append({name: measured(step, *given)[0] for name, step in STEPS.items()})
    for name in STEPS:
        grown = (peaks[1][name] - peaks[0][name]) * (1 << 30) / (tasks[1] - tasks[0])
        what = f"{name}, of each further task"
        yield checking.Result(what, grown, 250.0, "bytes", noise=0.3, cause=ALIVE)


ALIVE = (
    "memory grows with what is alive, and here 95 % of all tasks, each with the hosts of three"
    " blocks, belong to jobs that are alive at once (counted in the log)"
)


def measured(step: Callable[..., None], *given: object) -> tuple[float, float]:
    """The peak memory in GiB of a process that does one step, and its seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=measure, args=(theirs, step, given))
    process.start()
    theirs.close()
    found: tuple[float, float] = ours.recv()
    process.join()
    return found


def measure(answer: Connection, step: Callable[..., None], given: tuple[object, ...]) -> None:
    begun = time.perf_counter()
    step(*given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    answer.send((peak, time.perf_counter() - begun))


def simulate(path: str | None, first: int, hosts: int, log: Path) -> None:
    """Simulate the trace and write its log."""
    cluster = racked_cluster(hosts, slots=trace.SLOTS_A_HOST, hosts_a_rack=trace.HOSTS_A_RACK)
    jobs = place_blocks(trace.trace(path, first), cluster, trace.REPLICAS, seed=1)
    options = {"epoch_seconds": 5.0, "waits": (5.0, 10.0), "log": log}
    workload = Workload(jobs, cluster=cluster)
    slotwise.simulate(workload, "fair", assigner="delay", simulation=TRUTH, **options)


def measure_again(path: str | None, first: int, hosts: int, log: Path) -> None:
    """The metrics and the lower bound from the log."""
    with following(log) as followed:
        Result.of_log(followed)


def replay(path: str | None, first: int, hosts: int, log: Path) -> None:
    """Repeat all decisions."""
    assert slotwise.replay(log).is_identical


def explain(path: str | None, first: int, hosts: int, log: Path) -> None:
    """The longest waits."""
    slotwise.explain(log)


def report(path: str | None, first: int, hosts: int, log: Path) -> None:
    """The page, as `slotwise report` writes it."""
    with following(log) as followed:
        Result.of_log(followed).report(log.with_suffix(".html"))


STEPS: dict[str, Callable[..., None]] = {
    "simulate": simulate,
    "metrics": measure_again,
    "replay": replay,
    "explain": explain,
    "report": report,
}


if __name__ == "__main__":
    checking.serve(main, check)
