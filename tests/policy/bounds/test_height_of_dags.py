"""Phases in time: earliest starts, minimum times after their ends, and the height."""

from __future__ import annotations

from random import Random

import pytest

from oracles.dag_optimum import optimum
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from slotwise.policy.bounds.height import LONG, DagPhase, critical_path, stand

SLOTS = 4


def random_nodes(random: Random, count: int) -> list[DagPhase]:
    """Phases of any width, each waiting for some of those before it."""
    nodes = []
    for k in range(count):
        work, max_share = random.uniform(0.5, 9), random.randint(1, SLOTS)
        after = [i for i in range(k) if random.random() < 0.4]
        nodes.append(DagPhase(work, work / max_share, 0, after))
    return nodes


def least_makespan(nodes: list[DagPhase]) -> float:
    """By linear programs."""
    phases = tuple(
        Phase(
            f"{k}",
            Tasks(SLOTS, node.work / SLOTS),
            after=frozenset(f"{i}" for i in node.after),
            slots_max=round(node.work / node.length),
        )
        for k, node in enumerate(nodes)
    )
    return optimum([Job("j", phases)], Cluster.of_slots(SLOTS), Objective("makespan", "max"))


def before(nodes: list[DagPhase], k: int) -> list[int]:
    """All phases that have to be done before one begins, in order."""
    found = set(nodes[k].after)
    for other in nodes[k].after:
        found.update(before(nodes, other))
    return sorted(found)


@pytest.mark.parametrize("seed", range(25))
def test_no_phase_can_begin_before_its_head(seed: int) -> None:
    """Not even if only the phases before it exist; and the height is never too large."""
    nodes = random_nodes(Random(seed), 5)
    found = stand(nodes, [SLOTS])
    assert critical_path(nodes) <= found.height <= least_makespan(nodes) * (1 + 1e-9)
    for k in range(len(nodes)):
        chosen = before(nodes, k)
        if chosen:
            place = {i: at for at, i in enumerate(chosen)}
            some = [
                DagPhase(nodes[i].work, nodes[i].length, 0, [place[o] for o in nodes[i].after])
                for i in chosen
            ]
            assert found.head[k] <= least_makespan(some) * (1 + 1e-9)
        else:
            assert found.head[k] == 0.0


@pytest.mark.parametrize("seed", range(25))
def test_tails_are_heads_of_the_reversed_dag(seed: int) -> None:
    """If time is reversed, the phases after a phase are those before it."""
    nodes = random_nodes(Random(seed), 9)
    last = len(nodes) - 1
    behind = [
        [last - k for k, n in enumerate(nodes) if i in n.after] for i in range(len(nodes))
    ]
    turned = [
        DagPhase(nodes[i].work, nodes[i].length, 0, behind[i]) for i in range(last, -1, -1)
    ]
    forth, back = stand(nodes, [SLOTS]), stand(turned, [SLOTS])
    assert forth.tail == pytest.approx(back.head[::-1])
    assert forth.head == pytest.approx(back.tail[::-1])


def test_parallel_phases_contend_for_slots_of_their_own_kind_only() -> None:
    """Two of 8 s on all 4 slots each take 16 s before a third begins, on two kinds 8 s."""
    for kinds, head in (((0, 0), 16.0), ((0, 1), 8.0)):
        nodes = [
            DagPhase(32, 8, kinds[0]),
            DagPhase(32, 8, kinds[1]),
            DagPhase(2, 2, 0, [0, 1]),
        ]
        found = stand(nodes, [4.0, 4.0])
        assert found.head == [0.0, 0.0, head]
        assert found.tail == [2.0, 2.0, 0.0]
        assert found.height == head + 2


def test_a_continuing_phase_need_not_wait_for_all_of_the_first() -> None:
    """It begins when that one begins; and what comes after it comes after both."""
    nodes = [
        DagPhase(4, 1),
        DagPhase(40, 10, 0, [0]),
        DagPhase(2, 2, continues=1),
        DagPhase(3, 3, 0, [2]),
    ]
    found = stand(nodes, [100.0])
    assert found.head[:3] == [0.0, 1.0, 1.0]
    assert found.tail[1:] == [3.0, 3.0, 0.0]
    assert found.height == 14.0


def test_critical_paths_of_jobs_with_very_many_phases() -> None:
    """A very long chain has the same heads and tails."""
    chain = [DagPhase(1, 1, 0, [k - 1] if k else []) for k in range(2 * LONG)]
    found = stand(chain, [1.0])
    assert found.head == list(range(2 * LONG))
    assert found.height == 2 * LONG
