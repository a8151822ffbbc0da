"""The bound of jobs that are DAGs of phases: never above what some schedule of them costs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.flowflex.generator import FlowGenerator
from oracles.dag_optimum import optimum
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Aggregate, Objective
from slotwise.insight.bound import Work, _Limits, objective_bound, sizes_of
from slotwise.plans import plan
from slotwise.policy.bounds import BoundJobs, lower_bound
from slotwise.policy.bounds.height import critical_path
from slotwise.workload.workload import Workload
from tiers import examples

OBJECTIVES = [
    *(
        Objective(name, "sum")
        for name in ("response", "stretch", "tardy", "tardiness", "lateness", "sla")
    ),
    *(
        Objective(name, "max")
        for name in ("response", "stretch", "tardy", "tardiness", "lateness", "sla", "makespan")
    ),
]


def random_job(
    random: Random, number: int, kinds: list[str], arrivals: bool, zero: float = 0.0
) -> Job:
    """A DAG of any shape: a chain, a fan, phases side by side or anything between."""
    count = random.choice([1, 2, 3, random.randint(4, 9)])
    joined = random.choice([0.0, 0.2, 0.5, 1.0])
    scale = random.choice([1.0, 1.0, 8.0])
    phases = []
    for k in range(count):
        before = [f"p{i}" for i in range(k) if random.random() < joined]
        if random.random() < 0.3 and k == count - 1:
            before = [f"p{i}" for i in range(k)]
        tasks = Tasks(
            random.randint(1, 6), scale * random.choice([1.0, random.uniform(0.1, 3)])
        )
        most = random.choice([None, 1, 3, 20])
        kind = random.choice(kinds)
        phases.append(Phase(f"p{k}", tasks, kind, frozenset(before), slots_max=most))
    due = zero + random.choice([5.0, random.uniform(0, 40)])
    steps = ((due, 1.0), (due + random.uniform(0.1, 9), random.choice([2.0, 3.5])))
    return Job(
        f"job{number}",
        tuple(phases),
        arrival=zero + random.choice([0.0, random.uniform(0, 9)]) if arrivals else zero,
        weight=random.choice([1.0, 1.0, random.uniform(0.2, 9)]),
        deadline=due,
        steps=steps,
    )


def with_dependencies(jobs: list[Job], random: Random) -> list[Job]:
    """The jobs, some of which wait for earlier ones of the list."""
    return [
        replace(job, after={other.id for other in jobs[:place] if random.random() < 0.4})
        for place, job in enumerate(jobs)
    ]


def completions(jobs: list[Job], cluster: Cluster, random: Random) -> dict[str, float]:
    """Of one schedule: ready phases get, in a random order, a part of what they could have."""
    rank = {PhaseId(j.id, p.name): random.random() for j in jobs for p in j.phases}
    if random.random() < 0.7:  # Job by job, so that some of them are done early.
        first = {j.id: random.random() for j in jobs}
        rank = {name: first[name.job] + 1e-3 * r for name, r in rank.items()}
    lazy = random.choice([1.0, 1.0, 1.0, 0.5])
    left = {PhaseId(j.id, p.name): p.tasks.work_total() or 0.0 for j in jobs for p in j.phases}
    ends: dict[PhaseId, float] = {}
    now = 0.0
    while len(ends) < len(left):
        ready = [
            (PhaseId(job.id, phase.name), phase)
            for job in jobs
            for phase in job.phases
            if job.arrival <= now
            and PhaseId(job.id, phase.name) not in ends
            and all(PhaseId(job.id, other) in ends for other in phase.after)
            and all(name in ends for name in left if name.job in job.after)
        ]
        free = {kind: float(slots) for kind, slots in cluster.capacity.items()}
        held = {}
        for name, phase in sorted(ready, key=lambda pair: rank[pair[0]]):
            kind = cluster.slot_kind(phase.kind)
            held[name] = min(float(phase.slots_most), free[kind]) * random.uniform(lazy, 1.0)
            free[kind] -= held[name]
        coming = [job.arrival - now for job in jobs if job.arrival > now]
        spans = [left[name] / slots for name, slots in held.items() if slots > 0]
        step = min(coming + spans)
        now = min(j.arrival for j in jobs if j.arrival > now) if step in coming else now + step
        for name, slots in held.items():
            left[name] -= slots * step
            if left[name] <= 1e-12:
                ends[name] = now
    return {job.id: max(ends[PhaseId(job.id, p.name)] for p in job.phases) for job in jobs}


def clusters(random: Random) -> tuple[Cluster, list[str]]:
    """Slots that serve all kinds, or two kinds of slots."""
    if random.random() < 0.5:
        return Cluster.of_slots(random.randint(1, 8)), ["map", "reduce"]
    slots = {"map": random.randint(1, 6), "reduce": random.randint(1, 4)}
    return Cluster((Host("h", slots),)), ["map", "reduce"]


@settings(max_examples=examples(8, slow=1000))
@given(
    st.integers(0, 2**32),
    st.sampled_from(OBJECTIVES),
    st.booleans(),
    st.sampled_from([0.0, 0.0, 86_400.0, 1.7e9]),
    st.booleans(),
)
@example(
    279_456, Objective("response", "sum"), True, 0.0, False
)  # Rounded slopes cost more than 0.
def test_no_schedule_costs_less_than_the_bound(
    seed: int, objective: Objective, arrivals: bool, zero: float, depends: bool
) -> None:
    """DAGs of all shapes on one or two kinds of slots, early and late on the clock."""
    random = Random(seed)
    cluster, kinds = clusters(random)
    count = random.randint(1, 6)
    jobs = [random_job(random, number, kinds, arrivals, zero) for number in range(count)]
    if random.random() < 0.2:
        jobs = [
            Job(f"{job.id} again", jobs[0].phases, arrival=zero, deadline=zero + 7)
            for job in jobs
        ]
        objective = Objective("tardiness", objective.aggregate)
    if depends:
        jobs = with_dependencies(jobs, random)
    work = Work.estimated(jobs)
    by_id, sizes = {job.id: job for job in jobs}, sizes_of(jobs, cluster, work)
    bound = objective_bound(objective, jobs, cluster, work)
    made = [completions(jobs, cluster, random) for _ in range(5)]
    value = min(objective.value(by_id, ends, sizes) for ends in made)
    assert bound <= value + 1e-9 * abs(value)
    known = objective_bound(objective, jobs, cluster, work, None, value)
    assert known <= value + 1e-9 * abs(value)


@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_contention_between_phases_of_one_job_is_in_the_bound(aggregate: Aggregate) -> None:
    """Two phases of 40 side by side on 10 slots, then one of 8 on one slot: 8 + 8 s."""
    phases = (
        Phase("a", Tasks(10, 4.0)),
        Phase("b", Tasks(10, 4.0)),
        Phase("c", Tasks(1, 8.0), after=frozenset({"a", "b"})),
    )
    jobs = [Job("j", phases)]
    bound = objective_bound(
        Objective("response", aggregate),
        jobs,
        Cluster.of_slots(10),
        Work.estimated(jobs),
    )
    assert bound == pytest.approx(16.0)


@pytest.mark.parametrize("depends", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: f"{o.aggregate}-{o.penalty}")
def test_no_bound_is_above_the_optimum(objective: Objective, depends: bool) -> None:
    """Small problems, solved by linear programs for each order of events; most are equal."""
    met, cases = 0, examples(4, slow=12)
    for seed in range(cases):
        random = Random(seed)
        cluster, kinds = clusters(random)
        jobs: list[Job] = []
        while not jobs or sum(len(job.phases) for job in jobs) > 4:
            jobs = [random_job(random, n, kinds, False) for n in range(random.randint(1, 3))]
        jobs = with_dependencies(jobs, random) if depends else jobs
        best = optimum(jobs, cluster, objective)
        bound = objective_bound(objective, jobs, cluster, Work.estimated(jobs))
        assert bound <= best + 1e-6 * abs(best) + 1e-7
        met += bound >= best - 1e-4 * abs(best) - 1e-7
        planned = plan(Workload(tuple(jobs), cluster), "flowflex", objective=objective)
        assert best - 1e-6 * abs(best) - 1e-7 <= planned.value
    assert met >= cases * 3 / 4


@pytest.mark.parametrize("seed", range(examples(1, slow=6)))
def test_knowing_the_phases_only_raises_the_bound(seed: int) -> None:
    """Flows as in FlowFlex 5.1: never lower for a maximum, and higher in total for sums."""
    jobs = FlowGenerator(flows_most=examples(6, slow=12)).draw(np.random.default_rng(seed))
    cluster = Cluster.of_slots(25)
    limits = _Limits(jobs, cluster, Work.estimated(jobs), has_changed=False)
    sums = np.zeros(2)
    for objective in OBJECTIVES:
        known = limits.bound_jobs(objective, jobs, limits.views[0], {})
        plain = BoundJobs.of(
            list(known.costs),
            known.arrival,
            known.work,
            known.rate,
            [critical_path(limits._nodes(job)) for job in jobs],
        )
        new, old = (lower_bound(some, 25.0, objective.aggregate) for some in (known, plain))
        if objective.aggregate == "max":
            assert new >= old - 1e-9 * abs(old)
        else:
            sums += new / max(abs(old), 1.0), old / max(abs(old), 1.0)
    assert sums[0] > sums[1]
