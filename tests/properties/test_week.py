"""A week at a load of 0.9, as an open session sees it: jobs come, end, and are forgotten.

By default a day has five minutes; with `--slow` it has 24 hours.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random

import pytest

from core.test_memory import size_of
from slotwise.core import phase_work, sizing, spare
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Launch, Preempt
from slotwise.core.events import Event, JobArrived, JobCancelled, JobChanged, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import turn
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

DAYS, SLOTS, LOAD = 7, 8, 0.9
DAY, MEAN = examples(300, slow=86_400), examples(30, slow=300)
"""The seconds of a day, and the mean of those of a task."""

KEPT = 15
"""How many names of ended jobs and entries of other tables are kept; each day has more."""

CLUSTER = Cluster((Host("h", {"task": SLOTS}, resources={"memory": 100}),))
POOLS = (
    Pool("a"),
    Pool("b", weight=3.0),
    Pool("c", jobs_max=4),
    Pool("d", jobs_max_per_user=3),
)


class Days:
    """The clock, and the events to come: a backend without files or processes."""

    def __init__(self) -> None:
        self.now, self.random = 0.0, Random(1)
        self.number, self._pushed = 0, count()
        self._events: list[tuple[float, int, Event]] = []

    def begin_day(self) -> None:
        """Let jobs arrive for a day from now on."""
        at, end = self.now, self.now + DAY
        tasks = 1.6 + 0.25  # Of a job, in the mean: see `_job`.
        while (at := at + self.random.expovariate(LOAD * SLOTS / MEAN / tasks)) < end:
            job = self._job(at)
            self._push(at, JobArrived(at, job))
            if self.random.random() < 0.1:
                later = at + self.random.uniform(0, 5 * MEAN)
                change = JobChanged(later, job.id, "high", 2.0, "a", None)
                self._push(later, self.random.choice([change, JobCancelled(later, job.id)]))

    def _job(self, at: float) -> Job:
        random, self.number = self.random, self.number + 1
        work = random.choice([None, float(MEAN)])
        memory = {"memory": random.choice([5, 10])} if random.random() < 0.3 else {}
        phases = [Phase("map", Tasks(random.choice([1, 1, 1, 1, 4]), work), resources=memory)]
        if random.random() < 0.25:
            phases.append(Phase("reduce", Tasks(1, work), after="map"))
        program = random.choice(["", "train", f"once-{self.number}"])
        pool = random.choice("abcd")
        name = f"job-{self.number}"
        return Job(name, tuple(phases), at, pool, program=program, user=f"user-{self.number}")

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """A task ends after a random time; those of jobs that are given up, too."""
        if isinstance(decision, Launch):
            seconds = self.random.expovariate(1 / MEAN)
            end = self.now + seconds
            phase, task = decision.phase, decision.task
            self._push(end, TaskFinished(end, phase, task, decision.attempt, seconds))

    def wait(self, until: float | None) -> Iterator[Event]:
        """The next event, if it comes before this instant."""
        if self._events and (until is None or self._events[0][0] <= until):
            self.now, _, event = heappop(self._events)
            return iter([event])
        assert until is not None, "something is to happen"
        self.now = max(self.now, until)
        return iter(())

    @property
    def is_empty(self) -> bool:
        """Whether nothing more happens."""
        return not self._events

    def _push(self, at: float, event: Event) -> None:
        heappush(self._events, (at, next(self._pushed), event))


def resident_bytes() -> int:
    """The memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", ["fifo", "fair", "flex", "las", "uwfq"])
@pytest.mark.sampled(3)
def test_a_week_leaves_no_more_than_a_day(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the night after each day all jobs are over, and as much is kept as after the first."""
    for module, table in (
        (phase_work, "MAX_GROUPS"),
        (phase_work, "NEWEST_MAX"),
        (sizing, "TYPES_MAX"),
        (spare, "KEPT_REQUESTS"),
    ):
        monkeypatch.setattr(module, table, KEPT)
    scheduler = make_scheduler(name, rest_seconds=0.05, adjusts=True)
    state = State(CLUSTER, POOLS, over_most=KEPT)
    backend, sizes, resident = Days(), [], []
    for _ in range(DAYS):
        backend.begin_day()
        while not backend.is_empty:
            events = list(backend.wait(state.next_wakeup()))
            turn(scheduler, backend, state, lambda *_: None, events)
        state.check()
        assert not list(state.jobs_left())
        gc.collect()
        sizes.append(size_of(state))
        resident.append(resident_bytes())
    assert backend.number > 2 * DAYS * KEPT
    assert max(sizes) <= sizes[0] + 5 * KEPT, sizes
    if DAY == 86_400:
        assert resident[-1] <= 1.05 * resident[0], resident
