"""Decisions among 10,000 ready jobs whose tasks request memory, over those with slots only.

100 hosts with 10 slots and 64 GiB each; tasks of five sizes from 1 to 30 GiB, so that memory is
what runs out. Prints the time until the cluster is full, and the mean time of the decisions
after an end of a task, with requests, with slots only, and their ratio.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import fmean

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

JOBS, HOSTS, ENDS, GIB = 10_000, 100, 300, 2**30
SIZES = (1, 2, 4, 8, 30)


def main() -> None:
    print(f"{'scheduler':10} {'':11} {'fill, s':>8} {'turn, ms':>9}")
    for name in ("fifo", "fair", "flex"):
        plain, full = measured(name, [0]), measured(name, SIZES)
        for what, one in (("slots only", plain), ("memory", full)):
            print(f"{name:10} {what:11} {one[0]:8.2f} {1e3 * one[1]:9.2f}")
        ratios = (full[part] / plain[part] for part in (0, 1))
        print(f"{name:10} {'ratio':11} " + " ".join(f"{ratio:8.2f}" for ratio in ratios))


def measured(name: str, sizes: Sequence[int]) -> tuple[float, float]:
    """The seconds until the cluster is full, and of the decisions after each end of a task."""
    rng = random.Random(1)
    hosts = (Host(f"h{n}", {"task": 10}, resources={"memory": 64 * GIB}) for n in range(HOSTS))
    state, scheduler = State(Cluster(tuple(hosts))), make_scheduler(name)
    for number in range(JOBS):
        resources = {"memory": rng.choice(sizes) * GIB}
        phase = Phase("p", Tasks(50, 10.0), resources=resources)
        state.apply(JobArrived(0.0, Job(f"j{number}", (phase,))))

    def decide(now: float) -> tuple[float, list[Launch]]:
        begun, launches = time.perf_counter(), []
        snapshot = state.at(now)
        while decisions := scheduler.decide(snapshot):
            for one in decisions:
                state.apply(one)
                launches += [one] if isinstance(one, Launch) else []
        return time.perf_counter() - begun, launches

    full, running = decide(0.0)
    turns = []
    for number, launch in enumerate(running[:ENDS], 1):
        now = number / 100
        state.at(now)
        end = TaskFinished(now, launch.phase, launch.task, launch.attempt, 10.0)
        state.apply(end)
        turns.append(decide(now)[0])
    return full, fmean(turns)


if __name__ == "__main__":
    main()
