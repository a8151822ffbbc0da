"""The gate lets tasks run only where their memory fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

import dask
import slotwise.dask
from gated_cluster import MEETING, Cluster, meet
from slotwise.core.log import following
from slotwise.core.sizing import PADDING
from slotwise.dask.measuring import TaskMeter
from slotwise.dask.memory import (
    WAIT_SECONDS,
    MemoryGroup,
    MemoryPlaces,
    Need,
    Needs,
    PoolMemory,
    TaskMemory,
    WorkerMemory,
)
from slotwise.insight.replay import replay_log

MB = 10**6
A, B = (MemoryGroup(None, need, "job") for need in (100 * MB, "load"))


def worker(name: str, limit: int = 1000 * MB, estimated: int = 0, tasks: int = 0) -> Any:
    """A worker whose process takes 200 MB and whose results take 100 MB."""
    return WorkerMemory(name, limit, 200 * MB, 100 * MB, estimated, tasks)


def places(*workers: WorkerMemory, room: int = 4, load: float = inf) -> MemoryPlaces:
    """Workers that accept 4 tasks each; tasks "load" need so much."""

    def bytes_of(need: Need) -> float:
        return need if isinstance(need, int) else load

    by_name = {one.worker: one for one in workers}
    return MemoryPlaces(dict.fromkeys(by_name, room), by_name, bytes_of)


def test_what_is_free_is_the_limit_less_reserve_process_results_and_estimates() -> None:
    """Of 1,000 MB a fifth is the reserve, and 200 + 100 + 150 MB are used."""
    assert worker("w", estimated=150 * MB).free == 350 * MB
    assert worker("w", estimated=900 * MB).free == 0
    assert worker("w", limit=0).free == inf


def test_a_worker_has_room_for_as_many_tasks_as_fit() -> None:
    """350 MB are free for tasks of 100 MB; where the limit is unknown, threads count."""
    found = places(worker("w1", estimated=150 * MB), worker("w2", limit=0))
    assert found.count(A) == 3 + 4
    found.take("w1", A)
    assert found.count(A) == 2 + 4
    found.take("w1", A)
    found.take("w1", A)
    assert found.of(A) == {"w2"}
    assert found.count(A._replace(workers=frozenset({"w1"}))) == 0


def test_a_task_of_which_nothing_is_known_has_a_worker_for_itself() -> None:
    """It may begin on idle workers only; then nothing else begins there."""
    found = places(worker("w1", tasks=1, estimated=50 * MB), worker("w2"), worker("w3"))
    assert found.of(B) == {"w2", "w3"}
    assert found.count(B) == 2
    found.take("w2", B)
    assert found.of(B) == {"w3"}
    assert found.of(A) == {"w1", "w3"}


def test_a_task_that_fits_on_no_worker_runs_alone_on_the_largest() -> None:
    """900 MB are more than 500 MB and 700 MB: it waits until the larger worker is idle."""
    small, large = worker("w1"), worker("w2", limit=1250 * MB)
    assert places(small, large, load=900 * MB).of(B) == {"w2"}
    busy = worker("w2", limit=1250 * MB, tasks=1)
    assert places(small, busy, load=900 * MB).of(B) == set()
    assert places(small, large, load=600 * MB).of(B) == {"w2"}


def test_needs_are_learned_from_tasks_that_ran_alone() -> None:
    """Much is added to the first peak, little after ten; the largest counts."""
    needs = Needs()
    assert needs.bytes_of("load") == inf
    needs.learn("load", 100 * MB, at_once=1, beside=())
    first = needs.bytes_of("load")
    for _ in range(20):
        needs.learn("load", 90 * MB, at_once=1, beside=())
    assert 200 * MB < first < 300 * MB
    assert 100 * MB < needs.bytes_of("load") < 123 * MB + PADDING


def test_a_rise_that_others_explain_teaches_nothing() -> None:
    """A small task beside one of 400 MB learns no part of that, but of what is more."""
    needs = Needs()
    for _ in range(20):
        needs.learn("large", 400 * MB, at_once=1, beside=())
        needs.learn("small", MB, at_once=1, beside=())
    needs.learn("small", 400 * MB, at_once=2, beside=["large"])
    assert needs.bytes_of("small") < 13 * MB + PADDING
    needs.learn("small", 1200 * MB, at_once=2, beside=["large"])
    assert needs.bytes_of("small") > 600 * MB


def dask_worker(**values: Any) -> Any:
    """A worker as the scheduler of Dask has it."""
    given: dict[str, Any] = {
        "address": "w1",
        "name": "w1",
        "memory_limit": 1000 * MB,
        "nbytes": 0,
        "metrics": {"memory": 300 * MB},
        "processing": [],
        "long_running": set(),
    }
    return SimpleNamespace(**given | values)


def test_a_worker_is_kept_free_for_a_task_that_waits_long() -> None:
    """Small tasks have no room there until the large one has had its turn."""
    busy = SimpleNamespace(
        key="f", suspicious=0, annotations={"slotwise": {"memory": "100 MB"}}, prefix=None
    )
    one = dask_worker(processing=[busy])
    scheduler = SimpleNamespace(running=[one], workers={"w1": one}, tasks={"f": busy})
    memory, large = TaskMemory(scheduler), MemoryGroup(None, 450 * MB, "job")
    assert memory.places({"w1": 3}, [large], now=0.0).count(A) == 3
    assert memory.places({"w1": 3}, [large], now=WAIT_SECONDS).count(A) == 0
    one.processing.clear()
    found = memory.places({"w1": 4}, [large], now=WAIT_SECONDS + 1)
    assert (found.count(large), found.count(A)) == (1, 0)
    assert memory.places({"w1": 4}, [], now=WAIT_SECONDS + 1).count(A) == 4


def test_a_task_whose_worker_was_lost_needs_a_worker_for_itself() -> None:
    """Also if its annotation states less."""
    task = SimpleNamespace(suspicious=0, annotations={"slotwise": {"memory": 5}}, prefix=None)
    memory = TaskMemory(SimpleNamespace(tasks={"f": task}))
    assert memory.need("f") == 5
    task.suspicious = 1
    assert memory.needs.bytes_of(memory.need("f")) == inf


def test_a_worker_measures_by_how_much_a_task_raised_its_memory() -> None:
    """Also if the memory is free again at the end of the task; others beside it are named."""
    reports: list[dict[str, Any]] = []
    meter = TaskMeter()
    meter.setup(SimpleNamespace(address="w", log_event=lambda topic, one: reports.append(one)))
    meter.transition("load-1", "ready", "executing")
    block = bytearray(64 * MB)
    meter.transition("sum-2", "ready", "executing")
    del block
    meter.transition("load-1", "executing", "memory")
    meter.transition("sum-2", "executing", "error")
    (report,) = reports
    assert 64 * MB <= report["rise"] < 128 * MB
    assert (report["prefix"], report["at_once"], report["beside"]) == ("load", 2, ["sum"])


# On a cluster whose workers are threads of this process, with stated needs.


def most_at_once(
    client: Client,
    count: int,
    stated: str,
    pool: str = "default",
    wanted: int = 1,
    **options: Any,
) -> int:
    """Run tasks that state their memory; none ends before so many as are wanted have met."""
    MEETING.call(wanted)
    with dask.annotate(slotwise={"memory": stated, "pool": pool}):
        tasks = [dask.delayed(meet, pure=False)(number) for number in range(count)]
    client.gather(client.compute(tasks, optimize_graph=False, **options))
    return MEETING.most


def test_as_many_tasks_run_as_fit(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """Two of 1.1 GB on each worker of 4 GB; the log of it is repeated identically."""
    cluster, log = make_cluster(threads=4, memory_limit="4 GB"), tmp_path / "gate.jsonl"
    cluster.install(memory=True, log=str(log))
    assert most_at_once(cluster.client(), 12, "1.1 GB") <= 4
    status = slotwise.dask.status(cluster.client())
    assert [one.limit for one in status.workers] == [4000 * MB] * 2
    assert "3.73 GiB" in str(status)
    cluster.check_empty()
    cluster.close()
    with following(log) as lines:
        assert replay_log(lines).is_identical


def test_pools_limit_memory(make_cluster: Callable[..., Cluster]) -> None:
    """Three of 1 GB at once, where six would fit; tasks larger than the limit run alone."""
    cluster = make_cluster(threads=4, memory_limit="4 GB")
    pools = {"lab": {"resources_max": {"memory": "3 GB"}}, "a": {"parent": "lab"}}
    cluster.install(memory=True, pools=pools)
    assert most_at_once(cluster.client(), 9, "1 GB", "a", wanted=3) == 3
    assert most_at_once(cluster.client(), 3, "3.1 GB", "a") == 1
    assert most_at_once(cluster.client(), 12, "1 GB", wanted=4) > 3
    cluster.check_empty()


def test_a_pool_keeps_room_for_a_task_that_waits_long() -> None:
    """Then small tasks of the pool do not take it; those of other pools begin."""
    limits = {"job": {"lab": 1000 * MB}, "small": {"lab": 1000 * MB}}
    pools = PoolMemory(lambda job: limits.get(job, {}))
    pools.hold("small", 500 * MB)
    large = MemoryGroup(None, 900 * MB, "job")
    small, other = A._replace(job="small"), A._replace(job="other")
    one = {"w1": worker("w1", limit=9000 * MB), "w2": worker("w2", limit=9000 * MB)}

    def found(*kept: Any) -> MemoryPlaces:
        room = dict.fromkeys(one, 4)
        return MemoryPlaces(room, one, lambda need: float(need), *kept, pools=pools)

    assert (found().count(small), found().count(large), found().count(other)) == (5, 0, 8)
    kept = found(("w1", large))
    assert (kept.count(small), kept.count(other)) == (0, 4)
    assert pools.full("job", 900 * MB) == (
        "pool lab holds 477 MiB of at most 954 MiB of memory"
    )


def test_a_task_larger_than_all_workers_runs_alone(
    make_cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """One at a time, on one worker, with one warning."""
    cluster = make_cluster(threads=4, memory_limit="4 GB")
    cluster.install(memory=True)
    assert most_at_once(cluster.client(), 3, "20 GB") == 1
    cluster.check_empty()
    assert [one.name for one in caplog.records if "each runs alone" in one.message] == [
        "slotwise.dask"
    ]


def test_resources_of_dask_hold_beside_memory(make_cluster: Callable[..., Cluster]) -> None:
    """One task at a time has the resource, of four that would fit."""
    cluster = make_cluster(workers=1, threads=4, memory_limit="4 GB", resources={"GPU": 1})
    cluster.install(memory=True)
    assert most_at_once(cluster.client(), 4, "100 MB", resources={"GPU": 1}) == 1
    cluster.check_empty()


def test_tasks_that_state_nothing_are_learned(make_cluster: Callable[..., Cluster]) -> None:
    """A graph of several prefixes ends as without limits, also in a cluster without any."""
    for limit in ("4 GB", None):
        cluster = make_cluster(threads=2, memory_limit=limit)
        cluster.install(memory=True)
        client = cluster.client()
        squares = client.map(lambda x: x * x, range(20), key="square")
        assert client.submit(sum, squares, key="total-1").result() == 2470
        del squares
        cluster.check_empty()


def hold(number: int) -> int:
    """Holds 90 MB for a while."""
    block = bytearray(90 * MB)
    time.sleep(0.3)
    return number + len(block)


@pytest.mark.slow
def test_no_worker_is_lost_to_tasks_that_state_nothing() -> None:
    """Four at once would need more than the limit, at which Dask ends the worker."""
    lost: list[str] = []

    class Losses(SchedulerPlugin):
        def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
            lost.append(worker)

    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=4,
            memory_limit="400 MB",
            dashboard_address="127.0.0.1:0",
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        slotwise.dask.install(client, scheduler="fair", memory=True)
        local.scheduler.add_plugin(Losses(), name="losses")
        futures = client.map(hold, range(8), pure=False)
        assert client.gather(futures) == [number + 90 * MB for number in range(8)]
        assert lost == []
        local.scheduler.remove_plugin("losses")
