"""FlowFlex as an allocator: the first allocation of the plan, within min and max shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dags import OBJECTIVES, flows
from oracles.dags import Flows as Drawn
from oracles.pools import all_fit, demand, held_by, owed, trees
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import PENALTIES, Objective
from slotwise.core.pools import Pool, PoolTree
from slotwise.policy.allocator import Claims, is_joint
from slotwise.policy.flowflex.allocator import FlowFlex
from slotwise.policy.flowflex.solve import Method
from slotwise.policy.fluid import claims_of_progress, fluid_schedule, progress_of
from slotwise.policy.planning import plan_schedules
from slotwise.policy.resource_shares import share_all
from slotwise.policy.scheduler import ALLOCATORS, make_allocator
from tiers import examples

EXAMPLES = examples(20, slow=1000)
METHODS: tuple[Method, ...] = ("best", "fast", "paper")
NEAR = 1e-9
QUICK = 1e-3
"""Seconds of search: some steps."""


def phase(name: str, work: float, max_share: int, *after: str, kind: str = "task") -> Phase:
    """A phase with this number of tasks."""
    return Phase(name, Tasks(max_share, work / max_share), kind, after=frozenset(after))


def first_claims(
    jobs: Sequence[Job], cluster: Cluster, pools: PoolTree | None = None
) -> dict[str, Claims]:
    """The claims of unstarted jobs, on each kind of slot."""
    tree = pools or PoolTree([Pool(name) for name in sorted({job.pool for job in jobs})])
    ready = [progress_of(job, p) for job in jobs for p in job.phases if not p.waits_for]
    return {
        kind: claims_of_progress(of_kind, capacity, cluster, tree)
        for kind, capacity in cluster.capacity.items()
        if (of_kind := [r for r in ready if cluster.slot_kind(r.phase.kind) == kind])
    }


def test_the_names_by_which_users_know_it() -> None:
    """With and without the network, with and without our search; all consider whole jobs."""
    made = {name: make_allocator(name) for name in ALLOCATORS if name.startswith("flowflex")}
    methods = {name: allocator.method for name, allocator in made.items()}
    assert methods == {
        "flowflex": "best",
        "flowflex-fast": "fast",
        "flowflex-paper": "paper",
    }
    assert all(is_joint(allocator) for allocator in made.values())


@pytest.mark.parametrize("method", METHODS)
def test_future_phases_count(method: Method) -> None:
    """The first phases are equal, but a long one follows a's, so b is first."""
    a = Job("a", (phase("p", 10, 10), phase("q", 100, 10, "p")))
    b = Job("b", (phase("p", 10, 10), phase("q", 5, 10, "p")))
    cluster = Cluster.of_slots(10)
    (claims,) = first_claims([a, b], cluster).values()
    assert FlowFlex(method=method).share(claims) == [0, 10]
    assert FlowFlex(method=method).share_all({"task": claims}) == {"task": [0, 10]}


@pytest.mark.parametrize("method", ["best", "fast"])
def test_the_longest_path_of_a_flow_goes_first(method: Method) -> None:
    """Of two ready phases of a job, the one before a long chain holds its max share."""
    job = Job(
        "j",
        (
            phase("wide", 12, 4),
            phase("head", 4, 2),
            phase("tail", 12, 2, "head"),
        ),
    )
    (claims,) = first_claims([job], Cluster.of_slots(4)).values()
    assert FlowFlex(method=method).share(claims) == [2, 2]


def test_flows_that_are_due_go_first() -> None:
    """For tardiness the long job that is due soon is before the short one that is not."""
    long = Job("long", (phase("p", 40, 4), phase("q", 4, 4, "p")), deadline=11.0)
    short = Job("short", (phase("p", 4, 4),), deadline=100.0)
    (claims,) = first_claims([short, long], Cluster.of_slots(4)).values()
    for aggregate in ("sum", "max"):
        objective = Objective("tardiness", aggregate)
        assert FlowFlex(objective).share(claims) == [0, 4]
    assert FlowFlex().share(claims) == [4, 0]


def test_kinds_of_slots_are_planned_together() -> None:
    """The job with long reduces gets map slots first, and the reduce slots now."""
    cluster = Cluster((Host("h", {"map": 4, "reduce": 2}),))
    jobs = [
        Job("x", (phase("m", 16, 4, kind="map"), phase("r", 2, 2, "m", kind="reduce"))),
        Job("y", (phase("m", 16, 4, kind="map"), phase("r", 60, 2, "m", kind="reduce"))),
        Job("z", (phase("r", 2, 2, kind="reduce"),)),
    ]
    claims = first_claims(jobs, cluster)
    shares = FlowFlex(Objective("makespan", "max")).share_all(claims)
    assert shares == {"map": [0, 4], "reduce": [2]}


@settings(max_examples=EXAMPLES // 4)
@given(flows(mixed=True), st.sampled_from(OBJECTIVES), st.sampled_from(METHODS))
def test_shares_are_within_max_shares_and_no_slot_idles(
    drawn: Drawn, objective: Objective, method: Method
) -> None:
    """Whole slots, as many as all claims can use together; the same each time."""
    (claims,) = first_claims(drawn.jobs, drawn.cluster).values()
    allocator = FlowFlex(objective, method, QUICK)
    shares = allocator.share(claims)
    assert all(
        0 <= share <= max_share
        for share, max_share in zip(shares, claims.max_share, strict=True)
    )
    assert sum(shares) == min(claims.capacity, sum(claims.max_share))
    assert all(share == int(share) for share in shares)
    assert allocator.share(claims) == shares


@settings(max_examples=EXAMPLES // 3)
@given(trees(), st.sampled_from([p for p in PENALTIES if p != "makespan"]), st.booleans())
def test_pools_keep_their_min_and_max_shares(
    claims: Claims, penalty: str, is_max: bool
) -> None:
    """Trees of pools with guarantees and limits, whatever the objective."""
    owner = [
        (replace(job, deadline=30.0, steps=((10.0, 1.0), (40.0, 3.0))), of)
        for job, of in claims.owner
    ]
    claims = replace(claims, owner=owner)
    objective = Objective(penalty, "max" if is_max else "sum")
    shares = FlowFlex(objective, "fast", QUICK).share(claims)
    held = held_by(claims, shares)
    assert sum(shares) == pytest.approx(min(claims.capacity, demand(claims, -1)))
    for number, slots in enumerate(held):
        assert slots <= demand(claims, number) + NEAR
        if all_fit(claims):
            assert slots >= owed(claims, number) - NEAR


POOLS = [Pool("a", slots_min=3), Pool("b", slots_max=4), Pool("c")]


def pooled_jobs() -> list[Job]:
    """Two flows in each of three pools, one with a min share and one with a max share."""
    return [
        Job(
            f"{pool}{number}",
            (phase("p", 20 + number, 8), phase("q", 30, 6, "p"), phase("r", 8, 8, "p")),
            pool=pool,
        )
        for pool in "abc"
        for number in range(2)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_keeps_the_shares_of_pools(method: Method) -> None:
    """At every instant b has at most 4 slots, and a its 3 while it can use them."""
    jobs, cluster = pooled_jobs(), Cluster.of_slots(10)
    planned = plan_schedules(
        jobs, cluster, PoolTree(POOLS), FlowFlex(method=method, budget_seconds=QUICK)
    )
    (schedule,) = planned.schedules
    schedule.check(jobs, cluster)
    done = schedule.completion()
    last_of_a = max(done["a0"], done["a1"])
    cuts = sorted({at for piece in schedule.pieces for at in (piece.start, piece.end)})
    for start, end in pairwise(cuts):
        if end - start < 1e-9:
            continue
        held = dict.fromkeys("abc", 0)
        for piece in schedule.pieces:
            if piece.start <= start and end <= piece.end:
                held[piece.phase.job[0]] += piece.slots
        assert held["b"] <= 4
        assert sum(held.values()) <= 10
        if end <= last_of_a:
            assert held["a"] >= 3


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_keeps_min_shares_of_phases(method: Method) -> None:
    """A phase with a min share of 2 holds 2 slots from when it is ready until it is done."""
    jobs = [
        Job("owed", (replace(phase("p", 60, 8), slots_min=2),)),
        *(Job(f"j{n}", (phase("p", 10, 8), phase("q", 10, 8, "p"))) for n in range(4)),
    ]
    cluster = Cluster.of_slots(8)
    (schedule,) = plan_schedules(
        jobs, cluster, PoolTree([Pool("default")]), FlowFlex(method=method)
    ).schedules
    schedule.check(jobs, cluster)
    mine = [piece for piece in schedule.pieces if piece.phase.job == "owed"]
    assert mine[0].start == 0
    assert all(one.end == other.start for one, other in pairwise(mine))
    assert all(piece.slots >= 2 for piece in mine)


@settings(max_examples=EXAMPLES // 10)
@given(flows(jobs_most=3, phases_most=4), st.sampled_from(METHODS))
def test_step_by_step_allocation_gives_a_schedule(drawn: Drawn, method: Method) -> None:
    """Deciding again whenever a phase is done gives a schedule of all jobs."""
    allocator = FlowFlex(method=method, budget_seconds=QUICK / 10)
    pools = PoolTree([Pool("default")])
    schedule = fluid_schedule(drawn.jobs, drawn.cluster, pools, allocator)
    schedule.check(drawn.jobs, drawn.cluster)


def test_no_claims_need_no_shares() -> None:
    """Nothing is ready anywhere."""
    assert share_all(FlowFlex(), {}) == {}


@pytest.mark.parametrize("method", METHODS)
def test_a_zero_budget_still_gives_a_decision(method: Method) -> None:
    """Without search there is an allocation."""
    (claims,) = first_claims(pooled_jobs(), Cluster.of_slots(10)).values()
    shares = FlowFlex(method=method, budget_seconds=0.0).share(claims)
    assert sum(shares) == 10
