"""Pools of at most one computation: nobody waits for ever for a computation outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Event, worker_client

import dask
from gated_cluster import Cluster
from slotwise import Pool
from slotwise.core.job import PhaseId
from slotwise.dask.computations import Computations, KeyInfo, KeyTask
from slotwise.dask.holding import Needed
from waiting import until

SECONDS = 30


@pytest.fixture
def narrow(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two workers of one thread each, and two pools that run one computation at once."""
    cluster = make_cluster()
    cluster.install("fair", pools=[Pool("one", jobs_max=1), Pool("other", jobs_max=1)])
    return cluster


def wait_for(name: str) -> int:
    """Wait until an event of Dask is set."""
    Event(name).wait(SECONDS)
    return 1


def test_what_is_needed_is_found_through_other_tasks() -> None:
    """Of a key that runs without the gate, too; but not what only outsiders need."""
    found = Computations(lambda key: KeyInfo("", None, ()), lambda key: "blocked")
    jobs = {"in": "abc", "out": "defg"}
    for job, keys in jobs.items():
        for number, key in enumerate(keys):
            found.tasks[key] = KeyTask(PhaseId(job, "p"), number, number)
    waits_for = {"a": ["b"], "b": ["d"], "d": ["e"], "f": ["g"], "free": ["f", "unknown"]}

    def needed(outside: list[str], exempted: list[str]) -> list[str]:
        holding = SimpleNamespace(
            waits_for=lambda key: waits_for.get(key, ()), exempted=exempted
        )
        return sorted(Needed(found, holding).keys(outside))

    assert needed([], ["free"]) == [], "nobody awaits admission"
    assert needed(["out"], []) == ["d", "e"]
    assert needed(["out"], ["free"]) == ["d", "e", "f", "g"]


def test_looking_takes_little_of_the_time() -> None:
    """After a look of 0.1 s, the next one waits for 10 s."""
    found = Computations(lambda key: KeyInfo("", None, ()), lambda key: "blocked")
    looks = []

    def slow(key: object) -> list[object]:
        looks.append(key)
        time.sleep(0.1)
        return []

    needed = Needed(found, SimpleNamespace(waits_for=slow, exempted=["x"]))
    for _ in range(3):
        assert needed.keys(["out"]) == []
    assert looks == ["x"]


def outside(cluster: Cluster) -> list[str]:
    """The computations that await admission."""
    return list(cluster.gate._state.awaiting_admission)


def test_a_graph_of_a_task_that_seceded_is_part_of_its_computation(narrow: Cluster) -> None:
    """The sum needs the parents, and these wait for graphs of their own."""
    client = narrow.client("one")

    def parent(number: int) -> int:
        with worker_client() as inner:
            return int(inner.submit(lambda n: n + 1, number, pure=False).result())

    total = dask.delayed(sum)([dask.delayed(parent)(number) for number in range(3)])
    assert client.compute(total).result(SECONDS) == 6
    narrow.check_empty()


def test_results_that_were_lost_are_made_for_a_computation_that_runs(narrow: Cluster) -> None:
    """They belong to a computation that is over, which would have to be admitted again."""
    client = narrow.client("one")
    made = client.submit(lambda: 2, pure=False)
    made.result(SECONDS)
    first = dask.delayed(wait_for)("go")
    total = client.compute(dask.delayed(lambda one, two: one + two)(first, made))
    until(lambda: narrow.gate._computations.running == 1)
    ((address,),) = client.who_has([made]).values()
    (worker,) = [one for one in narrow.local.workers.values() if one.address == address]

    async def lose() -> Any:
        await worker.close(executor_wait=False)

    narrow.local.sync(lose)
    Event("go", client=client).set()
    assert total.result(SECONDS) == 3
    assert made.result(SECONDS) == 2


def test_a_key_that_a_computation_needs_does_not_await_the_admission_of_another(
    narrow: Cluster,
) -> None:
    """It was sent first by a computation of a pool that is full."""
    one, other = narrow.client("one"), narrow.client("other")
    longest = one.submit(wait_for, "end", pure=False)
    until(lambda: narrow.gate._computations.running == 1)
    shared = one.submit(lambda: 2, key="shared")
    until(lambda: bool(outside(narrow)))
    graph = {"shared": (int, 2), "twice": (lambda n: 2 * n, "shared")}
    assert other.get(graph, "twice", sync=False).result(SECONDS) == 4
    assert not longest.done()
    Event("end", client=one).set()
    assert (longest.result(SECONDS), shared.result(SECONDS)) == (1, 2)
