"""What is kept of waits, requests and hosts between decisions: they are as without it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import (
    Event,
    HostJoined,
    HostLost,
    JobArrived,
    JobChanged,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.core.resources import Resources
from slotwise.core.snapshot import Snapshot, TasksOnHost
from slotwise.core.state import State
from slotwise.policy.assignment import offers, wide
from slotwise.policy.assignment.free_slots import Fitting
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

EVENTS = 30
POOLS = (Pool("a"), Pool("b", weight=2.0), Pool("limited", slots_max=5))


@example(5626080, "fair", 1)  # A task of a phase ends whose wait a failure has ended.
@settings(max_examples=examples(40, slow=1000))
@given(
    st.integers(0, 10**9), st.sampled_from(["fifo", "fair", "flex"]), st.sampled_from([1, 2, 4])
)
def test_decisions_are_those_of_reading_all_again(
    seed: int, name: str, hosts_a_wait: int
) -> None:
    """Random jobs of few and of many different requests, which end, fail, change and arrive."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide, "HOSTS_A_WAIT", hosts_a_wait)
        patch.setattr(offers, "LOOK_AT", 5)
        Run(seed, name).compare()


class Run:
    """A cluster where memory, slots or a named resource run out."""

    def __init__(self, seed: int, name: str) -> None:
        self.rng, self.scheduler = random.Random(seed), make_scheduler(name)
        has = {"memory": 16, "license": 3}
        self.hosts = [f"h{n}" for n in range(self.rng.randint(2, 6))]
        hosts = [
            Host(name, {"task": self.rng.randint(2, 6)}, resources=has) for name in self.hosts
        ]
        self.state, self.now, self.jobs = State(Cluster(tuple(hosts)), POOLS), 0.0, list[str]()
        self.sizes = self.rng.choice([(1, 2, 4, 8), range(1, 16)])
        # Where tasks take several slots, or a pool is limited, less is kept.
        self.widths = self.rng.choice([(1,)] * 4 + [(1, 1, 1, 2)])
        self.pools = self.rng.choice(["ab"] * 4 + [("a", "b", "limited")])
        self.running: list[Launch] = []

    def compare(self) -> None:
        """Decide at each event, and compare."""
        for _ in range(self.rng.randint(3, 25)):
            self.state.apply(self.arrival())
        for _ in range(EVENTS):
            self.decide()
            self.now += self.rng.choice([0.01, 0.01, 0.7])
            self.state.at(self.now)
            self.state.apply(self.event())
            self.running = [one for one in self.running if self.runs(one)]

    def decide(self) -> None:
        """All decisions of an instant, each found in both ways."""
        snapshot = self.state.at(self.now)
        while True:
            with reads_all_again(snapshot):
                expected: Sequence[Decision] = self.scheduler.decide(snapshot)
            found = self.scheduler.decide(snapshot)
            assert [*found] == [*expected]
            if not found:
                return
            for one in found:
                self.state.apply(one)
                self.running += [one] if isinstance(one, Launch) else []

    def runs(self, one: Launch) -> bool:
        """Whether an attempt is still known."""
        phase = next((p for p in self.state.phases_of(one.phase.job)), None)
        return phase is not None and one.task in phase.launches

    def event(self) -> Event:
        """Mostly a task ends."""
        what = self.rng.random()
        if self.running and what < 0.7:
            one = self.rng.choice(self.running)
            return TaskFinished(self.now, one.phase, one.task, one.attempt, 1.0)
        if self.running and what < 0.75:
            one = self.rng.choice(self.running)
            return TaskFailed(self.now, one.phase, one.task, one.attempt, "exit 1")
        if what < 0.8:
            priority, job = self.rng.choice(["low", "high"]), self.rng.choice(self.jobs)
            return JobChanged(self.now, job, priority, 1.0, "a", None)
        if what < 0.83:
            host = self.rng.choice(self.hosts)
            is_lost = host in self.state.unresponsive
            return HostJoined(self.now, host) if is_lost else HostLost(self.now, host)
        return self.arrival()

    def arrival(self) -> JobArrived:
        """A job of one phase, of which some need nothing, some two resources."""
        self.jobs.append(f"j{len(self.jobs)}")
        needs = {"memory": self.rng.choice([0, *self.sizes, *self.sizes])}
        if self.rng.random() < 0.2:
            needs["license"] = self.rng.randint(1, 3)
        tasks = Tasks(self.rng.randint(1, 8), self.rng.choice([1.0, 3.0]))
        phase = Phase("p", tasks, resources=needs, slots=self.rng.choice(self.widths))
        job = Job(self.jobs[-1], (phase,), self.now, self.rng.choice(self.pools))
        return JobArrived(self.now, job)


@contextmanager
def reads_all_again(snapshot: Snapshot) -> Iterator[None]:
    """Nothing is kept meanwhile, and afterwards what was kept before."""
    read: list[TasksOnHost] = [*snapshot.spare.tasks_read.values()]
    known = [tasks.known for tasks in read]
    with pytest.MonkeyPatch.context() as patch:
        for tasks in read:
            tasks.known = {}
        patch.setattr(wide, "at_once", lambda phase: 0.0)
        patch.setattr(Fitting, "_exceeds_all", fits_on_no_host)
        yield
    for tasks, before in zip(read, known, strict=True):
        tasks.known = before


def fits_on_no_host(self: Fitting, slot_kind: str, needs: Resources) -> bool:
    """As `_exceeds_all`, host by host."""
    snapshot = self._snapshot
    if not needs or snapshot.reserved(slot_kind):
        return False
    return not any(snapshot.spare.times(host, needs) for host in snapshot.free(slot_kind))
