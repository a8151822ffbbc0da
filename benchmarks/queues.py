"""DMRS at run time: the cost of a launch compared with FAIR, and the benefit of plans.

Jobs of maps and reduces arrive in two groups, on hosts half of which have half the speed; tasks
take longer or shorter than expected, and some hosts are slower than stated. All schedulers
have the same tasks. Times are processor times of the whole loop, divided by the launches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from check import Result, serve
from experiments.endings import Endings
from measuring import LOOP, in_turn, ratio, yardstick, yardsticks
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Enqueue
from slotwise.core.events import Event
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

SIZES = ((20, 16, 20), (50, 40, 50))
NAMES = ("fair", "flex", "dmrs", "dmrs-best", "identical-machine")
NOISE = 0.3


def main() -> None:
    print(f"{'jobs':>5} {'maps':>5} {'hosts':>6} {'scheduler':>18} {'ms a launch':>12}", end="")
    print(f" {'over fair':>10} {'plans':>6} {'weighted completion over dmrs':>30}")
    for jobs, maps, hosts in SIZES:
        given = draw(jobs, maps, hosts, seed=jobs)
        rows = [(name, *simulated(name, *given)) for name in NAMES]
        fair = rows[0][1]
        dmrs = next(value for name, _, _, value in rows if name == "dmrs")
        for name, seconds, plans, value in rows:
            line = f"{jobs:5} {maps:5} {hosts:6} {name:>18} {seconds * 1e3:12.3f}"
            print(f"{line} {seconds / fair:10.1f} {plans:6} {value / dmrs:30.3f}", flush=True)


def check() -> Iterator[Result]:
    """A launch of DMRS at 50 hosts in 0.3 and 1 ms, by the launches of FAIR."""
    given = draw(*SIZES[1], seed=SIZES[1][0])
    ways = {n: lambda n=n: simulated(n, *given)[0] for n in ("fair", "dmrs", "dmrs-best")}
    found = in_turn({**ways, "yardstick": yardstick}, 3)
    for name, goal in (("dmrs", 0.3), ("dmrs-best", 1.0)):
        value = 1_000 * ratio(found, name, "yardstick")
        title = f"1,000 launches of {name}"
        yield Result(title, value, 1_000 * yardsticks(goal), LOOP, cause=LAUNCH)


LAUNCH = (
    "about a third of a launch corrects the durations of the tasks that are left"
    " (docs/algorithms/dmrs.md)"
)


def draw(jobs: int, maps: int, hosts: int, seed: int) -> tuple[list[Job], Cluster, Cluster]:
    """Jobs, the cluster as stated to schedulers, and the true one."""
    rng = np.random.default_rng(seed)

    def phase(name: str, count: int, seconds: float, *after: str) -> Phase:
        work = tuple((rng.uniform(0.5, 1.5, count) * seconds).tolist())
        return Phase(name, Tasks(count, work), after=frozenset(after))

    given = [
        Job(
            f"j{number}",
            (phase("map", maps, 60.0), phase("reduce", 4, 120.0, "map")),
            arrival=(number % 2) * 60.0,
            weight=float(rng.integers(1, 6)),
        )
        for number in range(jobs)
    ]
    stated = [Host(f"h{h}", {"task": 1}, speed=0.5 if h % 2 else 1.0) for h in range(hosts)]
    true = [
        replace(one, speed=one.speed / (4 if h % 8 == 0 else 1)) for h, one in enumerate(stated)
    ]
    return given, Cluster(tuple(stated)), Cluster(tuple(true))


def simulated(
    name: str, jobs: list[Job], stated: Cluster, true: Cluster
) -> tuple[float, int, float]:
    """Seconds a launch, the number of plans, and the sum of weighted completions."""
    launches = sum(phase.tasks.count for job in jobs for phase in job.phases)
    plans = 0

    def count(now: float, events: list[Event], decisions: list[Decision]) -> None:
        nonlocal plans
        plans += sum(isinstance(decision, Enqueue) for decision in decisions)
        endings(now, events, decisions)

    state = State(stated)
    endings = Endings(state)
    backend = SimulatedBackend(true, jobs, Simulation(noise=NOISE))
    begun = time.process_time()
    run(make_scheduler(name), backend, state, count)
    seconds = time.process_time() - begun
    return seconds / launches, plans, sum(j.weight * endings.completed[j.id] for j in jobs)


if __name__ == "__main__":
    serve(main, check)
