"""Random outages and repeated launches, under all schedulers: no harm is done.

State and scheduler are watched at every single step (see tests/conftest.py). When hosts are
reported is found here by stepping from report to report, and compared with the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt, Reallocate
from slotwise.core.events import (
    HostJoined,
    HostLost,
    LaunchDropped,
    TaskEnded,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import Job, Phase, PhaseId, Shuffle, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from tiers import examples

EXAMPLES = examples(10, slow=1000)
NAMES = ("fifo", "fair", "flex", "flowflex-fast", "dmrs", "delay")
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Case:
    """All that makes a run."""

    jobs: tuple[Job, ...]
    cluster: Cluster
    pools: tuple[Pool, ...]
    simulation: Simulation
    name: str


@dataclass(frozen=True)
class Repeats:
    """Some launches come a second time, chosen by their numbers."""

    after: float

    def __call__(self, launch: Launch) -> float | None:
        """The same ones each time."""
        return None if (launch.task + launch.attempt) % 3 == 0 else self.after


@st.composite
def outages(draw: st.DrawFn, cluster: Cluster) -> tuple[Outage, ...]:
    """Up to three of each host; some touch, and some begin or end when other things do.

    All times are eighths of seconds, so that it is certain which instants are the same.
    """
    found = []
    for host in cluster.by_name:
        at = 0.0
        for _ in range(draw(st.integers(0, 3))):
            at += draw(st.sampled_from([0.0, 0.0, 0.25, 1.0, 2.75]))
            seconds = draw(st.sampled_from([0.125, 0.5, 1.0, 2.5, 9.0]))
            found.append(Outage(host, at, seconds))
            at = found[-1].over
    return tuple(found)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A small cluster that nobody can rely on."""
    name = draw(st.sampled_from(NAMES))
    plain = name == "dmrs"
    slots = (
        {"task": 2} if plain else draw(st.sampled_from([{"task": 1}, {"map": 2, "reduce": 1}]))
    )
    hosts = tuple(
        Host(f"h{number}", slots, speed=draw(st.sampled_from([1.0, 0.5])))
        for number in range(draw(st.sampled_from([1, 2, 4])))
    )
    heartbeat = draw(st.sampled_from([0.0, 0.0, 0.5]))
    cluster = Cluster(hosts, heartbeat, grace=draw(st.sampled_from([0.0, 0.5, 2.0, 30.0])))
    shuffle = Shuffle(slow_start=1.0 if plain else draw(st.sampled_from([1.0, 0.4])))
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        maps = Phase(
            "map", Tasks(draw(st.integers(1, 5)), draw(st.sampled_from([0.5, 2.0]))), "map"
        )
        copy = draw(st.sampled_from([0.0, 0.4]))
        reduces = Phase("reduce", Tasks(2, 1.0), "reduce", frozenset({"map"}), copy=copy)
        arrival = draw(st.sampled_from([0.0, 1.0, 1.25]))
        job = Job(f"j{number}", (maps, reduces), arrival, draw(st.sampled_from("ab")))
        jobs.append(shuffle.job(job, cluster))
    taking = Preemption(least_after=0.2, fair_after=1.0, grace=0.3)
    pools = (Pool("a", slots_min=1, preemption=taking), Pool("b")) if not plain else ()
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.4])),
        save_seconds=draw(st.sampled_from([None, 0.1])),
        speeds=draw(st.sampled_from([{}, {}, {"h0": 0.25}])),
        outages=draw(outages(cluster)),
        repeats=draw(st.sampled_from([None, Repeats(0.0), Repeats(0.75), Repeats(5.0)])),
    )
    return Case(tuple(jobs), cluster, pools, simulation, name)


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
@settings(max_examples=EXAMPLES // 2)
def test_no_outage_does_harm(run_case: Callable[[Case], object], case: Case) -> None:
    """All jobs are done, each task once, slots are kept, the log explains every decision."""
    watch = run_case(case)
    assert watch.state.completed.keys() == {job.id for job in case.jobs}
    done = Counter(
        (event.phase, event.task)
        for turn in watch.log.turns
        for event in turn.events
        if isinstance(event, TaskFinished)
    )
    assert done == {
        (PhaseId(job.id, phase.name), task): 1
        for job in case.jobs
        for phase in job.phases
        for task in range(phase.tasks.count)
    }
    check_slots(case, watch.log)
    check_allocations(case, watch.log)
    assert replay_log(watch.log).is_identical
    outcome = MetricsCollector.of_log(watch.log).outcome()
    assert outcome.bound <= outcome.metrics["value"] * (1 + TOLERANCE)


def check_slots(case: Case, log: Log) -> None:
    """Nothing begins on an unresponsive host; no host holds more attempts than slots."""
    unresponsive: set[str] = set()
    runs: dict[tuple[PhaseId, int, int], str] = {}
    for turn in log.turns:
        ends = [event for event in turn.events if isinstance(event, TaskEnded)]
        ended = {(event.phase, event.task, event.attempt) for event in ends}
        for event in turn.events:
            if isinstance(event, HostLost):
                unresponsive.add(event.host)
            elif isinstance(event, HostJoined):
                unresponsive.remove(event.host)
            elif isinstance(event, TaskEnded):
                del runs[event.phase, event.task, event.attempt]
            elif isinstance(event, LaunchDropped):
                key = (event.phase, event.task, event.attempt)
                if event.reason == "runs already":
                    assert runs[key] == event.host
                else:
                    assert key not in runs or key in ended
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                assert decision.host not in unresponsive
                runs[decision.phase, decision.task, decision.attempt] = decision.host
        for host, held in Counter(runs.values()).items():
            assert held <= sum(case.cluster.by_name[host].slots.values())


def check_allocations(case: Case, log: Log) -> None:
    """No more slots of a kind are allocated than responsive hosts have, and slots are allocated
    again at the instant at which a host becomes unresponsive or comes back."""
    kinds = {
        PhaseId(job.id, phase.name): case.cluster.slot_kind(phase.kind)
        for job in case.jobs
        for phase in job.phases
    }
    unresponsive: set[str] = set()
    for turn in log.turns:
        told = [event for event in turn.events if isinstance(event, HostLost | HostJoined)]
        for event in told:
            (unresponsive.add if isinstance(event, HostLost) else unresponsive.remove)(
                event.host
            )
        decided = [d for d in turn.decisions if isinstance(d, Reallocate)]
        assert decided or not told or case.name == "dmrs", "hosts that come and go are shared"
        for decision in decided:
            allocated: Counter[str] = Counter()
            for phase, slots in decision.slots.items():
                allocated[kinds[phase]] += slots
            for kind, slots in allocated.items():
                there = [h for h in case.cluster.hosts if h.name not in unresponsive]
                assert slots <= sum(h.slots.get(kind, 0) for h in there) * (1 + TOLERANCE)


@dataclass(frozen=True)
class Line:
    """When one host can be reached, found by stepping through its outages and its reports."""

    outages: tuple[Outage, ...]
    heartbeat: float
    first: float

    def is_cut(self, at: float) -> bool:
        """Whether the host is cut off at an instant."""
        return any(one.at <= at < one.over for one in self.outages)

    def report(self, at: float) -> float:
        """The first report at that instant or later, if it gets through or not."""
        if not self.heartbeat:
            return at
        times = (self.first + number * self.heartbeat for number in count())
        return next(time for time in times if time >= at)

    def reported(self, at: float) -> float:
        """When an event of that instant is reported."""
        at = self.report(at)
        while self.is_cut(at):
            at = self.report(self.restored(at))
        return at

    def restored(self, at: float) -> float:
        """When the host can be reached again."""
        while self.is_cut(at):
            at = next(one.over for one in self.outages if one.at <= at < one.over)
        return at

    def begins(self, at: float) -> float:
        """When a host begins a launch of that instant: with its next report, or
        with the end of an outage that nobody notices."""
        if not self.is_cut(at):
            return at
        return self.reported(at) if self.is_cut(self.report(at)) else self.restored(at)


def line_of(case: Case, host: str) -> Line:
    """That of one host."""
    names = list(case.cluster.by_name)
    outages = tuple(one for one in case.simulation.outages if one.host == host)
    heartbeat = case.cluster.heartbeat
    return Line(outages, heartbeat, heartbeat * names.index(host) / len(names))


@given(cases())
@settings(max_examples=EXAMPLES // 2)
def test_every_event_is_reported_when_the_host_can_be_reached(
    run_case: Callable[[Case], object], case: Case
) -> None:
    """Ends of tasks that only compute, outages, their ends, and the tasks lost in them."""
    case = replace(case, simulation=replace(case.simulation, save_seconds=None))
    log = run_case(case).log
    lines = {host: line_of(case, host) for host in case.cluster.by_name}
    since: dict[str, float] = {}
    begun: dict[tuple[PhaseId, int, int], tuple[str, float]] = {}
    told = {
        (d.phase, d.task, d.attempt)
        for turn in log.turns
        for d in turn.decisions
        if isinstance(d, Preempt)
    }
    for turn in log.turns:
        for event in turn.events:
            assert getattr(event, "at", turn.now) == turn.now
            if isinstance(event, HostLost):
                line = lines[event.host]
                assert line.is_cut(turn.now)
                assert line.report(turn.now) == pytest.approx(turn.now)
                since[event.host] = turn.now
            elif isinstance(event, HostJoined):
                lost_at = since.pop(event.host)
                assert lines[event.host].reported(lost_at) == pytest.approx(turn.now)
            elif isinstance(event, TaskEnded):
                key = (event.phase, event.task, event.attempt)
                host, start = begun.pop(key)
                if isinstance(event, TaskFailed):
                    assert event.lost
                    assert turn.now == pytest.approx(since[host] + case.cluster.grace)
                    assert lines[host].reported(since[host]) > turn.now
                elif isinstance(event, TaskFinished) and event.phase.phase == "map":
                    end = lines[host].begins(start) + event.seconds
                    assert turn.now == pytest.approx(lines[host].reported(end))
                elif not isinstance(event, TaskFinished):
                    assert key in told
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                key = (decision.phase, decision.task, decision.attempt)
                begun[key] = (decision.host, turn.now)
        for host, at in since.items():
            if turn.now >= at + case.cluster.grace and lines[host].reported(at) > turn.now:
                assert host not in {one for one, _ in begun.values()}, "what runs there is lost"
