"""An adaptive cluster grows for the tasks that its pools let begin, and for no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from distributed import Client, Event, Future, get_client

from gated_cluster import Cluster
from slotwise.core.pools import Pool
from waiting import until

TASKS = 40

NUMBERS = count()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two threads; a pool with a max share of 1, one that runs one computation at once."""
    cluster = make_cluster()
    pools = [Pool("full", slots_max={"task": 1}), Pool("queue", jobs_max=1), Pool("open")]
    cluster.install("fair", pools=pools, ahead=0)
    return cluster


@contextmanager
def waiting(cluster: Cluster, client: Client, tasks: int) -> Iterator[None]:
    """Tasks of a client that wait for an event, in the state that the gate knows."""

    name = f"event{next(NUMBERS)}"  # Also of the tasks: what others took says nothing of them.

    def wait(number: int) -> int:
        Event(name, client=get_client()).wait()
        return number

    held = len(cluster.gate._holding)
    futures: list[Future] = client.map(wait, range(tasks), key=name, pure=False)
    until(lambda: len(cluster.gate._holding) >= held + tasks - 2)
    until(lambda: not cluster.gate._computations.pending_keys)
    yield
    Event(name, client=client).set()
    assert client.gather(futures) == list(range(tasks))


def target(cluster: Cluster) -> int:
    """The number of workers of one thread that Dask finds right, as `adapt` asks for it."""

    async def ask() -> int:
        assert cluster.local.scheduler_comm is not None
        found = await cluster.local.scheduler_comm.adaptive_target(target_duration="0.5s")
        return int(found)

    return cluster.local.sync(ask)


def test_tasks_that_a_max_share_holds_are_no_demand(cluster: Cluster) -> None:
    """They are as soon as their pool has no limit."""
    with waiting(cluster, cluster.client("full"), TASKS):
        assert target(cluster) <= 2
        assert len(cluster.local.scheduler.unrunnable) == TASKS - 1
    with waiting(cluster, cluster.client("open"), TASKS):
        assert target(cluster) > 2
    cluster.check_empty()


def test_computations_in_a_queue_are_no_demand(cluster: Cluster) -> None:
    """Only the first one begins."""
    client = cluster.client("queue")
    first, second = waiting(cluster, client, 2), waiting(cluster, client, TASKS)
    with first:
        second.__enter__()
        assert target(cluster) <= 2
    second.__exit__(None, None, None)  # It begins when the first one is over.
    cluster.check_empty()


def test_a_gate_that_is_open_hides_nothing(cluster: Cluster) -> None:
    """Dask then counts as without it."""
    with waiting(cluster, cluster.client("full"), TASKS):
        cluster.local.scheduler.plugins["slotwise"].open()
        assert target(cluster) > 2
