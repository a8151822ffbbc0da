"""Decisions among 10,000 ready jobs whose tasks request memory, over those with slots only.

100 hosts with 10 slots and 64 GiB each. The tasks request nothing, one of five sizes from 1 to
30 GiB, or each job a size of its own; in the last two cases memory is what runs out. Prints the
time until the cluster is full, and the medians of the decisions after an end of a task and
after the end of a job and the arrival of another one, with their ratios to slots only. After an
end of a task nothing is allocated again, so that slots only need next to no time.
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

JOBS, HOSTS, ENDS, GIB = 10_000, 100, 100, 2**30
SIZES = (1, 2, 4, 8, 30)
STEP = 1e-4
"""Seconds between ends, so few that no epoch ends between them."""

Request = Callable[[random.Random], float]
REQUESTS: dict[str, Request] = {
    "slots only": lambda rng: 0,
    "five": lambda rng: rng.choice(SIZES),
    "different": lambda rng: rng.uniform(1, 30),
}


def main() -> None:
    print(f"{'scheduler':10} {'requests':11} {'fill, s':>9} {'task, ms':>9} {'job, ms':>9}")
    for name in ("fifo", "fair", "flex"):
        base = None
        for what, request in REQUESTS.items():
            found = Run(name, request).measured()
            base = base or found
            seconds = (found[0], 1e3 * found[1], 1e3 * found[2])
            print(f"{name:10} {what:11} " + " ".join(f"{one:9.3f}" for one in seconds))
            if base is not found:
                ratios = (one / other for one, other in zip(found, base, strict=True))
                print(f"{name:10} {'  ratio':11} " + " ".join(f"{r:9.2f}" for r in ratios))


class Run:
    """A full cluster, with this many ready jobs: one in 20 of a single task."""

    def __init__(self, name: str, request: Request) -> None:
        hosts = [
            Host(f"h{n}", {"task": 10}, resources={"memory": 64 * GIB}) for n in range(HOSTS)
        ]
        self.state, self.scheduler = State(Cluster(tuple(hosts))), make_scheduler(name)
        self.rng, self.request, self.numbers = random.Random(1), request, count()
        for _ in range(JOBS):
            self.arrive(0.0)

    def measured(self) -> tuple[float, float, float]:
        """The seconds until the cluster is full, after an end of a task, and of a job."""
        full, running = self.decide(0.0)
        of_one = {one.phase for one in running if one.phase.phase == "one"}
        tasks = [one for one in running if one.phase not in of_one][:ENDS]
        jobs = [one for one in running if one.phase in of_one][:ENDS]
        now = 0.0
        seconds: dict[str, list[float]] = {"task": [], "job": []}
        for what, launches in (("task", tasks), ("job", jobs)):
            for launch in launches:
                now += STEP
                self.state.at(now)
                end = TaskFinished(now, launch.phase, launch.task, launch.attempt, 10.0)
                self.state.apply(end)
                if what == "job":
                    self.arrive(now)
                seconds[what].append(self.decide(now)[0])
        return full, median(seconds["task"]), median(seconds["job"])

    def arrive(self, now: float) -> None:
        number = next(self.numbers)
        name, tasks = ("one", 1) if number % 20 == 0 else ("p", 50)
        resources = {"memory": int(self.request(self.rng) * GIB)}
        phase = Phase(name, Tasks(tasks, 10.0), resources=resources)
        self.state.apply(JobArrived(now, Job(f"j{number}", (phase,), arrival=now)))

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
