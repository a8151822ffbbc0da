"""Milliseconds of a turn while 10,000 jobs wait and 100 run, by scheduler and by what happens.

    scripts/bench deep_queue [--jobs 10000] [--only fair] [--events 200]

A job has one task, one in five has up to 20. They are in 1, 10 or 100 pools of random weights on
100 slots. Turns are made as a session makes them, but without rests between allocations: every
event leads to one. Events come 1 ms apart, so that some turns end an epoch. Four kinds alternate:
a job arrives, a task ends (its slot is given to another), a waiting job gets another priority,
and an epoch ends with nothing else. Some jobs request memory or a GPU, or have deadlines. Prints
the median and the 99th percentile of each kind in processor time.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median, quantiles

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import Event, JobArrived, JobChanged, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

JOBS, SLOTS, HOSTS, GIB = 10_000, 100, 10, 2**30
STEP = 1e-3
"""Seconds between events."""

EVENTS = "arrival", "end", "priority"
SCHEDULERS = ("fifo", "fair", "flex", "flex-on-fair", "las", "uwfq")


class Queue:
    """A cluster on which 100 tasks run while jobs wait, and the events that come.

    `requests`: most jobs request memory, some of them a GPU. `deadlines`: each job has one, and
    the objective is their tardiness.
    """

    def __init__(
        self,
        name: str,
        pools: int = 1,
        *,
        jobs: int = JOBS,
        requests: bool = False,
        deadlines: bool = False,
    ) -> None:
        self.rng = random.Random(1)
        self.pools, self.requests, self.deadlines = pools, requests, deadlines
        amounts = {"memory": 640 * GIB, "gpu": 2}
        hosts = [
            Host(f"h{n}", {"task": SLOTS // HOSTS}, resources=amounts) for n in range(HOSTS)
        ]
        weights = [self.rng.choice([1.0, 2.0, 5.0]) for _ in range(pools)]
        tree = [Pool(f"p{number}", weight) for number, weight in enumerate(weights)]
        self.state = State(Cluster(tuple(hosts)), tree)
        objective = Objective("tardiness") if deadlines else None
        self.scheduler = make_scheduler(name, objective=objective, adjusts=True)
        self.now, self.number = 0.0, 0
        self.running: list[Launch] = []
        self.arrived: list[str] = []
        self.state.at(self.now)
        for _ in range(jobs + SLOTS):
            self.state.apply(self.arrival())
        self.decide()

    def arrival(self) -> Event:
        """A job arrives."""
        rng, number = self.rng, self.number
        self.number += 1
        count = 1 if rng.random() < 0.8 else rng.randint(2, 20)
        resources = {}
        if self.requests:
            resources = {"memory": rng.choice([1, 2, 4, 8, 30]) * GIB}
            resources |= {"gpu": 1} if rng.random() < 0.1 else {}
        phase = Phase("p", Tasks(count, rng.uniform(1, 600)), resources=resources)
        deadline = self.now + rng.uniform(10, 10_000) if self.deadlines else None
        job = Job(f"j{number}", (phase,), self.now, f"p{number % self.pools}", deadline=deadline)
        self.arrived.append(job.id)
        return JobArrived(self.now, job)

    def end(self) -> Event:
        """A task ends, about as soon as was stated."""
        launch = self.running.pop(self.rng.randrange(len(self.running)))
        seconds = self.state.phase(launch.phase).work.expected(launch.task)
        return TaskFinished(self.now, launch.phase, launch.task, launch.attempt, seconds)

    def priority(self) -> Event:
        """A job gets another priority."""
        while not (phases := self.state.phases_of(self.rng.choice(self.arrived))):
            pass  # It is over.
        job, priority = phases[0].job, self.rng.choice(["low", "normal", "high"])
        return JobChanged(self.now, job.id, priority, job.weight, job.pool, job.deadline)

    def turn(self, event: Callable[[], Event]) -> float:
        """The processor seconds of the turn after an event."""
        self.now += STEP
        happened = event()
        begun = time.process_time()
        self.state.at(self.now)
        self.state.apply(happened)
        self.decide()
        return time.process_time() - begun

    def decide(self) -> None:
        """All decisions of a turn, applied."""
        while decisions := self.scheduler.decide(self.state):
            for one in decisions:
                self.state.apply(one)
                if isinstance(one, Launch):
                    self.running.append(one)

    def measured(self, count: int) -> Mapping[str, Sequence[float]]:
        """The seconds of this number of turns of each kind, in turn."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(count):
            for name in EVENTS:
                found[name].append(self.turn(getattr(self, name)))
        return found


def cases(only: str = "") -> Iterator[tuple[str, Callable[[int], Queue]]]:
    """What is measured."""
    for name in SCHEDULERS:
        if only and name != only:
            continue
        for pools in (1, 10, 100):
            yield f"{name}, pools: {pools}", lambda jobs, n=name, p=pools: Queue(n, p, jobs=jobs)
    for name in ("fifo", "fair", "flex", "las"):
        if only and name != only:
            continue
        what = f"{name}, requests, pools: 10"
        yield what, lambda jobs, n=name: Queue(n, 10, jobs=jobs, requests=True)
    if not only or only == "flex":
        yield "flex, deadlines, pools: 10", lambda jobs: Queue("flex", 10, jobs=jobs, deadlines=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--events", type=int, default=200, help="of each kind")
    parser.add_argument("--only", default="", help="the name of a scheduler")
    options = parser.parse_args()
    print(f"{'ms, median and 99 %':32}" + "".join(f"{name:>18}" for name in EVENTS))
    for what, make in cases(options.only):
        queue = make(options.jobs)
        gc.collect()
        gc.freeze()
        cells = []
        for seconds in queue.measured(options.events).values():
            high = quantiles(seconds, n=100)[-1]
            cells.append(f"{1e3 * median(seconds):9.2f} {1e3 * high:8.2f}")
        print(f"{what:32}" + "".join(cells), flush=True)
        gc.unfreeze()


if __name__ == "__main__":
    main()
