"""Decisions among 10,000 ready jobs whose tasks request memory, over those with slots only.

100 hosts with 10 slots and 64 GiB each. The tasks request nothing, one of five sizes from 1 to
30 GiB, or each job a size of its own; in the last two cases memory is what runs out. Prints the
time until the cluster is full, and the medians of the decisions after an end of a task and
after an arrival, with their ratios to slots only. After an end of a task nothing is allocated
again, so that slots only need next to no time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import count
from statistics import median

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

JOBS, HOSTS, POOLS, ENDS, ARRIVALS, GIB = 10_000, 100, 100, 100, 30, 2**30
SIZES = (1, 2, 4, 8, 30)
STEP = 1e-4
"""Seconds between events, so few that no epoch ends between them."""

Request = Callable[[random.Random], float]
REQUESTS: dict[str, Request] = {
    "slots only": lambda rng: 0,
    "five": lambda rng: rng.choice(SIZES),
    "different": lambda rng: rng.uniform(1, 30),
}


def main() -> None:
    print(f"{'scheduler':10} {'requests':11} {'fill, s':>9} {'task, ms':>9} {'job, ms':>9}")
    for name, pools in (("fifo", 1), ("fair", 1), ("fair", POOLS), ("flex", 1)):
        if pools > 1:
            print(f"{name}, in {pools} pools")
        base = None
        for what, request in REQUESTS.items():
            found = Run(name, pools, request).measured()
            base = base or found
            seconds = (found[0], 1e3 * found[1], 1e3 * found[2])
            print(f"{name:10} {what:11} " + " ".join(f"{one:9.3f}" for one in seconds))
            if base is not found:
                ratios = (one / other for one, other in zip(found, base, strict=True))
                print(f"{name:10} {'  ratio':11} " + " ".join(f"{r:9.2f}" for r in ratios))


class Run:
    """A cluster with this many ready jobs."""

    def __init__(self, name: str, pools: int, request: Request) -> None:
        hosts = [
            Host(f"h{n}", {"task": 10}, resources={"memory": 64 * GIB}) for n in range(HOSTS)
        ]
        self.state, self.scheduler = State(Cluster(tuple(hosts))), make_scheduler(name)
        self.rng, self.request = random.Random(1), request
        self.numbers, self.pools = count(), pools
        for _ in range(JOBS):
            self.arrive(0.0)

    def measured(self) -> tuple[float, float, float]:
        """The seconds until the cluster is full, after an end of a task, and an arrival."""
        full, running = self.decide(0.0)
        now, ends, arrivals = 0.0, [], []
        for launch in running[:ENDS]:
            now += STEP
            self.state.at(now)
            end = TaskFinished(now, launch.phase, launch.task, launch.attempt, 10.0)
            self.state.apply(end)
            ends.append(self.decide(now)[0])
        for _ in range(ARRIVALS):
            now += STEP
            self.state.at(now)
            self.arrive(now)
            arrivals.append(self.decide(now)[0])
        return full, median(ends), median(arrivals)

    def arrive(self, now: float) -> None:
        number = next(self.numbers)
        resources = {"memory": int(self.request(self.rng) * GIB)}
        phase, pool = (
            Phase("p", Tasks(50, 10.0), resources=resources),
            f"p{number % self.pools}",
        )
        self.state.apply(JobArrived(now, Job(f"j{number}", (phase,), now, pool)))

    def decide(self, now: float) -> tuple[float, list[Launch]]:
        """The seconds of all decisions at an instant, and the launches."""
        begun, launches = time.perf_counter(), []
        snapshot = self.state.at(now)
        while decisions := self.scheduler.decide(snapshot):
            for one in decisions:
                self.state.apply(one)
                launches += [one] if isinstance(one, Launch) else []
        return time.perf_counter() - begun, launches


if __name__ == "__main__":
    main()
