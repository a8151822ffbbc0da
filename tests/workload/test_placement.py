"""Placement: where copies lie, lazily, and the same for the same seed."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.codec import decode_job, encode_job
from slotwise.core.errors import InputError
from slotwise.core.job import Block, Job, Phase, Tasks
from slotwise.core.placement import Policy, place_blocks


def cluster_of(*racks: int) -> Cluster:
    """A cluster with this many hosts in each rack, named in turn."""
    places = [(rack, host) for rack, size in enumerate(racks) for host in range(size)]
    places.sort(key=lambda place: place[1])  # The racks' hosts stand mixed.
    return Cluster(tuple(Host(f"h{r}{h}", {"task": 1}, rack=f"r{r}") for r, h in places))


def placed(
    cluster: Cluster,
    count: int,
    replicas: int = 3,
    seed: int = 0,
    policy: Policy = "racks",
    block_bytes: int = 0,
) -> Job:
    """A job of one phase of this many tasks, with its blocks placed."""
    jobs = (Job("a", (Phase("map", Tasks(count, 1.0)),)),)
    return place_blocks(jobs, cluster, replicas, seed, policy=policy, block_bytes=block_bytes)[
        0
    ]


def blocks_of(job: Job) -> tuple[Block, ...]:
    """The blocks of its first phase."""
    return tuple(job.phases[0].tasks.blocks)


clusters = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(lambda r: cluster_of(*r))
policies = st.sampled_from(["racks", "random"])


@given(clusters, st.integers(1, 30), st.integers(1, 6), st.integers(0, 99), policies)
def test_copies_lie_on_different_hosts(
    cluster: Cluster, count: int, replicas: int, seed: int, policy: Policy
) -> None:
    """As many hosts as copies hold a block, or all hosts if they are fewer."""
    blocks = blocks_of(placed(cluster, count, replicas, seed, policy))
    assert {len(block.hosts) for block in blocks} == {min(replicas, len(cluster.hosts))}
    assert all(block.hosts <= cluster.by_name.keys() for block in blocks)


@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.integers(0, 99))
def test_three_copies_lie_in_two_racks(racks: list[int], seed: int) -> None:
    """One copy in a rack, two in another one."""
    cluster = cluster_of(*racks)
    for block in blocks_of(placed(cluster, 20, 3, seed)):
        held = Counter(cluster.rack_of[host] for host in block.hosts)
        assert sorted(held.values()) == [1, 2]


def test_two_copies_lie_in_different_racks() -> None:
    """The loss of a rack loses no block."""
    cluster = cluster_of(7, 1, 2)
    for block in blocks_of(placed(cluster, 200, 2)):
        assert len({cluster.rack_of[host] for host in block.hosts}) == 2


def probabilities(cluster: Cluster, policy: Policy) -> dict[frozenset[str], float]:
    """How likely each set of three hosts is, by going through all ways to choose them."""
    found: Counter[frozenset[str]] = Counter()
    rack_of, hosts = cluster.rack_of, sorted(cluster.by_name)
    for first, second, third in permutations(hosts, 3):
        seconds = [h for h in hosts if h != first]
        thirds = [h for h in hosts if h not in (first, second)]
        if policy == "racks":
            seconds = [h for h in seconds if rack_of[h] != rack_of[first]]
            same_rack = [h for h in thirds if rack_of[h] == rack_of[second]]
            thirds = same_rack or thirds
        if second in seconds and third in thirds:
            probability = 1 / len(hosts) / len(seconds) / len(thirds)
            found[frozenset({first, second, third})] += probability
    assert sum(found.values()) == pytest.approx(1)
    return found


@pytest.mark.parametrize("policy", ["racks", "random"])
def test_all_choices_are_as_likely_as_they_should_be(policy: Policy) -> None:
    """Among many blocks each set of hosts occurs within five deviations of its mean."""
    cluster, count = cluster_of(3, 1, 2), 40_000
    found = Counter(block.hosts for block in blocks_of(placed(cluster, count, 3, 1, policy)))
    expected = probabilities(cluster, policy)
    assert found.keys() <= expected.keys()
    for hosts, probability in expected.items():
        deviation = (count * probability * (1 - probability)) ** 0.5
        assert abs(found[hosts] - count * probability) < 5 * deviation


@given(clusters, st.permutations(range(9)), st.integers(0, 9))
def test_the_order_of_access_does_not_matter(
    cluster: Cluster, order: list[int], seed: int
) -> None:
    """A block is the same whether it is asked for first, last, in a slice or in turn."""
    one, other = (placed(cluster, 9, 3, seed).phases[0].tasks.blocks for _ in range(2))
    assert {i: one[i] for i in order} == dict(enumerate(other))
    assert one[2:5] == tuple(other)[2:5]
    assert one[-1] == other[8]
    with pytest.raises(IndexError):
        one[9]


def test_placed_blocks_are_as_a_tuple_of_them() -> None:
    """Equal, of the same hash, through a pickle and through the log; another seed is not."""
    job = placed(cluster_of(3, 3), 50, block_bytes=64)
    plain = Job("a", (Phase("map", Tasks(50, 1.0, blocks_of(job))),))
    assert plain == job
    assert job == plain
    assert hash(plain.phases[0]) == hash(job.phases[0])
    assert pickle.loads(pickle.dumps(job)) == job
    assert decode_job(encode_job(job)) == job
    assert {block.size_bytes for block in blocks_of(job)} == {64}
    assert placed(cluster_of(3, 3), 50, seed=1, block_bytes=64) != job
    assert placed(cluster_of(3, 3), 50) != job
    assert "50 blocks" in repr(job)


@given(clusters, st.integers(1, 40), st.integers(1, 4), policies)
def test_homes_are_what_looking_at_each_block_finds(
    cluster: Cluster, count: int, replicas: int, policy: Policy
) -> None:
    """The index by host and by rack, the highest task first, each task once."""
    blocks = placed(cluster, count, replicas, policy=policy).phases[0].tasks.blocks
    hosts: dict[str, list[int]] = {}
    racks: dict[str, list[int]] = {}
    for task in reversed(range(count)):
        for host in blocks[task].hosts:
            hosts.setdefault(host, []).append(task)
        for rack in {cluster.rack_of[host] for host in blocks[task].hosts}:
            racks.setdefault(rack, []).append(task)
    assert blocks.homes_by_host() == hosts
    assert blocks.homes_by_rack() == racks


def test_phases_with_blocks_or_predecessors_get_no_placement() -> None:
    """Input is placed for phases that read it from files whose places nobody has said."""
    named = (Block(frozenset({"h00"}), 7),)
    phases = (
        Phase("own", Tasks(1, 1.0, named)),
        Phase("read", Tasks(1, 1.0)),
        Phase("after", Tasks(1, 1.0), after=frozenset({"read"})),
        Phase("goes on", Tasks(1, 1.0), continues="read"),
    )
    (job,) = place_blocks((Job("a", phases),), cluster_of(2, 2), 2, 0)
    assert job.phases[0] == phases[0]
    assert [len(phase.tasks.blocks) for phase in job.phases] == [1, 1, 0, 0]
    assert place_blocks((job,), cluster_of(2, 2), 0, 0) == (job,)


def test_phases_and_jobs_have_independent_draws() -> None:
    """Two phases, or two jobs, are not placed alike."""
    phases = (Phase("one", Tasks(40, 1.0)), Phase("two", Tasks(40, 1.0)))
    jobs = place_blocks((Job("a", phases), Job("b", phases)), cluster_of(4, 4), 3, 0)
    drawn = [tuple(phase.tasks.blocks) for job in jobs for phase in job.phases]
    assert len(set(drawn)) == 4


def test_placed_blocks_take_little_memory() -> None:
    """A million tasks cost nothing until a block is asked for, then six bytes each."""
    cluster = cluster_of(*[5] * 9)
    tracemalloc.start()
    try:
        job = placed(cluster, 1_000_000)
        assert tracemalloc.get_traced_memory()[0] < 100_000
        assert len(job.phases[0].tasks.blocks[7].hosts) == 3
        assert tracemalloc.get_traced_memory()[0] < 6_100_000
    finally:
        tracemalloc.stop()


def test_an_unknown_policy_is_refused() -> None:
    """With what is known."""
    with pytest.raises(InputError, match=r"'spread'; known: racks, random"):
        placed(cluster_of(2), 1, policy="spread")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="block_bytes is -1"):
        placed(cluster_of(2), 1, block_bytes=-1)
