"""What the page costs the scheduler: a snapshot each second while a page is open.

Seconds of a processor for one snapshot, with the jobs of one user, and without; and for a
decision of the scheduler after one task has ended, which a busy scheduler makes all the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler
from slotwise.service.page.page_source import OwnJob, StateReader

SIZES = ((100, 16), (1_000, 100), (10_000, 1_000))
"""Jobs and slots."""

RUNS = 41


def main() -> None:
    print(f"{'jobs':>7} {'slots':>6} {'snapshot ms':>12} {'with own':>9} {'decision':>9}")
    for jobs, slots in SIZES:
        taken = costs(jobs, slots)
        print(f"{jobs:7} {slots:6} {taken[0]:12.2f} {taken[1]:9.2f} {taken[2]:9.2f}")
    print("a snapshot a second: 10 ms are 1 % of a processor")


def costs(jobs: int, slots: int) -> list[float]:
    state = State(
        Cluster((Host("host", {"task": slots}, resources={"memory": "64 GiB"}),)),
        [Pool("a", weight=2), Pool("b"), Pool("c", slots_min={"task": slots // 10})],
    )
    for n in range(jobs):
        phase = Phase("p", Tasks(3, work=10.0))
        state.apply(JobArrived(0.0, Job(str(n), (phase,), pool="abc"[n % 3])))
    scheduler = make_scheduler("flex", objective=Objective("response"))

    def decide() -> None:
        while decisions := scheduler.decide(state):
            for one in decisions:
                state.apply(one)

    def end_one() -> None:
        now = state.now + 1.0
        launch = next(iter(state.ready("task")[0].launches.values()))[0]
        state.at(now)
        state.apply(TaskFinished(now, launch.phase, launch.task, launch.attempt, 10.0))
        decide()

    state.at(0.0)
    decide()
    reader = StateReader(state, 0.0)
    own = {"ann": [OwnJob(str(n), "command") for n in range(jobs // 2, jobs // 2 + 50)]}
    calls = (
        lambda: reader.snapshot({}, "flex"),
        lambda: reader.snapshot(own, "flex"),
        end_one,
    )
    return [1000 * seconds(call) for call in calls]


def seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        begun = time.thread_time()
        call()
        times.append(time.thread_time() - begun)
    return median(times)


if __name__ == "__main__":
    main()
