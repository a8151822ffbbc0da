"""Leases: Dask puts nothing on the threads whose slots a session uses."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slotwise
from gated_cluster import Cluster
from slotwise.backends.agents import plugin
from slotwise.backends.agents.lease import is_lease
from slotwise.core.errors import InputError
from waiting import until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A Dask cluster of one worker with two threads."""
    cluster = Cluster(workers=1, threads=2)
    try:
        yield cluster
    finally:
        cluster.close()


def worker_of(cluster: Cluster) -> Any:
    """The worker, which is in this process."""
    return next(iter(cluster.local.workers.values()))


def agent_of(cluster: Cluster) -> int:
    """The process id of the agent beside this worker."""
    plugins = worker_of(cluster).plugins.items()
    (agent,) = [one for name, one in plugins if name.startswith("slotwise-agent")]
    pid: int = agent._process.pid
    return pid


def executing(cluster: Cluster) -> list[bool]:
    """For each task that occupies a thread, whether it is a lease."""
    return [is_lease(task.key) for task in tuple(worker_of(cluster).state.executing)]


def test_tasks_of_dask_wait_until_a_session_ends(cluster: Cluster) -> None:
    """All threads are leased; the dashboard shows them by their name."""
    client = cluster.client()
    with slotwise.Session(dask=client) as session:
        until(lambda: executing(cluster) == [True, True])
        names = {task.prefix.name for task in cluster.local.scheduler.tasks.values()}
        assert names == {"slotwise-lease"}
        other = client.submit(sum, [1, 2])
        until(lambda: other.key in cluster.local.scheduler.tasks)
        assert session.submit(len, "abc").result() == 3
        assert not other.done()
    assert other.result(60) == 3
    until(lambda: not any(map(is_lease, cluster.local.scheduler.tasks)))
    assert not any(executing(cluster))


def test_a_worker_is_shared(cluster: Cluster) -> None:
    """One slot is leased; the other thread is Dask's."""
    client = cluster.client()
    with slotwise.Session(dask=client, dask_slots=1) as session:
        assert session.slots == 1
        until(lambda: executing(cluster) == [True])
        assert client.submit(sum, [1, 2]).result(60) == 3
        assert session.submit(len, "abc").result() == 3


def test_a_lease_ends_with_its_agent(cluster: Cluster) -> None:
    """Here the agent is killed; the threads are Dask's again."""
    client = cluster.client()
    with slotwise.Session(dask=client):
        until(lambda: executing(cluster) == [True, True])
        os.kill(agent_of(cluster), signal.SIGKILL)
        until(lambda: executing(cluster) == [])
        assert client.submit(sum, [1, 2]).result(60) == 3


def test_a_lease_ends_with_its_host(cluster: Cluster) -> None:
    """A session that lets a host go returns its threads at once."""
    client = cluster.client()
    with slotwise.Session(dask=client) as session:
        until(lambda: executing(cluster) == [True, True])
        session.remove_host(session.hosts()[0].name)
        until(lambda: executing(cluster) == [])


def test_a_worker_ends_though_its_agent_is_frozen(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is killed then, and its files are removed."""
    monkeypatch.setattr(plugin, "END_SECONDS", 0.5)
    client = cluster.client()
    with slotwise.Session(dask=client):
        until(lambda: executing(cluster) == [True, True])
        worker, agent = worker_of(cluster), agent_of(cluster)
        os.kill(agent, signal.SIGSTOP)
        closed = asyncio.run_coroutine_threadsafe(worker.close(), worker.loop.asyncio_loop)
        closed.result(20)
    until(lambda: not Path(f"/proc/{agent}").exists())


def test_the_files_of_a_killed_agent_are_removed(cluster: Cluster) -> None:
    """Although its Dask worker goes on."""
    client = cluster.client()
    with slotwise.Session(dask=client):
        folder = Path(worker_of(cluster).local_directory)
        assert len(list(folder.glob("slotwise-*"))) == 1
        os.kill(agent_of(cluster), signal.SIGKILL)
        until(lambda: not list(folder.glob("slotwise-*")))


def test_the_gate_lets_leases_pass(cluster: Cluster) -> None:
    """They wait for no slot of their pool, which has one; their threads count as occupied."""
    cluster.install(pools=[slotwise.Pool("one", slots_max={"task": 1})])
    client = cluster.client("one")
    others = client.map(lambda n: n + 1, range(20))
    with slotwise.Session(dask=client) as session:
        until(lambda: executing(cluster) == [True, True])
        late = client.submit(sum, [1, 2])
        assert session.submit(len, "abc").result() == 3
        assert not late.done()
        assert not cluster.gate.is_open
    assert client.gather(others) == list(range(1, 21))
    assert late.result(60) == 3
    del others, late
    cluster.check_empty()


def test_shared_slots_need_a_cluster() -> None:
    """And a number."""
    with pytest.raises(InputError, match="dask_slots is for the workers of a Dask cluster"):
        slotwise.Session(dask_slots=1)
    with pytest.raises(InputError, match="dask_slots is 0"):
        slotwise.Session(dask="tcp://127.0.0.1:9", dask_slots=0)
