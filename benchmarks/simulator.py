"""Simulated task events a second, beside SimPy's bare M/M/c loop with as many servers.

Ours decides every launch with a real scheduler (FAIR and FLEX, both with delay scheduling over
blocks with three replicas) on 1,000 slots and 200 jobs; SimPy's customers only queue, hold a
server and leave. An event is a launch or an end of a task, an arrival at or a departure from a
server. The best of several interleaved rounds counts for each, since machines are shared.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

import simpy

from slotwise.model.cluster import Cluster, Host
from slotwise.model.decision import Decision
from slotwise.model.event import Event
from slotwise.model.job import Job, Phase, Tasks
from slotwise.runtime.loop import run
from slotwise.runtime.simulated.world import SimulatedWorld, Simulation
from slotwise.runtime.state import State
from slotwise.scheduler import make_scheduler
from slotwise.workload.placement import place_blocks

SLOTS, SLOTS_A_HOST, HOSTS_A_RACK = 1000, 8, 20
TASK_SECONDS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=300, help="mean number of tasks of a job")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cluster, jobs = workload(options.jobs, options.tasks)
    tasks = sum(phase.tasks.count for job in jobs for phase in job.phases)
    print(f"{SLOTS} slots, {len(jobs)} jobs, {tasks} tasks of {TASK_SECONDS:.0f} s on average")
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        keep(best, "SimPy M/M/c", simpy_rate(tasks))
        for name in ("fair", "flex"):
            for epoch in (0.5, 5.0):
                title = f"{name} + delay, epoch {epoch} s"
                keep(best, title, slotwise_rate(cluster, jobs, name, epoch))
    peer = best["SimPy M/M/c"]
    for title, rate in best.items():
        print(f"{title:28} {rate:10,.0f} events/s   {rate / peer:5.2f} x SimPy")


def workload(count: int, mean_tasks: int) -> tuple[Cluster, Sequence[Job]]:
    """Jobs of exponentially distributed sizes, all there at 0, each task with three homes."""
    rng = random.Random(1)
    hosts = tuple(
        Host(f"h{number:03}", {"task": SLOTS_A_HOST}, rack=f"r{number // HOSTS_A_RACK}")
        for number in range(SLOTS // SLOTS_A_HOST)
    )
    jobs = tuple(
        Job(
            f"job{number}",
            (Phase("map", Tasks(1 + int(rng.expovariate(1 / mean_tasks)), TASK_SECONDS)),),
        )
        for number in range(count)
    )
    cluster = Cluster(hosts)
    return cluster, place_blocks(jobs, cluster, replicas=3, seed=1)


def slotwise_rate(cluster: Cluster, jobs: Sequence[Job], name: str, epoch: float) -> float:
    simulation = Simulation(seed=1, noise=0.5, remote_factor=1.5)
    world = SimulatedWorld(cluster, jobs, simulation)
    state = State(cluster, jobs_expected=len(jobs))
    scheduler = make_scheduler(name, "delay", epoch_seconds=epoch)
    begun = time.perf_counter()
    run(scheduler, world, state, forget)
    seconds = time.perf_counter() - begun
    assert len(state.completed) == len(jobs)
    return 2 * sum(phase.tasks.count for job in jobs for phase in job.phases) / seconds


def forget(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
    """A record that keeps nothing, as SimPy keeps nothing."""


def simpy_rate(customers: int) -> float:
    """M/M/c at 98 % load."""
    rng = random.Random(1)
    environment = simpy.Environment()
    servers = simpy.Resource(environment, capacity=SLOTS)

    def customer():  # type: ignore[no-untyped-def]
        with servers.request() as request:
            yield request
            yield environment.timeout(rng.expovariate(1 / TASK_SECONDS))

    def source():  # type: ignore[no-untyped-def]
        for _ in range(customers):
            yield environment.timeout(rng.expovariate(0.98 * SLOTS / TASK_SECONDS))
            environment.process(customer())

    environment.process(source())
    begun = time.perf_counter()
    environment.run()
    return 2 * customers / (time.perf_counter() - begun)


def keep(best: dict[str, float], title: str, rate: float) -> None:
    best[title] = max(best.get(title, 0.0), rate)


if __name__ == "__main__":
    main()
