"""Decisions among 10,000 ready jobs whose tasks request memory, over those with slots only.

100 hosts with 10 slots and 64 GiB each. The tasks request nothing, one of five sizes from 1 to
30 GiB, or each job a size of its own; in the last two cases memory is what runs out. Prints the
time until the cluster is full, and the medians of the decisions after an end of a task and
after an arrival, with their ratios to slots only. The three are measured in turn, in processor
time. With slots only, after an end of a task nothing is allocated again, and the next task of
the same phase takes the slot: that needs next to no time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from statistics import median

from check import Result, serve
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


SCHEDULERS = (("fifo", 1), ("fair", 1), ("fair", POOLS), ("flex", 1))
GOAL = 1.5
"""Decisions about tasks with requests take at most so many times as long as with slots only."""

CAUSES = {
    "task": (
        "with slots only the phase of the ended task takes the slot again, which is known at"
        " once; with requests the phases before it are asked whether they fit, the end is"
        " followed by two or three decisions of which the last finds that nothing more fits,"
        " and under FAIR a wait begins, for which the hosts are compared"
    ),
    "job": (
        "the amounts of all requests are divided by the totals, and the claims are scaled by"
        " them; in 100 pools the shares of all jobs change, with slots only those of one pool,"
        " and all phases get new places in the order, which takes 60 % of the time"
    ),
}


def main() -> None:
    print(f"{'scheduler':10} {'requests':11} {'fill, s':>9} {'task, ms':>9} {'job, ms':>9}")
    for name, pools in SCHEDULERS:
        if pools > 1:
            print(f"{name}, in {pools} pools")
        found = measured(name, pools)
        base = found["slots only"]
        for what, of_this in found.items():
            seconds = (of_this[0], 1e3 * of_this[1], 1e3 * of_this[2])
            print(f"{name:10} {what:11} " + " ".join(f"{one:9.3f}" for one in seconds))
            if of_this is not base:
                ratios = (one / other for one, other in zip(of_this, base, strict=True))
                print(f"{name:10} {'  ratio':11} " + " ".join(f"{r:9.2f}" for r in ratios))


def check() -> Iterator[Result]:
    """The ratios after an end of a task and after an arrival."""
    for name, pools in SCHEDULERS:
        found = measured(name, pools)
        base = found.pop("slots only")
        for what, of_this in found.items():
            for place, event in enumerate(CAUSES, 1):
                label, value = (
                    f"{name}, pools: {pools}: {what}, {event}",
                    of_this[place] / base[place],
                )
                yield Result(label, value, GOAL, "x slots only", cause=CAUSES[event])


def measured(name: str, pools: int) -> Mapping[str, tuple[float, float, float]]:
    """The seconds of each case until the cluster is full, after an end, and an arrival."""
    runs = {what: Run(name, pools, request) for what, request in REQUESTS.items()}
    for act, times in (("fill", 1), ("end", ENDS), ("arrival", ARRIVALS)):
        for _ in range(times):
            for run in runs.values():
                getattr(run, act)()
    return {what: run.medians() for what, run in runs.items()}


class Run:
    """A cluster with this many ready jobs."""

    def __init__(self, name: str, pools: int, request: Request) -> None:
        hosts = [
            Host(f"h{n}", {"task": 10}, resources={"memory": 64 * GIB}) for n in range(HOSTS)
        ]
        self.state, self.scheduler = State(Cluster(tuple(hosts))), make_scheduler(name)
        self.rng, self.request = random.Random(1), request
        self.numbers, self.pools, self.now = count(), pools, 0.0
        self.launches: list[Launch] = []
        self.seconds: dict[str, list[float]] = {"fill": [], "end": [], "arrival": []}
        for _ in range(JOBS):
            self.arrive()

    def fill(self) -> None:
        """Launch until the cluster is full."""
        self.seconds["fill"] = [self.decide()]
        self.running = iter(self.launches.copy())

    def end(self) -> None:
        """The next of the first tasks ends."""
        launch = next(self.running)
        self.later()
        end = TaskFinished(self.now, launch.phase, launch.task, launch.attempt, 10.0)
        self.state.apply(end)
        self.seconds["end"].append(self.decide())

    def arrival(self) -> None:
        """A job arrives."""
        self.later()
        self.arrive()
        self.seconds["arrival"].append(self.decide())

    def medians(self) -> tuple[float, float, float]:
        """The seconds until the cluster is full, after an end of a task, and an arrival."""
        fill, end, arrival = (median(found) for found in self.seconds.values())
        return fill, end, arrival

    def later(self) -> None:
        """The next event happens."""
        self.now += STEP
        self.state.at(self.now)

    def arrive(self) -> None:
        number = next(self.numbers)
        resources = {"memory": int(self.request(self.rng) * GIB)}
        phase, pool = (
            Phase("p", Tasks(50, 10.0), resources=resources),
            f"p{number % self.pools}",
        )
        self.state.apply(JobArrived(self.now, Job(f"j{number}", (phase,), self.now, pool)))

    def decide(self) -> float:
        """The processor seconds of all decisions at an instant."""
        begun = time.process_time()
        snapshot = self.state.at(self.now)
        while decisions := self.scheduler.decide(snapshot):
            for one in decisions:
                self.state.apply(one)
                self.launches += [one] if isinstance(one, Launch) else []
        return time.process_time() - begun


if __name__ == "__main__":
    serve(main, check)
