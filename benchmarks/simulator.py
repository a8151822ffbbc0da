"""Simulated task events a second, compared with SimPy's bare M/M/c loop of equal size.

Ours decides every launch with a real scheduler (FAIR and FLEX with delay scheduling over blocks
with three replicas; FAIR also over 20 pools in 4 parents) for 200 jobs on 1,000 and on 10,000
slots. SimPy's customers only queue, hold a server and leave; for each that leaves, SimPy
searches the list of all that are served. An event is a launch or an end of a task, an arrival
at or a departure from a server. Times are processor seconds, the best of several interleaved
rounds, since machines are shared.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import simpy

from check import Result, serve
from measuring import in_turn, ratio
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision
from slotwise.core.events import Event
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.placement import place_blocks
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler
from slotwise.workload.swim import racked_cluster

SLOTS_A_HOST, HOSTS_A_RACK = 8, 20
TASK_SECONDS = 10.0
PARENTS, POOLS = 4, 20
EPOCHS = (0.5, 5.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--waves", type=int, default=40, help="mean number of tasks of a slot")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for slots in options.slots:
        compare(slots, options.jobs, options.waves * slots // options.jobs, options.rounds)


COST = (
    "a simulated task takes 228,000 to 442,000 machine instructions, because the scheduler"
    " decides about it, a customer of SimPy's queue 180,000; compiling gains at most a factor"
    " of 1.6 (docs/decisions/0036-interpreted-core.md)"
)


def check() -> Iterator[Result]:
    """Events a second by those of SimPy, with epochs of 5 s."""
    for slots, waves in ((1_000, 12), (10_000, 4)):
        cluster, jobs = workload(slots, 200, waves * slots // 200)
        nested = tuple(replace(job, pool=f"pool{n % POOLS}") for n, job in enumerate(jobs))
        customers = sum(phase.tasks.count for job in jobs for phase in job.phases)
        ways = {
            "SimPy": partial(simpy_rate, customers, slots),
            "fair": partial(slotwise_rate, cluster, jobs, "fair", 5.0),
            "flex": partial(slotwise_rate, cluster, jobs, "flex", 5.0),
            f"fair, {POOLS} pools": partial(
                slotwise_rate, cluster, nested, "fair", 5.0, pools()
            ),
        }
        found = in_turn(ways, 3 if slots == 1_000 else 1)
        for name in list(ways)[1:]:
            value = ratio(found, name, "SimPy")
            title = f"{name} and delay, {slots:,} slots"
            yield Result(title, value, 1.0, "x SimPy's events a second", "higher", cause=COST)


def compare(slots: int, count: int, mean_tasks: int, rounds: int) -> None:
    """Run all on a cluster of this number of slots; print the rates relative to SimPy's."""
    cluster, jobs = workload(slots, count, mean_tasks)
    slots = sum(cluster.capacity.values())
    tasks = sum(phase.tasks.count for job in jobs for phase in job.phases)
    print(f"{slots:,} slots, {count} jobs, {tasks:,} tasks of {TASK_SECONDS:.0f} s on average")
    nested = tuple(
        replace(job, pool=f"pool{number % POOLS}") for number, job in enumerate(jobs)
    )
    best: dict[str, float] = {}
    for _ in range(rounds):
        keep(best, "SimPy M/M/c", simpy_rate(min(tasks, 100_000), slots))
        for epoch in EPOCHS:
            for name in ("fair", "flex"):
                title = f"{name} + delay, epoch {epoch} s"
                keep(best, title, slotwise_rate(cluster, jobs, name, epoch))
            title = f"fair + delay, {POOLS} pools in {PARENTS}, epoch {epoch} s"
            keep(best, title, slotwise_rate(cluster, nested, "fair", epoch, pools()))
    peer = best["SimPy M/M/c"]
    for title, rate in best.items():
        print(f"{title:44} {rate:10,.0f} events/s   {rate / peer:5.2f} x SimPy")


def workload(slots: int, count: int, mean_tasks: int) -> tuple[Cluster, tuple[Job, ...]]:
    """Jobs of exponentially distributed sizes, all present at 0, each task with three homes."""
    rng = random.Random(1)
    cluster = racked_cluster(
        slots // SLOTS_A_HOST, slots=SLOTS_A_HOST, hosts_a_rack=HOSTS_A_RACK
    )
    jobs = tuple(
        Job(
            f"job{number}",
            (Phase("map", Tasks(1 + int(rng.expovariate(1 / mean_tasks)), TASK_SECONDS)),),
        )
        for number in range(count)
    )
    return cluster, place_blocks(jobs, cluster, replicas=3, seed=1)


def pools() -> tuple[Pool, ...]:
    """Pools of weights 1, 2 and 3 in parents of equal weight."""
    return (
        *(Pool(f"parent{number}") for number in range(PARENTS)),
        *(
            Pool(f"pool{number}", weight=1 + number % 3, parent=f"parent{number % PARENTS}")
            for number in range(POOLS)
        ),
    )


def slotwise_rate(
    cluster: Cluster, jobs: Sequence[Job], name: str, epoch: float, pools: Sequence[Pool] = ()
) -> float:
    """Events a second of a whole run."""
    simulation = Simulation(seed=1, noise=0.5, remote_factor=1.5)
    backend = SimulatedBackend(cluster, jobs, simulation)
    state = State(cluster, pools)
    scheduler = make_scheduler(name, "delay", epoch_seconds=epoch)
    begun = time.process_time()
    run(scheduler, backend, state, forget)
    seconds = time.process_time() - begun
    assert state.is_done
    return 2 * sum(phase.tasks.count for job in jobs for phase in job.phases) / seconds


def forget(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
    """A record that keeps nothing, like SimPy."""


def simpy_rate(customers: int, servers: int) -> float:
    """Events a second of M/M/c at 98 % load."""
    rng = random.Random(1)
    environment = simpy.Environment()
    resource = simpy.Resource(environment, capacity=servers)

    def customer():  # type: ignore[no-untyped-def]
        with resource.request() as request:
            yield request
            yield environment.timeout(rng.expovariate(1 / TASK_SECONDS))

    def source():  # type: ignore[no-untyped-def]
        for _ in range(customers):
            yield environment.timeout(rng.expovariate(0.98 * servers / TASK_SECONDS))
            environment.process(customer())

    environment.process(source())
    begun = time.process_time()
    environment.run()
    return 2 * customers / (time.process_time() - begun)


def keep(best: dict[str, float], title: str, rate: float) -> None:
    best[title] = max(best.get(title, 0.0), rate)


if __name__ == "__main__":
    serve(main, check)
