"""Thousands of clients come and go; what the gate keeps is bounded by those that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from distributed import Client

from fake_dask import FakeDask, objects
from gated_cluster import Cluster
from slotwise.dask.gate import POOLS_MORE
from slotwise.dask.options import REST_SECONDS
from tiers import examples
from waiting import until


@pytest.mark.parametrize("scheduler", ["fair", "flex", "uwfq"])
@pytest.mark.slow
def test_memory_is_bounded_by_what_is_alive(scheduler: str) -> None:
    """Each client has its own pool and function names, and leaves when its tasks are done."""
    dask = FakeDask({"scheduler": scheduler})
    count, kept = examples(400, slow=3_000), []
    for number in range(count):
        names = [f"f{number}-{task}" for task in range(3)]
        dask.submit(f"Client-user{number}", names, pool=f"pool{number}")
        dask.turns()
        dask.finish()
        if number % (count // 5) == count // 5 - 1:
            while dask.tasks:
                dask.finish()
            assert len(dask.gate._state.pools) <= POOLS_MORE + 2
            # Both have bounds of their own: what is learned of names, and samples over time.
            bounded = dask.gate._state._learned, dask.gate.history.samples
            kept.append(objects(dask.gate, *bounded).total())
    assert not dask.gate.is_open
    assert dask.gate._computations.launches == 3 * count
    assert not dask.gate._computations.submitters
    assert max(kept) <= 20 * POOLS_MORE, "pools without jobs take the most"


def test_pools_that_are_not_configured_share_fairly() -> None:
    """A pool with many jobs gets as many slots as one with one job."""
    dask = FakeDask({"scheduler": "fair"})
    for number in range(POOLS_MORE + 10):
        dask.submit("Client-x", [f"f-{number}"], pool=f"pool{number}")
        dask.turns()
        dask.finish()
    dask.now += 2 * REST_SECONDS  # So that slots are allocated anew.
    for number in range(5):
        dask.submit("Client-a", [f"g-{number}-{task}" for task in range(8)], pool="many")
    dask.submit("Client-b", [f"h-{task}" for task in range(8)], pool="one")
    dask.turns()
    running = [task.key[0] for worker in dask.running for task in worker.processing]
    assert sorted(running) == ["g", "g", "h", "h"]
    assert {"many", "one"} <= dask.gate._state.pools.keys()
    assert len(dask.gate._state.pools) <= POOLS_MORE + 3


@pytest.mark.parametrize("scheduler", ["fair", "las"])
def test_a_computation_of_ten_prefixes_weighs_as_one_of_one(scheduler: str) -> None:
    """Both come while all threads are busy; each begins tasks on half of the threads."""
    dask = FakeDask({"scheduler": scheduler}, workers=8)
    dask.submit("Client-x", [f"busy-{task}" for task in range(8)])
    dask.turns()
    dask.submit("Client-a", [f"f{task % 10}-{task}" for task in range(40)])
    dask.submit("Client-b", [f"g-{task}" for task in range(40)])
    dask.finish()
    for _ in range(3):
        running = [task.key[0] for worker in dask.running for task in worker.processing]
        assert Counter(running) == {"f": 4, "g": 4}
        dask.finish()


@pytest.mark.slow
def test_200_clients_connect_and_leave(make_cluster: Callable[..., Cluster]) -> None:
    """Ten are there at once; each sends a graph, and every second one leaves in the middle."""
    cluster = make_cluster()
    cluster.install("fair")
    opened: list[tuple[Client, list[object]]] = []
    for number in range(200):
        client = Client(cluster.local, name=f"user{number}", set_as_default=False)
        opened.append((client, client.map(lambda n: n + 1, range(5), pure=False)))
        if len(opened) == 10:
            leaving, futures = opened.pop(0)
            if number % 2:
                assert leaving.gather(futures) == [1, 2, 3, 4, 5]
            del futures
            leaving.close()
    for client, futures in opened:
        assert client.gather(futures) == [1, 2, 3, 4, 5]
        client.close()
    opened.clear()
    del futures
    until(lambda: not cluster.gate._computations.submitters)
    cluster.check_empty()
