"""Milliseconds of a turn while 10,000 jobs wait and 100 run, by scheduler and by what happens.

    scripts/bench deep_queue [--jobs 10000] [--only fair] [--events 200]

A job has one task, one in five has up to 20. They are in 1, 10 or 100 pools of random weights
on 100 slots. A session rests between allocations; here every event may lead to one. Events come
1 ms apart, and three kinds alternate: a job arrives, a task ends (others get its slot), a job
gets another priority, after which all slots are allocated again. Some jobs request memory or a
GPU, or have deadlines. Prints the median and the 99th percentile in processor time, by the
yardstick of the same run: milliseconds of the machine for which the goals are stated.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median, quantiles

from check import Result, serve
from measuring import LOOP, YARDSTICK_MS, yardstick, yardsticks
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
        pools: int,
        jobs: int = JOBS,
        *,
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
        job = Job(
            f"j{number}", (phase,), self.now, f"p{number % self.pools}", deadline=deadline
        )
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
        """This number of turns of each kind, in turn, by the yardstick."""
        gc.collect()
        gc.freeze()  # A collection would look at all jobs of the state.
        found: defaultdict[str, list[float]] = defaultdict(list)
        for number in range(count):
            if number % 10 == 0:
                beside = yardstick()
            for name in EVENTS:
                found[name].append(self.turn(getattr(self, name)) / beside)
        gc.unfreeze()
        return found


CASES: Mapping[str, Callable[[int], Queue]] = {
    **{
        f"{name}, pools: {pools}": partial(Queue, name, pools)
        for name in SCHEDULERS
        for pools in (1, 10, 100)
    },
    **{
        f"{name}, requests, pools: 10": partial(Queue, name, 10, requests=True)
        for name in ("fifo", "fair", "flex", "las")
    },
    "flex, deadlines, pools: 10": partial(Queue, "flex", 10, deadlines=True),
}


CAUSE = (
    "after a change of priority all slots are allocated again; under FAIR each job that waits"
    " then has another part of a slot, and another place in the order, which takes half of the"
    " time, and the shares a third; FLEX orders all jobs twice, for the slots and for those"
    " that come next, a third of its time"
)


DEADLINES_CAUSE = (
    "whether jobs are tardy depends on all of them: at each event five orders are packed, and"
    " the best one with two jobs exchanged, a quarter of the time; the new allocation of all"
    " phases is applied, a third, and their claims are collected, a fifth"
)


def check() -> Iterator[Result]:
    """Turns with 10,000 jobs that wait, also those that allocate all slots: at most 10 ms."""
    for what in ("fifo, pools: 10", "fair, pools: 10", "fair, pools: 1", "flex, pools: 10"):
        for name, found in CASES[what](JOBS).measured(30).items():
            yield Result(f"{what}: {name}", median(found), yardsticks(10), LOOP, cause=CAUSE)
    what = "flex, deadlines, pools: 10"
    for name, found in CASES[what](JOBS).measured(30).items():
        value, goal = median(found), yardsticks(10)
        yield Result(f"{what}: {name}", value, goal, LOOP, cause=DEADLINES_CAUSE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--events", type=int, default=200, help="of each kind")
    parser.add_argument("--only", default="", help="the name of a scheduler")
    options = parser.parse_args()
    print(f"{'ms, median and 99 %':32}" + "".join(f"{name:>18}" for name in EVENTS))
    for what, make in CASES.items():
        if options.only and not what.startswith(f"{options.only},"):
            continue
        cells = []
        for found in make(options.jobs).measured(options.events).values():
            shown = [YARDSTICK_MS * one for one in (median(found), quantiles(found, n=100)[-1])]
            cells.append(f"{shown[0]:9.2f} {shown[1]:8.2f}")
        print(f"{what:32}" + "".join(cells), flush=True)


if __name__ == "__main__":
    serve(main, check)
