"""A day of jobs on 3,000 hosts x 2 slots under FAIR + delay: events a second, minutes, memory.

`scripts/bench trace PATH` replays a SWIM trace (see slotwise.workload.swim). Without a path it
generates one of the same shape: as many jobs, their sizes by the table of the delay scheduling
slides. With the default rates the FB-2010 day loads the slots to 87 %.

The real scheduler decides each launch: fair shares over all present jobs, recomputed at each
arrival and end of a phase and every 5 seconds; a job waits up to 5 seconds for a slot next to
its input, and up to 10 for one in the same rack. Input is on three hosts, over racks. The log
is not kept: the run is measured while it proceeds. The garbage collector is off: reference
counting frees all finished objects, and a collection would find nothing.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import simulator
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job
from slotwise.core.log import Header
from slotwise.core.loop import run
from slotwise.core.objective import Objective
from slotwise.core.placement import place_blocks
from slotwise.core.state import State
from slotwise.insight.metrics import MetricsCollector, Outcome
from slotwise.policy.scheduler import make_scheduler
from slotwise.workload.swim import SwimRates, racked_cluster, read_swim

HOSTS, SLOTS_A_HOST, HOSTS_A_RACK, REPLICAS = 3000, 2, 40, 3
JOBS, DAY = 24_442, 86_400
REMOTE_FACTOR, RACK_FACTOR, NOISE = 1.5, 1.2, 0.3
CUSTOMERS = 100_000

SIZES = ((1, 25, 58.0), (25, 100, 18.0), (100, 400, 14.0), (400, 1600, 7.0), (1600, 6400, 3.0))
"""Maps of a job, from and to, and the percent of jobs (the slides, "Job Sizes at Facebook")."""

LARGEST = (6400, 30_000)
"""The same of the remaining jobs; the slides state only "> 6400"."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", help="a SWIM trace; generated if omitted")
    parser.add_argument("--first", type=int, help="read only this number of jobs")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--epoch", type=float, default=5.0, help="seconds")
    parser.add_argument("--waits", type=float, nargs=2, default=(5.0, 10.0), help="seconds")
    options = parser.parse_args()
    jobs = trace(options.path, options.first)
    cluster = racked_cluster(options.hosts, slots=SLOTS_A_HOST, hosts_a_rack=HOSTS_A_RACK)
    describe(jobs, cluster)
    peer = simulator.simpy_rate(CUSTOMERS, sum(cluster.capacity.values()))
    jobs = place_blocks(jobs, cluster, REPLICAS, seed=1)
    gc.collect()
    gc.disable()
    begun, begun_process = time.perf_counter(), time.process_time()
    outcome = replay(jobs, cluster, options.epoch, tuple(options.waits))
    seconds, minutes = time.process_time() - begun_process, (time.perf_counter() - begun) / 60
    peer = max(peer, simulator.simpy_rate(CUSTOMERS, sum(cluster.capacity.values())))
    show(outcome, minutes, seconds, peer)


def trace(path: str | None, first: int | None) -> tuple[Job, ...]:
    """The jobs of a given or generated trace, with the default rates."""
    if path is not None:
        return read_swim(path, first=first)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.tsv")
        made.write_text("".join(made_up(JOBS)), encoding="utf-8")
        return read_swim(made, first=first)


def made_up(count: int) -> Iterator[str]:
    """Lines of a trace: Poisson arrivals over a day, sizes by the table of the slides.

    Within a row of the table the logarithm of the size is uniformly distributed. A third of the
    jobs has no reduces; the others shuffle and write less than they read.
    """
    rng = random.Random(1)
    block = SwimRates().block_bytes
    rows = [(low, high) for low, high, _ in SIZES] + [LARGEST]
    percents = [percent for _, _, percent in SIZES]
    percents.append(100.0 - sum(percents) if sum(percents) < 100 else 0.26)
    at = 0.0
    for number in range(count):
        gap = rng.expovariate(count / DAY)
        at += gap
        ((low, high),) = rng.choices(rows, percents)
        read = int(block * math.exp(rng.uniform(math.log(low), math.log(high))))
        shuffled = int(read * rng.uniform(0, 0.8)) if rng.random() < 2 / 3 else 0
        written = int(read * rng.uniform(0, 0.6))
        yield f"job{number}\t{at:.1f}\t{gap:.1f}\t{read}\t{shuffled}\t{written}\n"


def describe(jobs: Sequence[Job], cluster: Cluster) -> None:
    """The total work, and the fraction of the slots' time that it takes."""
    work = sum(job.work or 0.0 for job in jobs)
    slots = sum(cluster.capacity.values())
    span = max(job.arrival for job in jobs)
    print(f"{len(jobs):,} jobs, {tasks_of(jobs):,} tasks in {span / 3600:.1f} hours")
    print(f"{slots:,} slots on {len(cluster.hosts):,} hosts; the work is {work:,.0f} s", end="")
    print(f", a load of {work / slots / span:.0%}" if span else "")


def replay(
    jobs: tuple[Job, ...], cluster: Cluster, epoch: float, waits: tuple[float, float]
) -> Outcome:
    """Simulate it; return the results."""
    objective = Objective()
    truth = Simulation(
        seed=1, noise=NOISE, remote_factor=REMOTE_FACTOR, rack_factor=RACK_FACTOR
    )
    header = Header(
        backend="simulated",
        scheduler={"name": "fair", "assigner": "delay", "epoch_seconds": epoch, "waits": waits},
        objective=asdict(objective),
        cluster=cluster,
        pools=(),
        jobs_expected=len(jobs),
        parameters={"slowdown": [1.0, RACK_FACTOR, REMOTE_FACTOR]},
    )
    meter = MetricsCollector(header)
    backend = SimulatedBackend(cluster, jobs, truth)
    state = State(cluster)
    run(make_scheduler(**header.scheduler), backend, state, meter)
    outcome = meter.outcome()
    assert outcome.metrics["jobs_done"] == len(jobs), "every job is done"
    return outcome


def show(outcome: Outcome, minutes: float, seconds: float, peer: float) -> None:
    """Speed by processor seconds, memory, and the metrics of the jobs."""
    metrics = outcome.metrics
    events = 2 * metrics["tasks_done"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    near = ", ".join(f"{part:.1%} {level}" for level, part in metrics["locality"].items())
    print(f"{minutes:.2f} minutes, of the processor {seconds / 60:.2f};", end=" ")
    print(f"{events / seconds:,.0f} task events/s", end="")
    print(f" = {events / seconds / peer:.2f} x SimPy's bare M/M/c loop ({peer:,.0f}/s)")
    print(f"peak memory {peak:.2f} GiB")
    print(f"locality {near}; slots used {metrics['utilisation']:.0%}")
    print(f"response: mean {metrics['response_mean']:,.1f} s,", end=" ")
    print(f"longest {metrics['response_max']:,.0f} s; all done at {metrics['makespan']:,.0f} s")


def tasks_of(jobs: Sequence[Job]) -> int:
    return sum(phase.tasks.count for job in jobs for phase in job.phases)


if __name__ == "__main__":
    main()
