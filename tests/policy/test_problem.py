"""Claims: the numeric problem of an allocator, from the state of a run."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.state import State
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.claims import allocate, claims_of, group_by_shares, urgencies, weights_of
from slotwise.policy.fair import Fair

INF = float("inf")


def test_a_pool_with_shares_for_each_kind_makes_two_groups() -> None:
    """The weight is split between the share of maps and that of all other kinds."""
    pools = PoolTree(
        [
            Pool("a", 4.0, slots_min={"map": 3}, slots_max={"task": 9}),
            Pool("b", policy="fifo"),
        ]
    )
    paths = [pools.shares("a", "map"), pools.shares("b", "map"), pools.shares("a", "reduce")]
    group, groups = group_by_shares(paths, pools)
    assert group == [0, 1, 2]
    assert groups == [
        Group(2.0, 3, INF),
        Group(1.0, 0, INF, "fifo"),
        Group(2.0, 0, 9),
    ]


def test_shares_of_nested_pools_form_a_forest() -> None:
    """Outer shares come before those in them; b splits its weight between two siblings.

    Below the maps of "top" lie those of b alone; below its other share, two of b and one of c.
    """
    pools = PoolTree(
        [
            Pool("top", 3.0, slots_max={"map": 8}),
            Pool("b", 6.0, slots_min={"map": 1, "reduce": 2}, parent="top"),
            Pool("c", 5.0, parent="top"),
        ]
    )
    kinds = [("b", "map"), ("b", "reduce"), ("c", "reduce"), ("b", "copy"), ("b", "map")]
    group, groups = group_by_shares([pools.shares(*kind) for kind in kinds], pools)
    assert group == [1, 3, 4, 5, 1]
    assert groups == [
        Group(1.5, 0, 8),
        Group(6.0, 1, INF, parent=0),
        Group(1.5, 0, INF),
        Group(3.0, 2, INF, parent=2),
        Group(5.0, 0, INF, parent=2),
        Group(3.0, 0, INF, parent=2),
    ]


def test_the_weight_of_a_claim_combines_job_priority_and_size() -> None:
    """High priority doubles a weight; 7 tasks of a job multiply it by three: log2(1 + 7)."""
    pools = PoolTree([Pool("stated"), Pool("size", job_weights="size")])
    phases = (Phase("map", Tasks(7, 1.0)),)
    plain = Job("plain", phases, pool="stated", weight=5.0, priority="high")
    sized = Job("sized", phases, pool="size", weight=5.0, priority="high")
    tasks = {"sized": 7}
    assert weights_of([plain, sized], tasks.__getitem__, pools) == [10.0, 30.0]
    assert weights_of([plain], tasks.__getitem__, PoolTree([Pool("stated")])) == [10.0]
    assert urgencies([plain, Job("other", phases)]) == [2.0, 1.0]
    assert urgencies([Job("one", phases), Job("other", phases)]) == []


def test_the_size_of_a_job_counts_all_its_unfinished_tasks() -> None:
    """Two maps run; 13 more tasks wait, those of the reduce too: log2(1 + 15) = 4."""
    phases = (
        Phase("map", Tasks(8, 4.0)),
        Phase("other", Tasks(4, 4.0)),
        Phase("reduce", Tasks(4, 4.0), after=frozenset({"map"})),
    )
    state = State(Cluster.of_slots(2, "h"), [Pool("p", job_weights="size")])
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", phases, pool="p")))
    state.apply(Launch(PhaseId("j", "map"), 0, 1, "h", Locality.NODE))
    state.apply(Launch(PhaseId("j", "map"), 1, 1, "h", Locality.NODE))
    state.at(4.0)
    state.apply(TaskFinished(4.0, PhaseId("j", "map"), 0, 1, 4.0))
    _, claims = claims_of(state, "task")
    assert claims.weight == [4.0, 4.0]


def test_claims_state_the_work_left_and_the_usable_slots() -> None:
    """Of 5 tasks of 4 s one is done after 8 s: 4 are left, each twice as long as stated."""
    phase = Phase("map", Tasks(5, 4.0), slots_min=2, slots_max=9)
    state = State(Cluster.of_slots(2, "h"))
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (phase,), weight=3.0)))
    map_id = PhaseId("j", "map")
    state.apply(Launch(map_id, 0, 1, "h", Locality.NODE))
    state.at(8.0)
    state.apply(TaskFinished(8.0, map_id, 0, 1, 8.0))
    ids, claims = claims_of(state, "task")
    assert ids == [map_id]
    assert (claims.capacity, claims.weight, claims.now) == (2, [3.0], 8.0)
    assert [(job.id, phase.name) for job, phase in claims.owner] == [("j", "map")]
    assert (claims.min_share, claims.max_share, claims.work) == ([2], [4], [32.0])


def test_each_kind_of_slot_is_shared_separately() -> None:
    """Maps share map slots; phases of a kind without slots use the plain ones."""
    cluster = Cluster((Host("h", {"map": 6, "task": 3}),))
    state = State(cluster)
    state.at(0.0)
    for name in "ab":
        phases = (Phase("map", Tasks(9, 1.0), kind="map"), Phase("x", Tasks(9, 1.0), kind="x"))
        state.apply(JobArrived(0.0, Job(name, phases)))
    assert allocate(Fair(), state) == {
        PhaseId("a", "map"): 3,
        PhaseId("b", "map"): 3,
        PhaseId("a", "x"): 1.5,
        PhaseId("b", "x"): 1.5,
    }


@pytest.mark.parametrize("shares", [[9.0], [5.0, 6.0], [-1.0, 2.0], [float("nan"), 1.0]])
def test_guarantees_of_an_allocator_are_asserted(shares: list[float]) -> None:
    """A wrong allocator is named immediately, not by a later error."""

    class Wrong:
        reads_work = False

        def share(self, claims: Claims) -> list[float]:
            return shares

    jobs = [Job(name, (Phase("a", Tasks(9, 1.0)),)) for name in "xy"]
    state = State(Cluster.of_slots(10))
    state.at(0.0)
    for job in jobs:
        state.apply(JobArrived(0.0, job))
    with pytest.raises(AssertionError, match="Wrong gives"):
        allocate(Wrong(), state)
