"""Milliseconds of a decision on the slots with thousands of ready jobs, and of its parts.

    scripts/bench decisions [--jobs 10000]

Jobs of one phase, or of a map and a reduce that waits for it, have arrived; no task has ended
yet, or those of 30 jobs took other times than stated, so that all estimates are corrected. The
first decision estimates all phases; the next one, at the same instant, finds most estimates
made. Processor time, the best of several.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence

from check import Result, serve
from measuring import LOOP, in_yardsticks, yardsticks
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, Launch, Locality, Reallocate
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

SLOTS, ENDED, TIMES = 100, 30, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    count = parser.parse_args().jobs
    print(f"{count:,} ready jobs, ms{'first':>30} {'next':>8}")
    for phases in (1, 2):
        for ended in (0, ENDED):
            for name in ("fair", "flex"):
                first, later = milliseconds(name, count, phases, ended)
                what = f"{name}, phases of a job: {phases}, ended: {ended}"
                print(f"{what:40} {first:8.1f} {later:8.1f}", flush=True)


CLAIMS = (
    "reading the claims of all ready phases from the state takes three quarters of FAIR's"
    " decision, and the water-line a sixth; FLEX also looks at the estimates of all phases of"
    " the jobs, and orders them"
)


def check() -> Iterator[Result]:
    """A decision with 10,000 live jobs, of which most estimates are made: at most 10 ms."""
    for phases in (1, 2):
        state = with_jobs(10_000, phases)
        gc.collect()
        gc.freeze()  # A collection would look at all jobs of the state.
        for name in ("fair", "flex"):
            decide = make_scheduler(name).decide
            seconds_of(decide, state)
            value = in_yardsticks(lambda d=decide, s=state: seconds_of(d, s))
            title = f"{name}, 10,000 live jobs, phases of a job: {phases}"
            yield Result(title, value, yardsticks(10), LOOP, cause=CLAIMS)


def milliseconds(name: str, count: int, phases: int, ended: int) -> tuple[float, float]:
    """The time of the first decision, and of a later one at the same instant."""
    decide = make_scheduler(name).decide
    first, later = [], []
    for _ in range(TIMES):
        state = with_jobs(count, phases)
        end_tasks(state, ended)
        first.append(seconds_of(decide, state))
        later.append(seconds_of(decide, state))
    return min(first) * 1e3, min(later) * 1e3


def seconds_of(decide: Callable[[Snapshot], Sequence[Decision]], state: State) -> float:
    begun = time.process_time()
    (decision,) = decide(state)
    seconds = time.process_time() - begun
    assert isinstance(decision, Reallocate)
    return seconds


def with_jobs(count: int, phases: int) -> State:
    """A state in which this number of jobs of random work and weight have arrived."""
    rng, state = random.Random(1), State(Cluster.of_slots(SLOTS))
    state.at(0.0)
    for number in range(count):
        made = [Phase("map", Tasks(rng.randint(1, 20), rng.uniform(1, 600)))]
        if phases > 1:
            work = Tasks(rng.randint(1, 5), rng.uniform(1, 600))
            made.append(Phase("reduce", work, after=frozenset({"map"})))
        weight = rng.choice([1.0, 2.0, 5.0])
        state.apply(JobArrived(0.0, Job(f"j{number}", tuple(made), weight=weight)))
    return state


def end_tasks(state: State, count: int) -> None:
    """The first tasks of some jobs take 5 s, whatever was stated."""
    for number in range(count):
        host = next(iter(state.free("task")))
        phase = PhaseId(f"j{number}", "map")
        state.apply(Launch(phase, 0, 1, host, Locality.NODE))
    state.at(5.0)
    for number in range(count):
        state.apply(TaskFinished(5.0, PhaseId(f"j{number}", "map"), 0, 1, 5.0))


if __name__ == "__main__":
    serve(main, check)
