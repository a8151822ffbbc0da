"""What holds for every run: random jobs, clusters, faults and noise, under all schedulers.

State and scheduler are watched at every single step (see tests/conftest.py); here the log is
judged afterwards, by code that shares nothing with the state that was kept meanwhile.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import Fault, Simulation
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.decisions import Defer, GiveUp, Launch, Locality, Preempt, Reallocate
from slotwise.core.events import (
    JobArrived,
    JobsClosed,
    TaskEnded,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log, Turn
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.retries import LOSSES_MAX
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from tiers import examples

EXAMPLES = examples(10, slow=1000)
NAMES = ("fifo", "fair", "flex", "las", "uwfq")
OBJECTIVES = (
    Objective(),
    Objective("stretch"),
    Objective("response", "max"),
    Objective("stretch", "max"),
    Objective("makespan", "max"),
)


@dataclass(frozen=True)
class Case:
    """All that makes a run."""

    jobs: tuple[Job, ...]
    cluster: Cluster
    pools: tuple[Pool, ...]
    name: str
    simulation: Simulation
    options: dict[str, object]


@dataclass(frozen=True)
class Faults:
    """Some attempts end badly, chosen by their names: always the same ones."""

    salt: int
    one_in: int

    def __call__(self, launch: Launch) -> Fault | None:
        """Whether this attempt fails, is lost, or ends well."""
        name = f"{self.salt} {launch.phase} {launch.task} {launch.attempt}"
        dice = crc32(name.encode())
        if dice % self.one_in:
            return None
        return Fault("it broke", after=dice % 7 / 7, lost=dice % 2 == 0)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to four hosts in two racks, fast and slow, with plain slots or slots of kinds."""
    hosts = []
    slots = draw(
        st.sampled_from(
            [
                {"task": 1},
                {"task": 3},
                {"map": 2, "reduce": 1},
                {"map": 1, "task": 1},
            ]
        )
    )
    for number in range(draw(st.integers(1, 4))):
        rack, speed = (
            draw(st.sampled_from(["r1", "r2"])),
            draw(st.sampled_from([1.0, 0.5, 2.0])),
        )
        hosts.append(Host(f"h{number}", slots, rack, speed))
    return Cluster(tuple(hosts))


@st.composite
def phases_of(draw: st.DrawFn, cluster: Cluster) -> tuple[Phase, ...]:
    """One to three phases in any order of dependence; `gone` is a host that is not there."""
    homes = st.frozensets(st.sampled_from([*cluster.by_name, "gone"]), min_size=1, max_size=2)
    phases: list[Phase] = []
    for place in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 6))
        seconds = st.sampled_from([0.0, 0.3, 1.0, 2.5])
        work = draw(seconds | st.tuples(*[seconds] * count))
        has_homes = draw(st.booleans())
        blocks = tuple(Block(draw(homes)) for _ in range(count)) if has_homes else ()
        min_share = draw(st.sampled_from([0, 0, 1, 2]))
        before = [phase.name for phase in phases]
        phases.append(
            Phase(
                f"p{place}",
                Tasks(count, work, blocks),
                kind=draw(st.sampled_from(["map", "reduce"])),
                after=draw(st.frozensets(st.sampled_from(before))) if before else frozenset(),
                slots_min=min_share,
                slots_max=draw(st.sampled_from([None, max(1, min_share), 3])),
            )
        )
    return tuple(phases)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any options of a simulation."""
    cluster = draw(clusters())
    jobs = tuple(
        Job(
            f"j{number}",
            draw(phases_of(cluster)),
            arrival=draw(st.sampled_from([0.0, 0.0, 0.7, 2.0, 86_000.1])),
            pool=draw(st.sampled_from(["a", "b", "c"])),
            weight=draw(st.sampled_from([1.0, 0.3, 5.0])),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    pools = (
        Pool("a", 2.0, draw(st.sampled_from([{}, {"task": 1}, {"map": 2}])), {"task": 3}),
        Pool("b", 0.5, {}, draw(st.sampled_from([{}, {"map": 1}])), policy="fifo"),
    )
    one_in = draw(st.sampled_from([0, 0, 9, 4, 2]))
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.6])),
        remote_factor=draw(st.sampled_from([1.0, 2.0])),
        rack_factor=draw(st.sampled_from([None, 1.2])),
        fault=Faults(draw(st.integers(0, 9)), one_in) if one_in else None,
    )
    assigner = draw(st.sampled_from(["greedy", "delay"]))
    waits = st.sampled_from([None, (0.0, 0.0), (0.4, 1.1), (0.0, 0.3)])
    options = {
        "assigner": assigner,
        "waits": draw(waits) if assigner == "delay" else None,
        "epoch_seconds": draw(st.sampled_from([0.5, 0.17, 10.0])),
        "objective": draw(st.sampled_from(OBJECTIVES)),
        "attempts_max": draw(st.integers(1, 4)),
    }
    return Case(jobs, cluster, pools, draw(st.sampled_from(NAMES)), simulation, options)


@given(cases())
@settings(max_examples=2 * EXAMPLES)
def test_every_run_is_right(run_case: Callable[[Case], object], case: Case) -> None:
    """All jobs end, each task once; hosts, shares and order are kept; bounds hold."""
    watch = run_case(case)
    log, state = watch.log, watch.state
    assert state.is_done
    assert not state.doomed
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    assert not state.completed.keys() & state.failed.keys()
    check_tasks(case, log, state.completed, state.failed)
    check_hosts_and_shares(case, log)
    check_order(case, log)
    check_failures(case, log, state.failed)
    check_turns(case, log)
    outcome = MetricsCollector.of_log(log).outcome()
    value = outcome.metrics["value"]
    assert (value is None) == (not state.completed)
    assert value is None or outcome.bound <= value, "a bound is never above what was reached"
    assert outcome.failed == state.failed
    assert {
        name: times["completion"]
        for name, times in outcome.jobs.items()
        if name not in state.failed
    } == state.completed
    assert 0 <= outcome.metrics["utilisation"] <= 1 + 1e-9


def check_tasks(
    case: Case, log: Log, completed: dict[str, float], failed: dict[str, str]
) -> None:
    """Each task of a job that is done finished exactly once, of others at most once."""
    finished: Counter[tuple[PhaseId, int]] = Counter()
    last: dict[str, float] = defaultdict(float)
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished):
                finished[event.phase, event.task] += 1
                last[event.phase.job] = event.at
    for job in case.jobs:
        for phase in job.phases:
            counts = [
                finished.pop((PhaseId(job.id, phase.name), task), 0)
                for task in range(phase.tasks.count)
            ]
            if job.id in completed:
                assert counts == [1] * phase.tasks.count
            else:
                assert max(counts) <= 1
    assert not finished, "only known tasks are run"
    for job_id, at in completed.items():
        assert at == last[job_id]
        assert job_id not in failed


def check_hosts_and_shares(case: Case, log: Log) -> None:
    """No host runs more than it has slots of a kind, no phase or pool more than its most."""
    phases = {PhaseId(job.id, p.name): (job, p) for job in case.jobs for p in job.phases}
    pools = {pool.name: pool for pool in case.pools}
    running: dict[tuple[PhaseId, int], Launch] = {}
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskEnded):
                launch = running.pop((event.phase, event.task))
                assert launch.attempt == event.attempt
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                assert (decision.phase, decision.task) not in running
                running[decision.phase, decision.task] = decision
        on_host: Counter[tuple[str, str]] = Counter()
        of_phase: Counter[PhaseId] = Counter()
        of_pool: Counter[tuple[str, str, str]] = Counter()
        for launch in running.values():
            job, phase = phases[launch.phase]
            kind = case.cluster.slot_kind(phase.kind)
            on_host[launch.host, kind] += 1
            of_phase[launch.phase] += 1
            if job.pool in pools:
                share = phase.kind if phase.kind in pools[job.pool].kinds else ANY_KIND
                of_pool[job.pool, share, kind] += 1
        for (host, kind), count in on_host.items():
            assert count <= case.cluster.by_name[host].slots[kind]
        for phase_id, count in of_phase.items():
            assert count <= phases[phase_id][1].slots_most
        for (pool, share, _), count in of_pool.items():
            assert count <= pools[pool].slots_max.get(share, count)
    assert not running, "nothing runs on when all jobs are over"


def check_order(case: Case, log: Log) -> None:
    """Nothing starts before its job arrives and all that its phase waits for is done."""
    phases = {PhaseId(job.id, p.name): (job, p) for job in case.jobs for p in job.phases}
    left = {phase_id: phase.tasks.count for phase_id, (_, phase) in phases.items()}
    before = -1.0
    for turn in log.turns:
        assert turn.now >= before, "time never runs back"
        before = turn.now
        for event in turn.events:
            assert event.at <= turn.now
            if isinstance(event, TaskFinished):
                left[event.phase] -= 1
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                job, phase = phases[decision.phase]
                assert turn.now >= job.arrival
                assert not any(left[PhaseId(job.id, other)] for other in phase.after)
                homes = phase.tasks.blocks and phase.tasks.blocks[decision.task].hosts
                if homes and decision.locality is Locality.NODE:
                    assert decision.host in homes
                elif homes:
                    assert decision.host not in homes
                    racks = {h.rack for h in case.cluster.hosts if h.name in homes}
                    rack = case.cluster.rack_of[decision.host]
                    assert (rack in racks) == (decision.locality is Locality.RACK)


def check_failures(case: Case, log: Log, failed: dict[str, str]) -> None:
    """A job is given up when one of its tasks failed too often, only then, and it stops."""
    bad: Counter[tuple[PhaseId, int, bool]] = Counter()
    limit = {False: case.options["attempts_max"], True: LOSSES_MAX}
    given_up: set[str] = set()
    running: set[tuple[PhaseId, int, int]] = set()
    tries: Counter[tuple[PhaseId, int]] = Counter()
    for turn in log.turns:
        hopeless = set()
        for event in turn.events:
            if not isinstance(event, TaskEnded):
                continue
            running.remove((event.phase, event.task, event.attempt))
            if isinstance(event, TaskFailed):
                bad[event.phase, event.task, event.lost] += 1
                if bad[event.phase, event.task, event.lost] >= limit[event.lost]:
                    hopeless.add(event.phase.job)
        gave_up = {d.job for d in turn.decisions if isinstance(d, GiveUp)}
        assert gave_up == hopeless - given_up
        given_up |= gave_up
        stopped = {
            (d.phase, d.task, d.attempt) for d in turn.decisions if isinstance(d, Preempt)
        }
        assert stopped == {attempt for attempt in running if attempt[0].job in gave_up}
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                assert decision.phase.job not in given_up
                key = (decision.phase, decision.task)
                tries[key] += 1
                assert decision.attempt == tries[key]
                running.add((*key, decision.attempt))
    assert given_up == set(failed)


def check_turns(case: Case, log: Log) -> None:
    """Epochs end at their multiples, always ahead; whatever is woken for is acted upon."""
    epoch = case.options["epoch_seconds"]
    changes = (JobArrived, JobsClosed, TaskFinished, TaskFailed, TaskKilled)
    for turn in log.turns:
        assert turn.events or turn.decisions
        assert all(isinstance(event, changes) for event in turn.events)
        for decision in turn.decisions:
            if isinstance(decision, Reallocate):
                assert decision.until > turn.now
                assert decision.until - turn.now <= epoch * (1 + 1e-9) + 1e-9
                assert decision.until == round(decision.until / epoch) * epoch
            elif isinstance(decision, Defer):
                assert decision.since <= turn.now < decision.until
        if any(isinstance(event, JobArrived) for event in turn.events):
            assert isinstance(
                next(d for d in turn.decisions if not isinstance(d, GiveUp | Preempt)),
                Reallocate,
            )


@given(cases())
@settings(max_examples=EXAMPLES // 2)
def test_every_run_replays_decision_for_decision(
    run_case: Callable[[Case], object], case: Case
) -> None:
    """Its log, written as text and read again, tells all that the decisions depended on."""
    log = reread(run_case(case).log)
    found = replay_log(log)
    assert found.is_identical
    assert found.turns == len(log.turns)
    assert found.decisions == sum(len(turn.decisions) for turn in log.turns)


def reread(log: Log) -> Log:
    """The log as it comes back from text."""
    header = Header.from_plain(json.loads(json.dumps(log.header.to_plain())))
    turns = [Turn.from_plain(json.loads(json.dumps(turn.to_plain()))) for turn in log.turns]
    return Log(header, turns)
