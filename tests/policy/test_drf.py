"""DRF: fair shares by dominant resource, in pools within pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from oracles.dominant import by_dominant_filling, by_small_steps, needing, used
from oracles.pools import INF, inside, pooled, trees
from slotwise.core.pools import ShareKey
from slotwise.core.resources import Resources
from slotwise.policy import drf
from slotwise.policy.allocator import Allocator, Claims, Group
from slotwise.policy.drf import share_by_dominant
from slotwise.policy.fair import Fair, Fifo, in_turn
from slotwise.policy.flex import Flex
from slotwise.policy.las import Las
from slotwise.policy.resource_shares import share_all
from tiers import examples

ALL = Group(1, 0, INF)
SLOT = {"task": 1}
CPU, GPU = {"task": 1, "cpu": 10}, {"task": 1, "gpu": 10}
MACHINE = {"task": 1000, "cpu": 100, "gpu": 100}
"""It has more slots than can be used."""


def flat(
    requests: Sequence[dict[str, int]],
    totals: dict[str, int],
    weight: Sequence[float] | None = None,
    max_share: float = 1e6,
) -> Claims:
    """Claims of these requests in one pool."""
    members = [(0, 0.0, max_share)] * len(requests)
    return needing(pooled(totals["task"], members, [ALL], weight), requests, totals)


def tasks(claims: Claims, shares: Sequence[float]) -> list[float]:
    """How many tasks run in these slots."""
    return [s / need["task"] for s, need in zip(shares, claims.request, strict=True)]


def dominant(claims: Claims, shares: Sequence[float], members: Sequence[int]) -> float:
    """The dominant share of these claims together."""
    held = used(claims, shares, members)
    return max(held[name] / total for name, total in claims.totals.items())


def test_two_users_of_a_small_cluster() -> None:
    """On 9 processors and 18 GB, tasks of <1, 4> and <3, 1> get 3 and 2 (Ghodsi, 2011)."""
    problem = flat(
        [{"task": 1, "memory": 4}, {"task": 3, "memory": 1}], {"task": 9, "memory": 18}
    )
    assert tasks(problem, Fair().share(problem)) == pytest.approx([3, 2], abs=1e-12)


def test_a_weight_is_worth_that_many_dominant_shares() -> None:
    """With weights 2 and 1, the dominant shares are 2 : 1 where memory and slots both bind."""
    problem = flat(
        [{"task": 1, "memory": 4}, {"task": 3, "memory": 1}], {"task": 9, "memory": 18}, [2, 1]
    )
    shares = Fair().share(problem)
    first, second = (dominant(problem, shares, [j]) for j in (0, 1))
    assert first == pytest.approx(2 * second)


def test_the_others_go_on_when_a_resource_is_used_up() -> None:
    """Of 10 slots and 4 GPUs, two claims get 2 GPUs each, and one without takes the rest."""
    problem = flat(
        [{"task": 1, "gpu": 1}, {"task": 1, "gpu": 1}, {"task": 1}], {"task": 10, "gpu": 4}
    )
    assert Fair().share(problem) == pytest.approx([2, 2, 6])


def test_a_request_of_what_no_host_has_gets_nothing() -> None:
    """A claim for GPUs on a cluster without any gets no slot, and takes none from others."""
    problem = flat([{"task": 1, "gpu": 1}, {"task": 1}], {"task": 10, "memory": 5})
    assert Fair().share(problem) == pytest.approx([0, 10])


def test_siblings_of_complementary_needs_do_not_starve() -> None:
    """A pool whose other job holds all GPUs still gets half of the processors.

    The example of Bhattacharya and others (2013). The naive hierarchy compares the pools by
    their dominant shares, 1 and 0.5, and gives each free processor to the first.
    """
    pools = pooled(1000, [(0, 0, 1e6), (1, 0, 1e6), (1, 0, 1e6)], [ALL, ALL])
    assert Fair().share(needing(pools, [CPU, CPU, GPU], MACHINE)) == pytest.approx([5, 5, 10])


def test_a_pool_catches_up_where_its_dominant_resource_is_used_up() -> None:
    """A job of weight 9 has half of the GPUs; then its neighbour rises alone to 0.5."""
    members = [(0, 0, 1e6), (0, 0, 1e6), (1, 0, 1e6), (2, 0, 1e6)]
    problem = pooled(1000, members, [ALL] * 3, [9, 1, 1, 1])
    shares = Fair().share(needing(problem, [GPU, CPU, CPU, GPU], MACHINE))
    assert shares == pytest.approx([5, 5, 5, 5])


def test_phases_of_different_needs_count_as_one_job() -> None:
    """A job with a phase for processors and one for GPUs takes no less of the processors."""
    problem = pooled(1000, [(0, 0, 1e6), (0, 0, 1e6), (0, 0, 1e6)], [ALL], jobs=[0, 0, 1])
    assert Fair().share(needing(problem, [CPU, GPU, CPU], MACHINE)) == pytest.approx([5, 10, 5])


def test_a_pool_of_policy_fifo_serves_in_order_what_fits() -> None:
    """The first job takes all memory; the second waits for memory, the third has slots."""
    problem = needing(
        pooled(10, [(0, 0, 8), (0, 0, 8), (0, 0, 8)], [Group(1, 0, INF, policy="fifo")]),
        [{"task": 1, "memory": 2}, {"task": 1, "memory": 1}, {"task": 1}],
        {"task": 10, "memory": 8},
    )
    assert Fair().share(problem) == pytest.approx([4, 0, 6])


def test_a_guarantee_goes_before_levels() -> None:
    """A claim with a min share of 6 has them; the other gets the memory that is left."""
    need = {"task": 1, "memory": 2}
    problem = needing(
        pooled(50, [(0, 6, 50), (0, 0, 50)], [ALL]), [need, need], {"task": 50, "memory": 16}
    )
    assert Fair().share(problem) == pytest.approx([6, 2])


def test_guarantees_that_lack_memory_are_scaled_down() -> None:
    """Guarantees of 6 and 3 slots at 2 each of 12 memory become 4 and 2; others keep theirs."""
    need = {"task": 1, "memory": 2}
    problem = needing(
        pooled(50, [(0, 6, 50), (0, 3, 50), (0, 5, 5)], [ALL]),
        [need, need, SLOT],
        {"task": 50, "memory": 12},
    )
    assert Fair().share(problem) == pytest.approx([4, 2, 5])


def test_a_pool_can_limit_any_resource() -> None:
    """A pool with at most 4 of 20 GPUs gives them equally; its job without goes on."""
    need = {"task": 1, "gpu": 1}
    problem = needing(
        pooled(
            20,
            [(0, 0, 50), (0, 0, 50), (0, 0, 6), (1, 0, 5)],
            [Group(1, 0, INF, limits={"gpu": 4}), ALL],
        ),
        [need, need, SLOT, need],
        {"task": 20, "gpu": 20},
    )
    assert Fair().share(problem) == pytest.approx([2, 2, 6, 5])


# Facts of YARN's TestDominantResourceFairnessPolicy, where the one that is served first has the
# smaller dominant share over its weight. Here levels are equal where both need the same.


@pytest.mark.parametrize(
    ("totals", "first", "second", "weight"),
    [
        ((8000, 4), (1000, 1), (2000, 1), 1),
        ((8000, 8), (4000, 3), (2000, 5), 1),
        ((8000, 8), (3000, 1), (2000, 1), 2),
        ((8000, 8), (1000, 3), (1000, 2), 2),
        ((8000, 8), (1000, 3), (2000, 1), 2),
        ((8000, 8), (3000, 1), (1000, 2), 2),
        ((4000, 5), (1000, 2), (2000, 1), 1),
        ((8000, 6), (2000, 1), (1000, 2), 1),
    ],
)
def test_who_is_served_first_in_yarn_can_run_more(
    totals: tuple[int, int], first: tuple[int, int], second: tuple[int, int], weight: float
) -> None:
    """Of two that hold one such unit, the one that YARN serves next gets more units."""
    problem = flat(
        [{"task": cores, "memory": memory} for memory, cores in (first, second)],
        {"task": totals[1], "memory": totals[0]},
        [weight, 1],
    )
    one, other = tasks(problem, Fair().share(problem))
    assert one >= other


# Where all need the same, nothing changes.


@settings(max_examples=examples(100, slow=3000))
@given(trees(), st.integers(1, 3), st.sampled_from([2, 5, 17, 1000]))
def test_where_all_need_the_same_it_is_the_fair_share(
    problem: Claims, memory: int, total: int
) -> None:
    """Trees with guarantees, limits and policies, on the slots for which memory suffices."""
    request = {"task": 1, "memory": memory}
    totals = {"task": problem.capacity, "memory": total}
    lower = replace(problem, capacity=min(problem.capacity, total / memory))  # type: ignore[arg-type]
    same = needing(problem, [request] * len(problem), totals)
    expected = Fair().share(lower)
    assert Fair().share(same) == pytest.approx(expected, abs=1e-9)
    whole = share_by_dominant(same, in_turn(same))
    assert whole == pytest.approx(expected, abs=1e-9)


# Trees of different needs.

NEEDS = [
    {"task": 1},
    {"task": 1, "memory": 3},
    {"task": 2, "memory": 1},
    {"task": 1, "gpu": 2},
    {"task": 1, "memory": 2, "gpu": 1},
]


@st.composite
def mixed(draw: st.DrawFn) -> Claims:
    """Trees of pools, some with limits of memory or GPUs, with jobs of different needs."""
    problem = replace(draw(trees(3, 6)), capacity=draw(st.integers(3, 12)))
    limits = st.sampled_from([{}, {}, {"memory": 4}, {"gpu": 2}])
    groups = [replace(group, limits=draw(limits)) for group in problem.groups]
    totals = {
        "task": problem.capacity,
        "memory": draw(st.sampled_from([3, 9, 20])),
        "gpu": draw(st.sampled_from([2, 7])),
    }
    needs = [draw(st.sampled_from(NEEDS)) for _ in problem.group]
    return needing(replace(problem, groups=groups), needs, totals)


@settings(max_examples=examples(20, slow=500))
@given(mixed())
def test_trees_agree_with_small_steps(problem: Claims) -> None:
    """The shares are those of hierarchical DRF with tasks of a small part of a slot."""
    expected = by_small_steps(problem, 0.02)
    assert Fair().share(problem) == pytest.approx(expected, abs=0.3)


@settings(max_examples=examples(100, slow=1000))
@given(mixed())
def test_kept_lines_change_no_share(problem: Claims) -> None:
    """With none, with those of the same call, and with those of an earlier one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drf, "_KEPT", {})
        kept = [Fair().share(problem) for _ in range(2)]
        patch.setattr(drf, "CLAIMS_KEPT", 0)
        assert kept == [Fair().share(problem)] * 2


def check_limits_and_use(problem: Claims) -> None:
    """Each claim has its max share, or needs something of which no more may be used."""
    shares = Fair().share(problem)
    blocked: set[int] = set()
    pools: list[tuple[list[int], dict[str, float]]] = [
        (list(range(len(problem))), {**problem.totals})
    ]
    for number, group in enumerate(problem.groups):
        pools.append((inside(problem, number), {**group.limits, "task": group.slots_max}))
    for members, limits in pools:
        held = used(problem, shares, members)
        for name, limit in limits.items():
            assert held[name] <= limit * (1 + 1e-9)
            if held[name] >= limit * (1 - 1e-9):
                blocked.update(j for j in members if name in problem.request[j])
    for j, (share, most) in enumerate(zip(shares, problem.max_share, strict=True)):
        assert 0 <= share <= most * (1 + 1e-9)
        assert j in blocked or share >= most * (1 - 1e-9)


@settings(max_examples=examples(100, slow=3000))
@given(mixed())
def test_no_limit_is_exceeded_and_nothing_usable_is_left(problem: Claims) -> None:
    """In trees with guarantees and limits, no resource is kept from those who could use it."""
    check_limits_and_use(problem)


@pytest.mark.parametrize("part", [0.2, 1.0, 9.0])
@pytest.mark.sampled(3)
def test_nothing_is_left_among_many_claims(part: float) -> None:
    """Of 3,000 claims in 20 pools, with too little memory, just enough, and plenty."""
    members = [(j % 20, 0, 1.0 + j % 7) for j in range(3000)]
    needs = [{"task": 1, "memory": 1 + j % 5} if j % 3 else {"task": 1} for j in range(3000)]
    whole = sum(
        m * need.get("memory", 0) for (_, _, m), need in zip(members, needs, strict=True)
    )
    totals = {"task": 9000, "memory": int(whole * part)}
    check_limits_and_use(needing(pooled(9000, members, [ALL] * 20), needs, totals))


# The four properties of DRF, for tasks that can be divided, against exact filling.

VECTORS = st.fixed_dictionaries(
    {"task": st.integers(1, 4), "memory": st.integers(1, 9), "gpu": st.integers(0, 3)}
)
TOTALS = {"task": 12, "memory": 30, "gpu": 7}


@settings(max_examples=examples(60, slow=2000))
@given(st.lists(st.tuples(VECTORS, st.sampled_from([1.0, 2.0, 0.5])), min_size=1, max_size=6))
def test_shares_in_one_pool_agree_with_exact_filling(
    users: list[tuple[dict[str, int], float]],
) -> None:
    """All rise together until something is used up, in exact fractions."""
    problem = flat([need for need, _ in users], TOTALS, [weight for _, weight in users], 5.0)
    expected = [float(share) for share in by_dominant_filling(problem)]
    assert Fair().share(problem) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=examples(60, slow=2000))
@given(st.lists(VECTORS, min_size=2, max_size=5), VECTORS)
def test_the_four_properties(needs: list[dict[str, int]], lie: dict[str, int]) -> None:
    """Sharing incentive, no envy, no use in lying, and no better allocation for all."""
    problem = flat(needs, TOTALS)
    shares = Fair().share(problem)
    running = tasks(problem, shares)

    def alone(need: dict[str, int], bundle: dict[str, float]) -> float:
        return min(bundle[name] / amount for name, amount in need.items() if amount)

    for j, need in enumerate(needs):
        equal = {name: total / len(needs) for name, total in TOTALS.items()}
        assert running[j] >= alone(need, equal) * (1 - 1e-9)
        for other in range(len(needs)):
            bundle = {name: amount * running[other] for name, amount in needs[other].items()}
            assert running[j] >= alone(need, bundle) * (1 - 1e-9)
    lying = flat([lie, *needs[1:]], TOTALS)
    bundle = {n: amount * tasks(lying, Fair().share(lying))[0] for n, amount in lie.items()}
    assert alone(needs[0], bundle) <= running[0] * (1 + 1e-9)
    rows = [[need[name] for need in needs] for name in TOTALS]
    best = linprog(
        [-1.0] * len(needs), rows, [*TOTALS.values()], bounds=[(r, None) for r in running]
    )
    # The program may find that these bounds exceed a total by a rounding error.
    assert best.status == 2 or -best.fun <= sum(running) * (1 + 1e-6)


# Allocators that divide slots only, and several kinds of slots.


def test_fifo_counts_a_task_by_its_dominant_part() -> None:
    """On 10 slots and 20 GiB, a task of 4 GiB counts for 2 slots: 5 fit, and none beside."""
    problem = flat([{"task": 1, "memory": 4}, {"task": 1}], {"task": 10, "memory": 20}, None, 4)
    assert share_all(Fifo(), {"task": problem})["task"] == pytest.approx([4, 2])


@pytest.mark.parametrize("allocator", [Fifo(), Flex(), Las(), Fair()])
@settings(max_examples=examples(25, slow=1000))
@given(mixed())
def test_every_allocator_keeps_totals_and_max_shares(
    allocator: Allocator, problem: Claims
) -> None:
    """Whatever an allocator gives fits into memory and GPUs, and into the limits of slots."""
    problem = replace(problem, attained=[1.0] * len(problem))
    shares = share_all(allocator, {"task": problem})["task"]
    held = used(problem, shares, range(len(problem)))
    assert all(held[name] <= total * (1 + 1e-9) for name, total in problem.totals.items())
    assert all(s <= m * (1 + 1e-9) for s, m in zip(shares, problem.max_share, strict=True))
    for number, group in enumerate(problem.groups):
        assert sum(shares[j] for j in inside(problem, number)) <= group.slots_max * (1 + 1e-9)


def two_kinds() -> dict[str, Claims]:
    """Two maps and a reduce in one pool of at most 14 slots, 10 slots of each kind, 12 GiB."""
    found = {}
    pool = [Group(1, 0, 14, key=ShareKey("pool", "task"))]
    for kind, places, memory in (("map", [0, 1], 1), ("reduce", [2], 2)):
        one = pooled(10, [(0, 0, 50)] * len(places), pool)
        owner = [(replace(job, id=f"{kind}-{job.id}"), phase) for job, phase in one.owner]
        request = {kind: 1, "memory": memory}
        found[kind] = replace(
            one,
            owner=owner,
            place=places,
            request=[Resources(request)] * len(places),
            totals=Resources({"map": 10, "reduce": 10, "memory": 12}),
        )
    return found


def test_kinds_of_slots_share_memory_by_dominant_resource() -> None:
    """At the level 3/8, maps use 3.75 of 10 slots each, the reduce 4.5 of 12 GiB: all of it."""
    shares = share_all(Fair(), two_kinds())
    assert shares["map"] == pytest.approx([3.75, 3.75])
    assert shares["reduce"] == pytest.approx([2.25])


@pytest.mark.parametrize("allocator", [Fifo(), Flex(), Las(), Fair()])
def test_kinds_of_slots_never_use_more_memory_than_there_is(allocator: Allocator) -> None:
    """Each kind has its part of the memory, and the pool at most its 14 slots."""
    problem = {kind: replace(c, attained=[1.0] * len(c)) for kind, c in two_kinds().items()}
    shares = share_all(allocator, problem)
    assert sum(shares["map"]) + 2 * sum(shares["reduce"]) <= 12 * (1 + 1e-9)
    assert 0 < sum(shares["map"]) + sum(shares["reduce"]) <= 14
