"""Many simulated hours of random jobs, requests, hosts and failures.

By default some hours for each scheduler; with `--slow` 1,000 hours in all, or as many for each
as the environment variable LONG_HOURS says.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from core.test_memory import size_of
from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Launch
from slotwise.core.events import (
    HostAdded,
    HostChange,
    HostDrained,
    HostRemoved,
    JobCancelled,
    JobChanged,
    ObjectiveChanged,
    PhaseClosed,
    PoolsChanged,
    Request,
    TaskFinished,
    TasksAdded,
)
from slotwise.core.host_state import Finished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, LogFile, read_log
from slotwise.core.log_validation import LogValidator
from slotwise.core.loop import initial_state, turn
from slotwise.core.phase_work import Learned
from slotwise.core.pools import Pool, Preemption
from slotwise.core.state import State
from slotwise.insight.replay import replay_log
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

HOUR = 3600.0
TURNS = 20
"""The state is checked after this number of turns."""

CLUSTER = Cluster((Host("a", {"task": 4}), Host("b", {"task": 2}, rack="far", speed=0.5)))
PREEMPTION = Preemption(least_after=30.0, fair_after=90.0, grace=10.0)
POOLS = (
    Pool("p", slots_min={"task": 1}, preemption=PREEMPTION),
    Pool("q", slots_max={"task": 3}),
    Pool("inner", weight=2.0, slots_max={"task": 4}),
    Pool("x", parent="inner", jobs_max=3),
    Pool("y", parent="inner", slots_min={"task": 1}, preemption=PREEMPTION),
)
TREES = (
    POOLS,
    (Pool("p", slots_max={"task": 1}), Pool("q", weight=3.0, preemption=PREEMPTION)),
    (Pool("other"), Pool("x", parent="other", slots_min={"task": 2}), Pool("p", jobs_max=1)),
    (),
)
OBJECTIVES = (("response", "sum"), ("stretch", "max"), ("tardiness", "sum"), ("sla", "sum"))
NAMES = ("flex", "fair", "fifo", "flex-on-fair")


@dataclass(frozen=True)
class FairTimeline:
    """What is to happen."""

    jobs: list[Job]
    requests: list[Request]
    changes: list[HostChange]
    outages: list[Outage]


def course(hours: float, random: Random) -> FairTimeline:
    """Random jobs, requests, hosts and outages; at the end all is as at the beginning."""
    made = FairTimeline([], [], [], [])
    at, end = 0.0, hours * HOUR
    while (at := at + random.expovariate(25 / HOUR)) < end:
        made.jobs.append(_job(f"j{len(made.jobs)}", at, random))
        made.requests.extend(_requests_of(made.jobs[-1], random))
    at = 0.0
    while (at := at + random.expovariate(0.3 / HOUR)) < end:
        made.requests.append(PoolsChanged(at, random.choice(TREES)))
        penalty, aggregate = random.choice(OBJECTIVES[:3])
        made.requests.append(ObjectiveChanged(at + 700.0, penalty, aggregate))
    made.requests.append(PoolsChanged(end + HOUR, POOLS))
    made.requests.sort(key=lambda request: request.at)
    made.changes.extend(_changes(end, random))
    at = HOUR
    while (at := at + random.expovariate(0.2 / HOUR) + 600.0) < end:
        made.outages.append(Outage(random.choice("ab"), at, random.choice([5.0, 50.0, 500.0])))
    return made


def _job(name: str, at: float, random: Random) -> Job:
    pool = random.choice(["p", "q", "x", "y", "new"])
    grows = random.random() < 0.2
    slots = random.choice([1, 1, 1, 2])
    work = random.choice([5.0, 60.0, 200.0])
    first = Phase("first", Tasks(random.randint(1, 6), work), grows=grows, slots=slots)
    second = Phase("second", Tasks(random.randint(1, 3), 40.0), after="first")
    third = Phase("third", Tasks(1, 10.0), after=random.choice(["first", "second"]))
    phases = random.choice([(first,), (first, second), (first, second, third)])
    weight = random.choice([1.0, 2.0, 5.0])
    return Job(name, phases, at, pool, weight, deadline=at + random.choice([100.0, 4000.0]))


def _requests_of(job: Job, random: Random) -> Iterator[Request]:
    at = job.arrival
    if job.phases[0].grows:
        first = PhaseId(job.id, "first")
        for _ in range(random.randint(0, 4)):
            at += random.choice([0.0, 3.0, 300.0])
            yield TasksAdded(at, first, random.randint(1, 4))
        yield PhaseClosed(at + random.choice([0.0, 500.0]), first)
    if random.random() < 0.2:
        pool, priority = random.choice("pqxyz"), random.choice(["low", "high"])
        when = job.arrival + random.choice([0.0, 50.0, 1000.0])
        yield JobChanged(when, job.id, priority, 3.0, pool, job.arrival + 2000.0)
    if random.random() < 0.1:
        yield JobCancelled(job.arrival + random.choice([0.0, 20.0, 500.0]), job.id)


def _changes(end: float, random: Random) -> Iterator[HostChange]:
    """Up to four more hosts come and go; none of them is there at the end."""
    at, there, drained = 0.0, set[str](), set[str]()
    while (at := at + random.expovariate(2.0 / HOUR)) < end:
        name = random.choice("cdef")
        if name not in there:
            there.add(name)
            speed = random.choice([0.5, 1.0, 3.0])
            yield HostAdded(at, Host(name, {"task": random.randint(1, 4)}, "far", speed))
        elif name in drained or random.random() < 0.5:
            there.remove(name)
            drained.discard(name)
            yield HostRemoved(at, name)
        else:
            drained.add(name)
            yield HostDrained(at, name)
    for name in sorted(there):
        yield HostRemoved(end, name)


def chance(*parts: object) -> float:
    """A number from 0 to 1 that looks random, always the same for the same parts."""
    return crc32(repr(parts).encode()) / 2**32


def fault(launch: Launch) -> Fault | None:
    """Some attempts fail or lose their slot."""
    found = chance("fault", launch.phase, launch.task, launch.attempt)
    return Fault("it broke", after=found * 20, lost=found < 0.02) if found < 0.05 else None


def loss(event: TaskFinished) -> float | None:
    """Some output is lost soon, if a later phase still needs it."""
    found = chance("loss", event.phase, event.task, event.attempt)
    return found * 1000.0 if found < 0.05 else None


def play(name: str, hours: float, log: Path) -> State:
    """Run it with checks; the state at the end."""
    made = course(hours, Random(int(hours)))
    objective = {"penalty": "response", "aggregate": "sum"}
    scheduler = {"name": name, "epoch_seconds": 60.0, "rest_seconds": 1.0}
    header = Header("simulated", scheduler, objective, CLUSTER, POOLS, None)
    simulation = Simulation(
        noise=0.3,
        fault=fault,
        save_seconds=2.0,
        outages=tuple(made.outages),
        loss=loss,
        changes=tuple(made.changes),
    )
    backend = SimulatedBackend(CLUSTER, made.jobs, simulation, made.requests)
    decider, state, plausible = (
        make_scheduler(**scheduler),
        initial_state(header),
        LogValidator(CLUSTER),
    )
    turns, done, over = 0, Counter[str](), set[str]()
    with LogFile(log, header) as file:

        def record(now: float, events: object, decisions: object) -> None:
            nonlocal turns
            turns += 1
            file(now, events, decisions)
            plausible.check_turn(now, events, decisions)
            over.update(state.completed, state.failed)
            done.update(d.job for d in decisions if isinstance(d, GiveUp))
            if turns % TURNS == 0:
                state.check()

        while not state.is_done:
            events = backend.wait(until=state.next_wakeup())
            turn(decider, backend, state, record, events)
    state.check()
    assert len(over) == len(made.jobs), "each job is done or was given up"
    assert set(done.values()) <= {1}
    assert len(done) < len(made.jobs) / 2
    return state


@pytest.mark.parametrize("name", NAMES)
def test_all_invariants_hold_for_many_hours(name: str, tmp_path: Path) -> None:
    """All jobs end, the replay is identical, and no more is kept than after a few hours."""
    hours = float(os.environ.get("LONG_HOURS", examples(2, slow=250)))
    long = play(name, hours, tmp_path / "long.jsonl")
    assert replay_log(read_log(tmp_path / "long.jsonl")).is_identical
    short = play(name, 1, tmp_path / "short.jsonl")
    for state in (long, short):
        state._finished = Finished()  # It has the last phases, on any number of hosts.
        state._learned = Learned(1.0)  # It has sums by pool, by program and by job.
    assert size_of(long) <= size_of(short) + 20
