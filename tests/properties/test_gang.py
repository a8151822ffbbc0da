"""Random mixes of gangs, wide and narrow phases, under every scheduler that takes them.

State and scheduler are checked at every turn (tests/conftest.py). Here the log is judged, by
code that shares nothing with the state; and each wait of a gang is compared with its bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from properties.test_pools import Faults
from properties.test_runs import reread
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import (
    HostAdded,
    HostDrained,
    HostRemoved,
    OutputLost,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.loop import run
from slotwise.core.phase_state import PhaseState
from slotwise.core.pools import Pool, Preemption
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.policy.assignment.delay import Delay
from slotwise.policy.assignment.wide import WideTaskReservations
from slotwise.policy.scheduler import ALLOCATORS, make_scheduler
from tiers import examples

EXAMPLES = examples(15, slow=3000)
LARGEST = 4
"""The most slots that a gang or a task takes at once."""

Attempt = tuple[PhaseId, int, int]


@dataclass(frozen=True)
class Case:
    """All that makes a run."""

    jobs: tuple[Job, ...]
    cluster: Cluster
    pools: tuple[Pool, ...]
    simulation: Simulation
    options: dict[str, object]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One host on which every gang fits, and perhaps smaller ones, of one or two kinds."""
    kinds = draw(st.sampled_from([("task",), ("task",), ("map", "reduce")]))
    sizes = [
        draw(st.integers(LARGEST, 5)),
        *draw(st.lists(st.integers(1, 4), max_size=3)),
    ]
    return Cluster(
        tuple(
            Host(
                f"h{number}",
                dict.fromkeys(kinds, size),
                f"r{number % 2}",
                draw(st.sampled_from([1.0, 2.0, 0.5])),
            )
            for number, size in enumerate(sizes)
        ),
        grace=draw(st.sampled_from([1.0, 30.0])),
    )


@st.composite
def jobs_of(draw: st.DrawFn, number: int, cluster: Cluster) -> Job:
    """One to three phases, each a gang, or of wide or of narrow tasks."""
    phases: list[Phase] = []
    kinds = draw(st.sampled_from([("map",), ("map", "reduce"), ("map", "map", "reduce")]))
    for place, kind in enumerate(kinds):
        is_gang = draw(st.booleans())
        width = draw(st.sampled_from([1, 1, 1, 2]))
        count = draw(st.integers(1, LARGEST // width if is_gang else 6))
        work = draw(st.sampled_from([0.0, 0.3, 1.0, 2.5]))
        is_uneven = draw(st.booleans())
        hosts = st.frozensets(st.sampled_from([*cluster.by_name]), min_size=1)
        has_homes = draw(st.booleans())
        phases.append(
            Phase(
                f"p{place}",
                Tasks(
                    count,
                    tuple(work * (1 + task) for task in range(count)) if is_uneven else work,
                    [Block(draw(hosts)) for _ in range(count)] if has_homes else (),
                ),
                kind,
                frozenset(phase.name for phase in phases[:place]),
                slots_min=draw(st.sampled_from([0, 0, 1, 3])),
                slots_max=None if is_gang else draw(st.sampled_from([None, None, 3, 4])),
                slots=width,
                copy=draw(st.sampled_from([0.0, 0.5])) if place else 0.0,
                gang=is_gang,
            )
        )
    return Job(
        f"j{number}",
        tuple(phases),
        arrival=draw(st.sampled_from([0.0, 0.0, 0.7, 2.0, 4.1])),
        pool=draw(st.sampled_from(["a", "b", "c"])),
        weight=draw(st.sampled_from([1.0, 0.3, 5.0])),
    )


@st.composite
def cases(draw: st.DrawFn, is_calm: bool = False) -> Case:
    """A cluster that gangs share with other phases; a calm one has no troubles."""
    cluster = draw(clusters())
    jobs = tuple(draw(jobs_of(number, cluster)) for number in range(draw(st.integers(1, 6))))
    preemption = None
    if not is_calm:
        preemption = Preemption(
            draw(st.sampled_from([0.0, 0.5])),
            draw(st.sampled_from([1.0, float("inf")])),
            grace=draw(st.sampled_from([0.0, 0.4])),
        )
    pools = (
        Pool(
            "a",
            2.0,
            {"task": draw(st.integers(0, 3))},
            {"task": draw(st.integers(LARGEST, 6))},
            preemption=draw(st.sampled_from([None, preemption])),
        ),
        Pool("b", 0.5, {"task": draw(st.integers(0, 4))}, preemption=preemption),
    )
    one_in = draw(st.sampled_from([0, 9, 4]))
    has_losses = draw(st.booleans())
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.6])),
        fault=Faults(one_in) if one_in and not is_calm else None,
        save_seconds=draw(st.sampled_from([None, 0.1])),
        outages=() if is_calm else tuple(_outages(draw)),
        loss=_loss if has_losses and not is_calm else None,
        changes=() if is_calm else tuple(_changes(draw, cluster)),
    )
    assigner = draw(st.sampled_from(["greedy", "delay", "flow"]))
    options = {
        "name": draw(st.sampled_from(list(ALLOCATORS))),
        "assigner": assigner,
        "waits": None if assigner == "greedy" else draw(st.sampled_from([None, (0.4, 1.1)])),
    }
    if assigner == "flow" and draw(st.booleans()):
        options["move_within"] = 1.0
    return Case(jobs, cluster, pools, simulation, options)


def _loss(event: TaskFinished) -> float | None:
    """Some tasks lose their output once, soon after they end."""
    return 0.2 if event.attempt == 1 and event.task == 1 else None


def _outages(draw: st.DrawFn) -> list[Outage]:
    outage = Outage("h0", draw(st.sampled_from([0.4, 1.3])), 3.0)
    return [outage] * draw(st.sampled_from([0, 0, 1]))


def _changes(draw: st.DrawFn, cluster: Cluster) -> list[HostAdded | HostDrained | HostRemoved]:
    """A host comes and goes again; the first one stays."""
    kinds = dict.fromkeys(cluster.capacity, draw(st.integers(1, 4)))
    change = draw(st.sampled_from([HostDrained, HostRemoved]))
    leaves = [change(2.6, "new")] * draw(st.integers(0, 1))
    return draw(st.sampled_from([[], [HostAdded(0.9, Host("new", kinds)), *leaves]]))


@given(cases())
@settings(max_examples=EXAMPLES)
def test_gangs_share_hosts_with_others(simulated: Callable[..., object], case: Case) -> None:
    """All jobs end, gangs run as a whole, the bound holds, and the log replays."""
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **case.options
    )
    state = watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    check_gangs(case, watch.log)
    log = reread(watch.log)
    assert replay_log(log).is_identical
    outcome = MetricsCollector.of_log(log).outcome()
    value = outcome.metrics["value"]
    assert value is None or outcome.bound <= value * (1 + 1e-9), "a bound is never above"
    assert 0 <= outcome.metrics["utilisation"] <= 1 + 1e-9


def check_gangs(case: Case, log: Log) -> None:
    """All tasks of a gang begin in one turn, none while another runs, all done in one start."""
    phases = {PhaseId(job.id, p.name): p for job in case.jobs for p in job.phases}
    gangs = {name: p for name, p in phases.items() if p.gang}
    running: dict[PhaseId, set[int]] = defaultdict(set)
    done: dict[PhaseId, set[int]] = defaultdict(set)
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                running[event.phase].discard(event.task)
                if isinstance(event, TaskFinished):
                    done[event.phase].add(event.task)
            elif isinstance(event, OutputLost):
                done[event.phase] -= set(event.tasks)
        launched: dict[PhaseId, list[Launch]] = defaultdict(list)
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                launched[decision.phase].append(decision)
        for name, launches in launched.items():
            if name in gangs:
                assert [launch.task for launch in launches] == [*range(gangs[name].tasks.count)]
                assert len({launch.attempt for launch in launches}) == 1
                assert not running[name], "none of it runs"
                assert not done[name], "all of it is done again"
            else:
                before = [PhaseId(name.job, other) for other in phases[name].after]
                assert all(len(done[other]) == phases[other].tasks.count for other in before)
            running[name] |= {launch.task for launch in launches}


@dataclass
class WatchedWaits:
    """A scheduler that checks the bound of docs/algorithms/gangs.md.

    When a gang is the first of those that wait, and there is room for it in its pools, it
    starts no later than when the last of the tasks ends that run then, as long as it is first.
    """

    inner: object
    near_after: Callable[[PhaseState], float]
    bounds: dict[PhaseId, set[Attempt]] = field(default_factory=dict)
    waited: int = 0

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The decisions of the inner scheduler."""
        decisions = self.inner.decide(snapshot)
        first = (
            WideTaskReservations(snapshot, self.near_after).due[:1] if snapshot.has_wide else ()
        )
        waiting = {phase.id for phase in first if phase.is_gang and phase.may_launch}
        for name in self.bounds.keys() - waiting:
            del self.bounds[name]
        for name in waiting:
            left = self.bounds.setdefault(name, _running(snapshot)) & _running(snapshot)
            assert left or decisions, f"{name} could have started"
            self.waited += 1
        return decisions


def _running(snapshot: Snapshot) -> set[Attempt]:
    return {
        (launch.phase, launch.task, launch.attempt)
        for phases in snapshot.jobs_left()
        for launch in snapshot.attempts_of(phases[0].id.job)
    }


def two_gangs_that_wait() -> Case:
    """A gang near its input has waited; another becomes ready at the instant it may start."""
    near = [Block(frozenset(["h0"]))]
    first, second = frozenset(["p0"]), frozenset(["p0", "p1"])
    jobs = [
        Job("j0", (Phase("p0", Tasks(1, 0.0)),), pool="a"),
        Job("j1", (Phase("p0", Tasks(1, 0.0)),), pool="a"),
        Job(
            "j2",
            (Phase("p0", Tasks(1, 0.0)), Phase("p1", Tasks(3, 2.5), "reduce", first)),
            pool="a",
        ),
        Job(
            "j3",
            (
                Phase("p0", Tasks(2, 0.0), gang=True),
                Phase("p1", Tasks(2, 0.0, near * 2), "reduce", first, gang=True),
            ),
            pool="a",
        ),
        Job(
            "j4",
            (
                Phase("p0", Tasks(1, 0.0)),
                Phase("p1", Tasks(4, 2.5, near * 4), "map", first, gang=True),
                Phase("p2", Tasks(1, 0.0), "reduce", second),
            ),
            pool="b",
        ),
    ]
    pools = (Pool("a", 2.0, slots_max={"task": 4}), Pool("b", 0.5))
    options: dict[str, object] = {"name": "fifo", "assigner": "flow", "waits": (0.4, 1.1)}
    return Case(tuple(jobs), Cluster((Host("h0", {"task": 4}),)), pools, Simulation(), options)


@given(cases(is_calm=True))
@example(two_gangs_that_wait())
@settings(max_examples=EXAMPLES)
def test_each_gang_starts_within_its_bound(case: Case) -> None:
    """The first gang of the queue waits at most for the tasks that run when it is first."""
    scheduler = make_scheduler(**case.options)
    # Flow launches gangs one by one, by delay if it has waits.
    waits = case.options["waits"] if case.options["assigner"] == "flow" else None
    assigner = Delay(*waits) if waits else scheduler.assigner
    near_after = getattr(assigner, "near_after", lambda phase: 0.0)
    state = State(case.cluster, case.pools)
    backend = SimulatedBackend(case.cluster, case.jobs, case.simulation)
    run(WatchedWaits(scheduler, near_after), backend, state, lambda *turn: None)
