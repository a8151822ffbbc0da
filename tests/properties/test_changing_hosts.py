"""Hosts that are added, drained, removed and cut off at random, under all schedulers.

State and scheduler are checked in every turn (see tests/conftest.py). Which hosts are there is
followed here from the events alone, and compared with decisions and metrics.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Launch, Reallocate
from slotwise.core.events import (
    HostAdded,
    HostChange,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
    JobArrived,
    TaskEnded,
    TaskFinished,
    with_kinds,
)
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log, Turn
from slotwise.core.log_validation import LogValidator
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.insight.timeline import timeline_of
from tiers import examples

NAMES = ("fifo", "fair", "flex", "flowflex-fast", "dmrs", "delay")
TOLERANCE = 1e-9
LAST = 30.0
"""When a host with slots of all kinds comes, and stays."""


@dataclass(frozen=True)
class Case:
    """All that makes a run."""

    jobs: tuple[Job, ...]
    cluster: Cluster
    pools: tuple[Pool, ...]
    simulation: Simulation
    name: str


@st.composite
def hosts(draw: st.DrawFn, name: str, plain: bool, racks: str) -> Host:
    """A host with slots of one or several kinds."""
    kinds = [{"task": 1}, {"task": 2}]
    if not plain:
        kinds += [{"map": 1, "reduce": 1}, {"map": 2, "reduce": 1, "task": 1}, {"map": 3}]
    return Host(
        name,
        draw(st.sampled_from(kinds)),
        rack=draw(st.sampled_from(racks)),
        speed=draw(st.sampled_from([1.0, 0.5, 2.0])),
    )


@st.composite
def changes(
    draw: st.DrawFn, cluster: Cluster, plain: bool, racks: str
) -> tuple[HostChange, ...]:
    """Up to ten changes at eighths of seconds, some at one instant; hosts may come back."""
    found: list[HostChange] = []
    there, drained, at = set(cluster.by_name), set(), 0.0
    for _ in range(draw(st.integers(0, 10))):
        at += draw(st.sampled_from([0.0, 0.0, 0.125, 0.5, 1.0, 2.75]))
        name = draw(st.sampled_from(["h0", "h1", "h2", "h3"]))
        if name not in there:
            there.add(name)
            found.append(HostAdded(at, draw(hosts(name, plain, racks))))
        elif name in drained or draw(st.booleans()):
            there.remove(name)
            drained.discard(name)
            found.append(HostRemoved(at, name))
        else:
            drained.add(name)
            found.append(HostDrained(at, name))
    slots = {"task": 1} if plain else {"task": 1, "map": 1, "reduce": 1}
    return (*found, HostAdded(LAST, Host("last", slots, racks[0])))


@st.composite
def jobs(draw: st.DrawFn, number: int, plain: bool) -> Job:
    """A MapReduce job with input on hosts, or tasks that others continue."""
    arrival = draw(st.sampled_from([0.0, 0.5, 1.0, 4.0]))
    pool = draw(st.sampled_from("ab"))
    count, work = draw(st.integers(1, 5)), draw(st.sampled_from([0.5, 2.0]))
    if plain and draw(st.sampled_from([False, False, True])):
        first = Phase("first", Tasks(count, work), "task")
        second = Phase("second", Tasks(count, 1.0), "task", continues="first")
        return Job(f"j{number}", (first, second), arrival, pool)
    homes = draw(st.sampled_from([(), ("h0",), ("h1", "h3")]))
    blocks = (Block(frozenset(homes), 10),) * count if homes else ()
    maps = Phase("map", Tasks(count, work, blocks), "map")
    reduces = Phase("reduce", Tasks(2, 1.0), "reduce", frozenset({"map"}))
    return Job(f"j{number}", (maps, reduces), arrival, pool)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A cluster that changes all the time."""
    name = draw(st.sampled_from(NAMES))
    plain = name == "dmrs" or draw(st.booleans())
    in_one_rack = draw(st.booleans())
    racks = "a" if in_one_rack else "ab"
    count = draw(st.integers(1, 3))
    cluster = Cluster(
        tuple(draw(hosts(f"h{number}", plain, racks)) for number in range(count)),
        heartbeat=draw(st.sampled_from([0.0, 0.0, 0.5])),
        grace=draw(st.sampled_from([0.5, 2.0])),
    )
    found = draw(changes(cluster, plain, racks))
    outages = [
        Outage(host, at, draw(st.sampled_from([0.5, 3.0])))
        for host in sorted({"last", *cluster.by_name})
        for at in draw(st.sampled_from([(), (), (0.25,), (1.0, 5.0)]))
    ]
    some = tuple(
        draw(jobs(number, plain and name != "dmrs"))
        for number in range(draw(st.integers(1, 4)))
    )
    taking = Preemption(least_after=0.2, fair_after=1.0, grace=0.3)
    shares = (Pool("a", slots_min=1, slots_max=3, preemption=taking), Pool("b", slots_max=2))
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.4])),
        speeds=draw(st.sampled_from([{}, {}, {"h0": 0.25}])),
        network=draw(st.sampled_from([None, Network(20.0)])) if in_one_rack else None,
        outages=tuple(outages),
        changes=found,
    )
    has_shares = name not in ("dmrs", "fifo") and draw(st.booleans())
    pools = shares if has_shares else ()
    return Case(some, with_kinds(cluster, found), pools, simulation, name)


@pytest.fixture(scope="session")
def run_case(simulated: Callable[..., object]) -> Callable[[Case], object]:
    """Runs a case on the simulated backend, with checks."""

    def run(case: Case) -> object:
        cluster, truth = case.cluster, case.simulation
        options: dict[str, object] = {"parameters": truth.troubles(cluster, cluster)}
        name = case.name
        if name == "delay":
            name, options = "fair", options | {"assigner": "delay", "waits": (0.3, 0.6)}
        return simulated(case.jobs, cluster, case.pools, name, truth, **options)

    return run


@given(cases())
@settings(max_examples=examples(4, slow=1000))
def test_jobs_end_on_hosts_that_come_and_go(
    run_case: Callable[[Case], object], case: Case
) -> None:
    """All jobs end, nothing runs where it cannot, and the log explains every decision."""
    watch = run_case(case)
    state = watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    for name, reason in state.failed.items():
        assert "leaves, where a task of phase second must run" in reason, name
    follow(case, watch.log)
    read = as_read(watch.log)
    assert replay_log(read).is_identical
    outcome = MetricsCollector.of_log(read).outcome()
    if state.completed:
        assert outcome.bound <= outcome.metrics["value"] * (1 + TOLERANCE)
    assert outcome == MetricsCollector.of_log(watch.log).outcome()


def as_read(log: Log) -> Log:
    """The log as it is read from a file, and found plausible."""
    header = Header.from_plain(json.loads(json.dumps(log.header.to_plain())))
    turns = [Turn.from_plain(json.loads(json.dumps(turn.to_plain()))) for turn in log.turns]
    plausible = LogValidator(header.cluster)
    for turn in turns:
        plausible.check_turn(turn.now, turn.events, turn.decisions)
    return Log(header, turns)


@dataclass
class FairTimeline:
    """Which hosts are there, and what runs, by the events of a log."""

    there: dict[str, Host]
    shut: Counter[str] = field(default_factory=Counter)
    runs: dict[tuple[PhaseId, int, int], str] = field(default_factory=dict)
    kinds: dict[PhaseId, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    area: float = 0.0
    since: float = 0.0

    def move(self, now: float) -> None:
        """Time passes."""
        self.area += self.slots() * (now - self.since)
        self.since = now

    def slots(self, kind: str | None = None) -> int:
        """Slots on the hosts that are there."""
        return sum(
            n for h in self.there.values() for k, n in h.slots.items() if kind in (None, k)
        )

    def on_event(self, event: object) -> None:
        """One event."""
        if isinstance(event, HostAdded):
            assert event.host.name not in self.there
            self.there[event.host.name] = event.host
            self.known |= event.host.slots.keys()
        elif isinstance(event, HostDrained):
            self.shut[event.host] += 10
        elif isinstance(event, HostRemoved):
            assert event.host not in self.runs.values(), "lost attempts are reported before"
            self.there.pop(event.host, None)
            del self.shut[event.host]
        elif isinstance(event, HostLost | HostJoined) and event.host in self.there:
            self.shut[event.host] += 1 if isinstance(event, HostLost) else -1
        elif isinstance(event, TaskEnded):
            del self.runs[event.phase, event.task, event.attempt]
        elif isinstance(event, JobArrived):
            for phase in event.job.phases:
                kind = phase.kind if phase.kind in self.known else "task"
                self.kinds[PhaseId(event.job.id, phase.name)] = kind
        for host in list(self.there):
            if self.shut[host] >= 10 and host not in self.runs.values():
                del self.there[host], self.shut[host]


def follow(case: Case, log: Log) -> None:
    """Launches fit the slots of hosts where tasks can begin; allocations fit all of them."""
    there = dict(case.cluster.by_name)
    course = FairTimeline(there, known=set(case.cluster.capacity))
    done: Counter[tuple[PhaseId, int]] = Counter()
    for turn in log.turns:
        course.move(turn.now)
        for event in turn.events:
            course.on_event(event)
            if isinstance(event, TaskFinished):
                done[event.phase, event.task] += 1
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                assert not course.shut[decision.host]
                key = (decision.phase, decision.task, decision.attempt)
                course.runs[key] = decision.host
            elif isinstance(decision, Reallocate):
                given = Counter[str]()
                for phase, slots in decision.slots.items():
                    given[course.kinds[phase]] += slots
                for kind, slots in given.items():
                    assert slots <= course.slots(kind) * (1 + TOLERANCE)
        held = Counter((host, course.kinds[key[0]]) for key, host in course.runs.items())
        for (host, kind), count in held.items():
            assert count <= course.there[host].slots[kind]
    assert set(done.values()) <= {1}, "each task is done once"
    first = min(job.arrival for job in case.jobs)
    line = timeline_of(log)
    assert line.slots.seconds(0.0, course.since) == pytest.approx(course.area)
    use = MetricsCollector.of_log(log).outcome().metrics["utilisation"]
    assert 0 <= use <= 1 + TOLERANCE
    busy = sum(p.attempt.end - p.attempt.start for p in line.attempts)
    present = line.slots.seconds(first, course.since)
    assert use * present == pytest.approx(busy)
