"""Random phases of wide and narrow tasks, under every scheduler that takes them.

State and scheduler are checked at every turn (tests/conftest.py). Here the log is judged, by
code that shares nothing with the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from properties.test_pools import Faults
from properties.test_runs import reread
from slotwise.backends.simulated.backend import Simulation
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.policy.scheduler import ALLOCATORS
from tiers import examples

EXAMPLES = examples(20, slow=1000)
WIDEST = 3


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
    """One host on which every task fits, and perhaps smaller ones, of one or two kinds."""
    kinds = draw(st.sampled_from([("task",), ("task",), ("map", "reduce")]))
    sizes = [
        draw(st.integers(WIDEST, 5)),
        *draw(st.lists(st.integers(1, 4), max_size=2)),
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
    """One or two phases; each task occupies one to three slots."""
    phases: list[Phase] = []
    for place, kind in enumerate(draw(st.sampled_from([("map",), ("map", "reduce")]))):
        count, width = draw(st.integers(1, 7)), draw(st.integers(1, WIDEST))
        seconds = draw(st.sampled_from([0.0, 0.3, 1.0, 2.5, None]))
        hosts = st.frozensets(st.sampled_from([*cluster.by_name]), min_size=1)
        has_homes = draw(st.booleans())
        phases.append(
            Phase(
                kind,
                Tasks(
                    count,
                    1.0 if seconds is None else seconds,
                    [Block(draw(hosts)) for _ in range(count)] if has_homes else (),
                ),
                kind,
                frozenset(phase.name for phase in phases[:place]),
                slots_min=draw(st.sampled_from([0, 0, 1, 2])),
                slots_max=draw(st.sampled_from([None, None, WIDEST, 4])),
                slots=width,
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
def pools_of(draw: st.DrawFn, least_most: int) -> tuple[Pool, ...]:
    """Two of the pools of the jobs, with shares; one holds at most `least_most` slots or more.

    They may take slots back.
    """
    preemption = Preemption(
        draw(st.sampled_from([0.0, 0.5])),
        draw(st.sampled_from([1.0, float("inf")])),
        grace=draw(st.sampled_from([0.0, 0.4])),
    )
    return (
        Pool(
            "a",
            2.0,
            {"task": draw(st.integers(0, 3))},
            {"task": draw(st.integers(least_most, least_most + 2))},
            preemption=draw(st.sampled_from([None, preemption])),
        ),
        Pool("b", 0.5, {"task": draw(st.integers(0, 4))}, preemption=preemption),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A cluster that wide and narrow tasks share in any of the ways in which they may."""
    cluster = draw(clusters())
    jobs = tuple(draw(jobs_of(number, cluster)) for number in range(draw(st.integers(1, 6))))
    pools = draw(pools_of(WIDEST))
    one_in = draw(st.sampled_from([0, 0, 9, 4]))
    outages = [Outage("h0", draw(st.sampled_from([0.4, 1.3])), 3.0)] * draw(st.integers(0, 1))
    simulation = Simulation(
        seed=draw(st.integers(0, 9)),
        noise=draw(st.sampled_from([0.0, 0.6])),
        fault=Faults(one_in) if one_in else None,
        save_seconds=draw(st.sampled_from([None, 0.1])),
        outages=tuple(outages),
    )
    assigner = draw(st.sampled_from(["greedy", "delay"]))
    options = {
        "name": draw(st.sampled_from(list(ALLOCATORS))),
        "assigner": assigner,
        "waits": draw(st.sampled_from([None, (0.4, 1.1)])) if assigner == "delay" else None,
    }
    return Case(jobs, cluster, pools, simulation, options)


@given(cases())
@settings(max_examples=EXAMPLES)
def test_wide_and_narrow_tasks_share_hosts(
    simulated: Callable[..., object], case: Case
) -> None:
    """All jobs end, no host or share is exceeded, the bound holds, and the log replays."""
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **case.options
    )
    state = watch.state
    assert state.completed.keys() | state.failed.keys() == {job.id for job in case.jobs}
    check_slots(case, watch.log)
    log = reread(watch.log)
    assert replay_log(log).is_identical
    outcome = MetricsCollector.of_log(log).outcome()
    value = outcome.metrics["value"]
    assert value is None or outcome.bound <= value, "a bound is never above what was reached"
    assert 0 <= outcome.metrics["utilisation"] <= 1 + 1e-9


def check_slots(case: Case, log: object) -> None:
    """No host runs tasks of more slots than it has, no phase or pool of more than its most."""
    phases = {PhaseId(job.id, p.name): (job, p) for job in case.jobs for p in job.phases}
    most = {pool.name: pool.slots_max.get("task", 10**9) for pool in case.pools}
    running: dict[tuple[PhaseId, int], Launch] = {}
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                running.pop((event.phase, event.task), None)
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                running[decision.phase, decision.task] = decision
        held: Counter[object] = Counter()
        for launch in running.values():
            job, phase = phases[launch.phase]
            kind = case.cluster.slot_kind(phase.kind)
            held[launch.host, kind] += phase.slots
            held[launch.phase] += phase.slots
            held[job.pool] += phase.slots
        for what, slots in held.items():
            if isinstance(what, PhaseId):
                limit = phases[what][1].slots_max or 10**9
            elif isinstance(what, str):
                limit = most.get(what, 10**9)
            else:
                limit = case.cluster.by_name[what[0]].slots[what[1]]
            assert slots <= limit, f"{what} holds {slots} of at most {limit} slots"
