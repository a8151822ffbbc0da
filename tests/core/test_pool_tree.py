"""Pools within pools: paths, shares by kind, and what is refused."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Shuffle, Tasks
from slotwise.core.pools import Pool, PoolTree, Preemption, ShareKey, TimeOuts


def test_a_path_leads_from_the_top_down() -> None:
    """Parents may be stated behind their children."""
    tree = PoolTree([Pool("c", parent="b"), Pool("b", parent="a"), Pool("a")])
    assert [pool.name for pool in tree.path("c")] == ["a", "b", "c"]
    assert (tree.depth, tree.inner) == (3, {"a", "b"})


def test_very_deep_trees_are_read_quickly() -> None:
    """A thousand pools within each other; each path is made from that of its parent."""
    pools = [Pool("p0"), *(Pool(f"p{n}", parent=f"p{n - 1}") for n in range(1, 1000))]
    assert len(PoolTree(reversed(pools)).path("p999")) == 1000


def test_pools_below_one_with_kinds_have_kinds_too() -> None:
    """The shares that a map counts against are those for maps from there on."""
    tree = PoolTree(
        [Pool("a"), Pool("b", slots_min={"map": 1}, parent="a"), Pool("c", parent="b")]
    )
    assert tree.shares("c", "map") == (
        ShareKey("a", "task"),
        ShareKey("b", "map"),
        ShareKey("c", "map"),
    )
    assert tree.shares("c", "reduce")[-1] == ShareKey("c", "task")


def test_pools_inherit_preemption_from_the_nearest_ancestor() -> None:
    """What is given for all holds at the top, where nothing else is said."""
    own, common = Preemption(least_after=1.0), Preemption(least_after=9.0)
    pools = [Pool("a", preemption=own), Pool("b", parent="a"), Pool("c"), Pool("d", parent="c")]
    tree = PoolTree(pools).with_preemption(common)
    of_a, of_c = TimeOuts(**(common.stated() | own.stated())), TimeOuts(**common.stated())
    assert [tree.preemption(name) for name in "abcd"] == [of_a, of_a, of_c, of_c]


def test_each_number_of_preemption_is_inherited_by_itself() -> None:
    """A pool that states one time-out keeps its parent's other one; `inf` states never."""
    pools = [
        Pool("a", preemption=Preemption(least_after=1.0, fraction=0.8)),
        Pool("b", parent="a", preemption=Preemption(fair_after=2.0)),
        Pool("c", parent="b", preemption=Preemption(least_after=inf, grace=4.0)),
        Pool("d"),
    ]
    tree = PoolTree(pools)
    assert tree.preemption("b") == TimeOuts(1.0, 2.0, 0.8, 0.0)
    assert tree.preemption("c") == TimeOuts(inf, 2.0, 0.8, 4.0)
    assert tree.preemption("d") is None
    tree = tree.with_preemption(Preemption(fair_after=9.0, grace=3.0))
    assert tree.preemption("a") == TimeOuts(1.0, 9.0, 0.8, 3.0)
    assert tree.preemption("c") == TimeOuts(inf, 2.0, 0.8, 4.0)
    assert tree.preemption("d") == TimeOuts(inf, 9.0, 0.5, 3.0)


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ([Pool("a"), Pool("a")], "two pools are named 'a'"),
        ([Pool("a", parent="a")], "'a' lies within itself"),
        ([Pool("a", parent="b"), Pool("b", parent="a")], "remove one `parent` of a, b"),
        (
            [Pool("a", parent="b"), Pool("b", parent="x")],
            "'b': unknown parent 'x'; known: a, b",
        ),
        ([Pool("a", policy="fifo"), Pool("b", parent="a")], "'a': policy is 'fifo'"),
        (
            [Pool("a", slots_min={"map": 1}), Pool("b", slots_max=3, parent="a")],
            "but a pool above it has separate shares for map",
        ),
    ],
)
def test_invalid_trees_are_refused(pools: list[Pool], words: str) -> None:
    """With the pool and what to do."""
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        PoolTree(pools)


def test_inner_pools_hold_no_jobs() -> None:
    """The message names the pools that do."""
    tree = PoolTree([Pool("a"), Pool("b", parent="a"), Pool("c", parent="a")])
    with pytest.raises(InputError, match=r"'a' has pools below it .* name one of: b, c"):
        tree.with_pools(["a"])
    assert tree.with_pools(["new"])["new"] == Pool("new")


def test_the_name_of_a_copying_phase_must_be_free() -> None:
    """It is made from that of the reduces."""
    cluster = Cluster.of_slots(2)
    first = Phase("r-copy", Tasks(1, 1.0))
    job = Job("j", (first, Phase("r", Tasks(1, 1.0), "reduce", frozenset({"r-copy"}))))
    with pytest.raises(InputError, match="'r-copy' has the name that the copying of 'r' gets"):
        Shuffle(split=True).job(job, cluster)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hosts": 5}, r"hosts is 5; give a tuple of Host, or a number of slots"),
        ({"hosts": "ab"}, r"hosts is 'ab'; give a tuple of Host"),
        ({"heartbeat": "1 s"}, r"heartbeat is '1 s'; give seconds"),
        ({"grace": -1}, r"grace is -1; give seconds"),
    ],
)
def test_a_cluster_is_made_of_hosts(given: dict[str, Any], message: str) -> None:
    """What it is made of instead is told."""
    with pytest.raises(InputError, match=message):
        Cluster(**{"hosts": (Host("h", {"task": 1}),)} | given)


def test_the_size_of_a_cluster_is_limited() -> None:
    """Whatever it comes from: an option, a file, or copies for each slot."""
    with pytest.raises(
        InputError, match="10000001 slots of kind 'task'; give it at most 10000000"
    ):
        Cluster.of_slots(10_000_001)
    with pytest.raises(InputError, match="200000000 slots of kind 'copy'"):
        Shuffle(split=True, copies_per_slot=100).cluster(Cluster.of_slots(2_000_000))


def test_a_continuing_phase_needs_slots_of_the_first_kind() -> None:
    """A host on which copies run but no reduces would strand them."""
    cluster = Cluster((Host("a", {"copy": 1}), Host("b", {"copy": 1, "reduce": 1})))
    with pytest.raises(InputError, match="host 'a' has slots of kind 'copy' but none of kind"):
        cluster.check_continues("copy", "reduce")
