"""Tasks that may use certain workers only run when such a worker comes, resumes or changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from distributed import Status, Worker

from gated_cluster import Cluster
from waiting import until


@pytest.fixture
def one_worker(make_cluster: Callable[..., Cluster]) -> Cluster:
    """One worker of one thread, with the gate."""
    cluster = make_cluster(workers=1)
    cluster.install("fair")
    return cluster


def parked(cluster: Cluster) -> bool:
    """Whether a task waits for certain workers."""
    return len(cluster.gate._restricted) > 0


def test_a_task_waits_for_a_worker_with_its_resource(one_worker: Cluster) -> None:
    """It runs when such a worker joins."""
    client = one_worker.client()
    future = client.submit(lambda: 1, resources={"GPU": 1})
    until(lambda: parked(one_worker))

    async def join() -> Any:
        return await Worker(one_worker.local.scheduler_address, resources={"GPU": 1})

    worker = one_worker.local.sync(join)
    assert future.result(timeout=20) == 1
    one_worker.local.sync(worker.close)


def test_a_task_runs_when_its_paused_worker_resumes(one_worker: Cluster) -> None:
    """The task may run there only."""
    client = one_worker.client()
    worker = one_worker.local.workers[0]
    worker.memory_manager.memory_pause_fraction = False  # Dask would let it resume.
    worker.status = Status.paused
    until(lambda: not one_worker.local.scheduler.running)
    future = client.submit(lambda: 1, workers=[worker.address])
    until(lambda: parked(one_worker))
    worker.status = Status.running
    assert future.result(timeout=20) == 1


def test_a_task_runs_when_its_worker_gets_the_resource(one_worker: Cluster) -> None:
    """No hook tells of it; the watchdog sees it."""
    client = one_worker.client()
    future = client.submit(lambda: 1, resources={"GPU": 1})
    until(lambda: parked(one_worker))
    one_worker.local.sync(one_worker.local.workers[0].set_resources, GPU=1)
    assert future.result(timeout=20) == 1
