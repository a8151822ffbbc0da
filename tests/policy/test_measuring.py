"""A slot for each phase of unknown work: which phases get it, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.pools import INF, all_fit, held_by, owed, pooled, trees
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.claims import PART, with_measuring
from slotwise.policy.flex import AddOn, Flex
from slotwise.policy.flowflex.allocator import FlowFlex
from tiers import examples

WHOLE = Group(1.0, 0, INF)
TOLERANCE = 1e-9


def claims_of(
    capacity: int,
    unmeasured: list[bool],
    groups: list[Group] | None = None,
    members: list[tuple[int, float, float]] | None = None,
) -> Claims:
    """Claims without min shares that can use ten slots each, some of them unseen."""
    members = members or [(0, 0.0, 10.0)] * len(unmeasured)
    return replace(pooled(capacity, members, groups or [WHOLE]), unmeasured=unmeasured)


def test_unseen_claims_get_a_slot_each_in_order_of_arrival() -> None:
    """No seen claim waits, so all three slots are for measuring; the fourth gets none."""
    assert with_measuring(claims_of(3, [True] * 4)).min_share == [1, 1, 1, 0]


def test_half_of_the_slots_are_left_to_seen_claims() -> None:
    """Of five slots two are for measuring: one claim is seen and can use the rest."""
    assert with_measuring(claims_of(5, [True, False, True, True])).min_share == [1, 0, 1, 0]


def test_slots_that_seen_claims_cannot_use_are_for_measuring() -> None:
    """The seen claim can use a single slot of five."""
    members = [(0, 0.0, 10.0)] * 4 + [(0, 0.0, 1.0)]
    claims = claims_of(5, [True] * 4 + [False], members=members)
    assert with_measuring(claims).min_share == [1, 1, 1, 1, 0]


def test_a_single_slot_is_for_measuring_first() -> None:
    """One task of each unseen claim comes before the seen claims."""
    assert with_measuring(claims_of(1, [True, False, True])).min_share == [1, 0, 0]


def test_no_guarantee_is_touched() -> None:
    """Of six slots, five are guaranteed to another pool, which can use them."""
    groups = [Group(1.0, 5, INF), WHOLE]
    members = [(0, 0.0, 9.0), (1, 0.0, 9.0), (1, 0.0, 9.0)]
    claims = claims_of(6, [False, True, True], groups, members)
    assert with_measuring(claims).min_share == [0, 1, 0]


def test_measuring_stays_below_the_max_share_of_its_pool() -> None:
    """A pool limited to two slots with three unseen claims."""
    groups = [Group(1.0, 0, 2), WHOLE]
    members = [(0, 0.0, 9.0)] * 3 + [(1, 0.0, 9.0)]
    claims = claims_of(9, [True] * 4, groups, members)
    assert with_measuring(claims).min_share == [1, 1, 0, 1]


def test_a_pool_measures_with_its_guaranteed_slots() -> None:
    """All slots are guaranteed, four of them to the pool in which two phases are unseen."""
    groups = [Group(1.0, 4, INF), Group(1.0, 4, INF)]
    members = [(0, 0.0, 9.0)] * 3 + [(1, 0.0, 9.0)]
    claims = claims_of(8, [True, True, False, False], groups, members)
    assert with_measuring(claims).min_share == [1, 1, 0, 0]


@settings(max_examples=examples(15, slow=1000))
@given(trees(), st.data())
def test_measuring_breaks_no_guarantee(claims: Claims, data: st.DataObject) -> None:
    """In any tree of pools: at most one slot, what fitted still fits, and half remains.

    Claims of known work that can use them have half of the slots that are not guaranteed.
    """
    unmeasured = data.draw(st.lists(st.booleans(), min_size=len(claims), max_size=len(claims)))
    measured = with_measuring(replace(claims, unmeasured=unmeasured))
    raised = [new - old for new, old in zip(measured.min_share, claims.min_share, strict=True)]
    for more, new, max_share, is_unseen in zip(
        raised, measured.min_share, claims.max_share, unmeasured, strict=True
    ):
        assert more >= 0
        assert not more or (is_unseen and new <= min(1.0, max_share) + TOLERANCE)
    if all_fit(claims):
        slack = claims.capacity - owed(claims, -1)
        assert all_fit(replace(measured, capacity=claims.capacity + TOLERANCE))
        more = owed(measured, -1) - owed(claims, -1)
        assert more <= slack + TOLERANCE
        wanted = sum(
            max_share - min_share
            for max_share, min_share, is_unseen in zip(
                claims.max_share, claims.min_share, unmeasured, strict=True
            )
            if not is_unseen
        )
        assert more <= max(PART * slack, slack - wanted, min(1, slack)) + TOLERANCE
    for held, group in zip(held_by(claims, measured.min_share), claims.groups, strict=True):
        before = max(held_by(claims, claims.min_share)[claims.groups.index(group)], 0)
        assert held <= max(group.slots_max, before) + TOLERANCE


@pytest.mark.parametrize(
    "allocator",
    [
        Flex(),
        Flex(Objective("tardiness")),
        Flex(Objective("response", "max")),
        AddOn(),
        FlowFlex(method="fast"),
    ],
)
def test_every_flex_gives_an_unseen_claim_its_slot(allocator: Flex) -> None:
    """It seems far longer than the seen claim, and would otherwise be last."""
    jobs = [
        Job("seen", (Phase("map", Tasks(8, 1.0)),), deadline=1.0),
        Job("new", (Phase("map", Tasks(8)),), deadline=1.0),
    ]
    claims = Claims(
        capacity=4,
        weight=[1.0, 1.0],
        arrival=[0.0, 0.0],
        work=[8.0, 1e4],
        min_share=[0.0, 0.0],
        max_share=[8.0, 8.0],
        group=[0, 0],
        groups=[WHOLE],
        owner=[(job, job.phases[0]) for job in jobs],
        cluster=Cluster.of_slots(4),
        unmeasured=[False, True],
    )
    assert allocator.share(claims)[1] == pytest.approx(1)
    assert allocator.share(replace(claims, unmeasured=()))[1] == pytest.approx(0)


FLEXES = ("flex", "flex-on-fair", "flowflex-fast", "flowflex-paper", "flowflex")


def told_nothing(
    watched: Callable[..., object], jobs: list[Job], slots: int, name: str
) -> dict[str, float]:
    """The completions of jobs of unknown work."""
    cluster = Cluster.of_slots(slots)
    backend = SimulatedBackend(cluster, jobs, Simulation(hide_work=True))
    return watched(
        backend, [job.without_work() for job in jobs], cluster, name=name
    ).state.completed


@pytest.mark.parametrize("arrival", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("name", [*FLEXES, "las", "uwfq"])
def test_a_small_unseen_job_goes_first(
    watched: Callable[..., object], name: str, arrival: float
) -> None:
    """24 calls of 0.5 s, then 2 of 0.05 s on two slots: the small job takes under 0.8 s."""
    jobs = [
        Job("large", (Phase("call", Tasks(24, 0.5)),)),
        Job("small", (Phase("call", Tasks(2, 0.05)),), arrival),
    ]
    assert told_nothing(watched, jobs, 2, name)["small"] - arrival < 0.8


@pytest.mark.parametrize("name", [*FLEXES, "uwfq"])
def test_many_unseen_jobs_do_not_delay_a_seen_one(
    watched: Callable[..., object], name: str
) -> None:
    """Three slots, many calls of 9 s at 1 s; a job that is known to be short continues.

    When they come, it has 30 tasks of 0.1 s left. On a single slot these take 3 s; if it had to
    wait until all are measured, it would take more than 30.
    """
    jobs = [Job("seen", (Phase("call", Tasks(60, 0.1)),))]
    jobs += [
        Job(f"new{n:02}", (Phase("call", Tasks(1, 9.0)),), 1.0)
        for n in range(examples(14, slow=40))
    ]
    assert told_nothing(watched, jobs, 3, name)["seen"] < 5


def test_stated_work_is_not_measured(
    simulated: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If work is stated or a task has finished, the log is the same without the rule."""
    jobs = [
        Job(f"j{n}", (Phase("map", Tasks(3 + n, 0.3 + n)),), arrival=0.7 * (n % 4))
        for n in range(examples(4, slow=8))
    ]
    simulation = Simulation(noise=0.5)

    def log(name: str) -> object:
        return simulated(jobs, Cluster.of_slots(3), name=name, simulation=simulation).log.turns

    with_rule = [log(name) for name in FLEXES]
    for module in ("flex", "flowflex.allocator"):
        monkeypatch.setattr(f"slotwise.policy.{module}.with_measuring", lambda claims: claims)
    assert with_rule == [log(name) for name in FLEXES]
