"""The oracles for jobs that are DAGs agree with closed forms and with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from oracles.dag_grid import grid_value
from oracles.dag_lists import best_list, best_phase_list, in_file_order, longest_tail_first
from oracles.dag_optimum import optimum
from oracles.dags import (
    OBJECTIVES,
    PENALTIES,
    Due,
    Flows,
    chain,
    flows,
    fork_join,
    job_of,
    paper_flows,
    random_flows,
)
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from tiers import examples

MAKESPAN = Objective("makespan", "max")
HIGHS = 1e-7
"""Precision of HiGHS for linear programs."""
MIXED = 2e-5
"""Precision for binaries, where fractions of 1e-6 of them count."""


def phase(name: str, work: float, max_share: int, *after: str, kind: str = "task") -> Phase:
    """A phase of `max_share` equal tasks."""
    return Phase(name, Tasks(max_share, work / max_share), kind, after=frozenset(after))


def name_of(objective: Objective) -> str:
    """As in the names of tests."""
    return f"{objective.aggregate} {objective.penalty}"


def test_a_chain_takes_its_critical_path() -> None:
    """30 on 3 slots, 8 on 8 of 5, 7 on 1: 10 + 1.6 + 7 s."""
    job = Job("j", (phase("a", 30, 3), phase("b", 8, 8, "a"), phase("c", 7, 1, "b")))
    for penalty in (MAKESPAN, Objective("response")):
        assert optimum([job], Cluster.of_slots(5), penalty) == pytest.approx(18.6)


@pytest.mark.parametrize(
    ("work", "max_share", "slots", "end"),
    [
        ((40, 40), (8, 8), 10, 8.0),
        ((40, 4), (4, 4), 10, 10.0),
        ((3, 5, 9), (2, 9, 9), 9, 17 / 9),
    ],
)
@pytest.mark.parametrize("is_one_job", [True, False])
def test_independent_phases_end_together_or_with_the_longest(
    work: Sequence[float], max_share: Sequence[int], slots: int, end: float, is_one_job: bool
) -> None:
    """The makespan is max(sum W / P, max W / most), in one job or in many; FLEX's 8.0 too."""
    phases = [
        phase(f"p{i}", w, m) for i, (w, m) in enumerate(zip(work, max_share, strict=True))
    ]
    jobs = [Job("j", tuple(phases))] if is_one_job else [Job(p.name, (p,)) for p in phases]
    assert optimum(jobs, Cluster.of_slots(slots), MAKESPAN) == pytest.approx(end)
    assert best_list(jobs, Cluster.of_slots(slots), MAKESPAN) >= end - 1e-9


def test_lists_miss_the_makespan_of_flex_lemma_1() -> None:
    """Two jobs of 40 on 10 slots, 8 each at most: every list ends at 8.75."""
    jobs = [Job(name, (phase("p", 40, 8),)) for name in "ab"]
    assert best_phase_list(jobs, Cluster.of_slots(10), MAKESPAN) == pytest.approx(8.75)


def test_the_longer_chain_goes_first() -> None:
    """One slot each: a long chain and short work; 2 slots, 4 + 4 of work, done by 4."""
    long = Job("long", tuple(phase(f"p{i}", 1, 1, *[f"p{i - 1}"] * (i > 0)) for i in range(4)))
    short = Job("short", tuple(phase(f"p{i}", 1, 1) for i in range(4)))
    two = Cluster.of_slots(2)
    assert optimum([short, long], two, MAKESPAN) == pytest.approx(4)
    assert best_list([short, long], two, MAKESPAN) == pytest.approx(4)
    # Both at 4, or the short one at 2 and the chain behind it at 6.
    assert optimum([short, long], two, Objective("response")) == pytest.approx(8)
    assert optimum([short, long], two, Objective("response", "max")) == pytest.approx(4)


def test_the_order_within_a_job_counts() -> None:
    """What is wide stands before a chain in the file, but the chain takes longer."""
    job = Job("j", (phase("wide", 7, 2), phase("a", 4, 1), phase("b", 4, 1, "a")))
    two = Cluster.of_slots(2)
    assert best_list([job], two, MAKESPAN, in_file_order) == pytest.approx(11.5)
    assert best_list([job], two, MAKESPAN, longest_tail_first) == pytest.approx(8)
    assert optimum([job], two, MAKESPAN) == pytest.approx(8)


def test_a_barrier_costs_what_it_does_in_the_paper() -> None:
    """Two chains in one job that cross: b waits for a, d for c, nothing for both."""
    job = Job(
        "j", (phase("a", 2, 2), phase("b", 6, 1, "a"), phase("c", 6, 1), phase("d", 2, 2, "c"))
    )
    assert optimum([job], Cluster.of_slots(3), MAKESPAN) == pytest.approx(7)
    assert optimum([job], Cluster.of_slots(2), MAKESPAN) == pytest.approx(8)


@pytest.mark.parametrize(
    ("penalty", "aggregate", "expected"),
    [
        ("response", "sum", 1 * 4 + 3 * 2),  # Smith: b first.
        ("lateness", "sum", 1 * (4 - 2) + 3 * (2 - 1)),
        ("tardiness", "sum", 1 * 2 + 3 * 1),
        ("tardy", "sum", 3.0),  # a can be done by 2 and b cannot by 1.
        ("sla", "sum", 5.0),
        ("tardy", "max", 3.0),
        ("sla", "max", 5.0),
        ("stretch", "max", 3.0),  # b at 2 costs 3 * 2 / 2; a at 4, 2.
        ("makespan", "max", 4.0),
    ],
)
def test_two_jobs_by_hand(penalty: str, aggregate: str, expected: float) -> None:
    """a and b take 2 s each on 1 slot; a is due at 2, b at 1 with three times the weight."""
    a = Job("a", (phase("p", 2, 1),), weight=1, deadline=2, steps=((2, 1), (3.5, 9)))
    b = Job(
        "b", (phase("p", 1, 1), phase("q", 1, 1, "p")), weight=3, deadline=1, steps=((1, 5),)
    )
    objective = Objective(penalty, aggregate)
    one = Cluster.of_slots(1)
    assert optimum([a, b], one, objective) == pytest.approx(expected)
    assert grid_value([a, b], one, objective, 0.5, 8) == pytest.approx(expected)
    assert best_phase_list([a, b], one, objective) == pytest.approx(expected)


def test_a_step_is_passed_where_that_keeps_the_maximum_low() -> None:
    """Two jobs of 6 s on 1 slot: one costs its end, the other half a second after 6."""
    a, b = (Job(name, (phase("p", 6, 1),), steps=((6, 0.5),)) for name in "ab")
    a = replace(a, penalty="response")
    assert optimum([a, b], Cluster.of_slots(1), Objective("sla", "max")) == pytest.approx(6)


def test_kinds_have_their_own_slots() -> None:
    """Johnson's flow shop, a slot of each kind: maps 1 and 3, reduces 3 and 1, done by 5."""
    cluster = Cluster((Host("h", {"map": 1, "reduce": 1}),))
    jobs = [
        Job(
            name,
            (phase("m", maps, 1, kind="map"), phase("r", reduces, 1, "m", kind="reduce")),
        )
        for name, maps, reduces in (("a", 1, 3), ("b", 3, 1))
    ]
    assert optimum(jobs, cluster, MAKESPAN) == pytest.approx(5)
    assert grid_value(jobs, cluster, MAKESPAN, 1, 6) == pytest.approx(5)
    assert best_list(jobs, cluster, MAKESPAN) == pytest.approx(5)


def test_a_phase_without_work_still_waits() -> None:
    """Nothing between 2 s and 3 s: the last begins at 2."""
    job = Job("j", (phase("a", 2, 1), phase("b", 0, 1, "a"), phase("c", 3, 1, "b")))
    cluster = Cluster.of_slots(2)
    assert optimum([job], cluster, MAKESPAN) == pytest.approx(5)
    assert best_list([job], cluster, MAKESPAN) == pytest.approx(5)
    assert grid_value([job], cluster, MAKESPAN, 1, 6) == pytest.approx(5)


def unit_flows(seed: int) -> Flows:
    """Works that whole slots do in whole seconds, so that much falls on a grid; 5 phases."""
    rng = np.random.default_rng(seed)
    found = random_flows(rng, int(rng.integers(1, 4)), 3, int(rng.integers(1, 4)))
    jobs = []
    for job in found.jobs:
        work = rng.integers(1, 4, len(job.phases))
        edges = {(int(before[1:]), int(p.name[1:])) for p in job.phases for before in p.after}
        own = rng.choice([None, None, None, *PENALTIES])
        due = Due(job.weight, float(rng.integers(0, 6)), ((2.0, 1.0), (4.0, 3.0)), own)
        max_share = [p.slots_most for p in job.phases]
        jobs.append(job_of(job.id, work.tolist(), max_share, frozenset(edges), due))
    return Flows(tuple(jobs), found.slots)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=name_of)
def test_the_two_oracles_agree(objective: Objective) -> None:
    """The grid from above and from below brackets the programs of all orders."""
    tight = 0
    for seed in range(examples(2, slow=0), examples(3, slow=20)):
        case = unit_flows(seed)
        cluster = case.cluster
        area = sum(job.work for job in case.jobs) / case.slots
        steps = (
            int(area + max(sum(p.tasks.work_total() for p in j.phases) for j in case.jobs)) + 1
        )
        best = optimum(case.jobs, cluster, objective)
        above = grid_value(case.jobs, cluster, objective, 1.0, steps)
        below = grid_value(case.jobs, cluster, objective, 1.0, steps, is_above=False)
        slip = MIXED * max(1.0, abs(best))
        assert below <= best + slip, (seed, case)
        assert best <= above + slip, (seed, case)
        tight += above <= best + slip
    assert tight, "on some of them the grid is as good as any schedule"


@given(flows(jobs_most=3, phases_most=3, total_most=4, mixed=True, with_zero=True))
@settings(max_examples=examples(4, slow=100))
def test_no_list_is_better_than_the_optimum(case: Flows) -> None:
    """Lists of phases are no better than the optimum, lists of jobs no better than these."""
    for objective in OBJECTIVES[:: len(OBJECTIVES) // 3]:
        best = optimum(case.jobs, case.cluster, objective)
        of_phases = best_phase_list(case.jobs, case.cluster, objective)
        slip = HIGHS * max(1.0, abs(best))
        assert best <= of_phases + slip
        assert of_phases <= best_list(case.jobs, case.cluster, objective) + slip


def test_drawn_flows_have_the_stated_sizes() -> None:
    """5 to 20 flows of 2 to 20 phases, all sinks before the last, 25 slots."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        case = paper_flows(rng)
        assert case.slots == 25
        assert 5 <= len(case.jobs) <= 20
        for job in case.jobs:
            assert 2 <= len(job.phases) <= 20
            waited = {name for p in job.phases for name in p.after}
            assert [p.name for p in job.phases if p.name not in waited] == [job.phases[-1].name]


def test_shapes_have_their_stated_edges() -> None:
    """A diamond is a fork and a join of four; a chain of one has no edges."""
    assert fork_join(4) == {(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)}
    assert chain(1) == frozenset()
