"""Ordinary Dask code behind the gate: its results are those without it; nothing stays held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import dask.bag
import dask.dataframe
import pandas
import pytest
from distributed import Event, get_client, get_worker, worker_client
from distributed.diagnostics.plugin import SchedulerPlugin

import dask
from gated_cluster import MEETING, Cluster, meet
from slotwise.core.pools import Pool
from waiting import until


def tree(leaves: int, seconds: float) -> Any:
    """A tree of sums over the numbers below `leaves`, each found in this time."""

    @dask.delayed(pure=False)
    def leaf(number: int) -> int:
        time.sleep(seconds)
        return number

    @dask.delayed(pure=False)
    def add(*numbers: int) -> int:
        return sum(numbers)

    level = [leaf(number) for number in range(leaves)]
    while len(level) > 1:
        level = [add(*level[i : i + 2]) for i in range(0, len(level), 2)]
    return level[0]


def pipelines(count: int) -> Any:
    """The sum of results that are read and then processed; reading is faster."""

    @dask.delayed(pure=False)
    def read(number: int) -> int:
        time.sleep(0.002)
        return number

    @dask.delayed(pure=False)
    def process(number: int) -> int:
        time.sleep(0.02)
        return number

    @dask.delayed(pure=False)
    def add(*numbers: int) -> int:
        return sum(numbers)

    return add(*[process(read(number)) for number in range(count)])


class MostRead(SchedulerPlugin):
    """The largest number of results of `read` that were in memory at once."""

    def __init__(self) -> None:
        self.held: set[Any] = set()
        self.most = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task has changed its state."""
        if str(key).startswith("read"):
            self.held.discard(key)
            if finish == "memory":
                self.held.add(key)
                self.most = max(self.most, len(self.held))


FURTHER = [pytest.param(name, marks=pytest.mark.slow) for name in ("uwfq", "las", "flowflex")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheduler", ["fifo", "fair", "flex", *FURTHER])
def test_a_graph_runs_in_the_order_of_dask(
    scheduler: str, make_cluster: Callable[..., Cluster]
) -> None:
    """What was read is processed before more is read: few results are in memory at once.

    Two threads read, or have one more task each; results wait for their tasks, and while Dask
    is told of them.
    """
    cluster = make_cluster()
    cluster.install(scheduler)
    plugin = MostRead()
    cluster.local.scheduler.add_plugin(plugin, name="most-read")
    client = cluster.client()
    assert client.compute(pipelines(100)).result(timeout=60) == 4950
    assert 0 < plugin.most <= 10


def test_two_graphs_read_no_more_than_they_have_slots(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Each is offered as many tasks as there are slots."""
    cluster = make_cluster()
    cluster.install("fair")
    plugin = MostRead()
    cluster.local.scheduler.add_plugin(plugin, name="most-read")
    one, other = (
        cluster.client(name).compute(pipelines(60), fifo_timeout="0s") for name in ("a", "b")
    )
    assert one.result(timeout=60) == other.result(timeout=60) == 1770
    assert 0 < plugin.most <= 20


@pytest.mark.parametrize("scheduler", ["fair", "flex", *FURTHER])
def test_a_small_graph_does_not_wait_behind_a_large_one(
    scheduler: str, make_cluster: Callable[..., Cluster]
) -> None:
    """The large one has 150 tasks left when the small one comes, and is not done before it."""
    cluster = make_cluster()
    cluster.install(scheduler)
    large = cluster.client("large").compute(tree(150, 0.02), fifo_timeout="0s")
    time.sleep(0.2)
    small = cluster.client("small").compute(tree(4, 0.02), fifo_timeout="0s")
    assert small.result() == 6
    assert not large.done()
    assert large.result() == sum(range(150))
    del small, large
    cluster.check_empty()


def test_fifo_runs_graphs_in_order(make_cluster: Callable[..., Cluster]) -> None:
    """With fifo the small graph, which came later, ends later."""
    cluster = make_cluster()
    cluster.install("fifo")
    large = cluster.client("large").compute(tree(40, 0.01), fifo_timeout="0s")
    small = cluster.client("small").compute(tree(8, 0.01), fifo_timeout="0s")
    assert small.result() == 28
    # Its client may be told later.
    assert cluster.local.scheduler.tasks[large.key].state == "memory"


BEGUN: list[str] = []
"""The keys of the tasks that have begun, which are threads of this process."""


def begin(number: int) -> int:
    """A task that tells when it begins."""
    BEGUN.append(str(get_worker().get_current_task()))
    time.sleep(0.01)
    return number


class Sent(SchedulerPlugin):
    """The keys of the tasks that were sent to workers."""

    name = "sent"

    def __init__(self) -> None:
        self.keys: list[str] = []

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task has changed its state."""
        if finish == "processing":
            self.keys.append(key)


def test_a_worker_begins_tasks_in_the_order_in_which_they_got_slots(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Those of an earlier graph do not overtake one that waits at the worker."""
    cluster, sent = make_cluster(workers=1), Sent()
    cluster.install("fair", ahead=3)
    cluster.local.scheduler.add_plugin(sent)
    BEGUN.clear()
    large = cluster.client("large").map(begin, range(60), fifo_timeout="0s")
    until(lambda: len(BEGUN) > 5)
    small = cluster.client("small").map(begin, range(100, 103), fifo_timeout="0s")
    assert sum(future.result() for future in small) == 303
    assert sum(future.result() for future in large) == sum(range(60))
    assert sent.keys == BEGUN


def test_collections_compute_what_they_do_without_the_gate(cluster: Cluster) -> None:
    """An array, a dataframe with a shuffle, a bag, and calls."""
    client = cluster.client()
    x = dask.array.arange(400, chunks=20).reshape(20, 20)
    frame = pandas.DataFrame({"a": range(60), "b": [n % 7 for n in range(60)]})
    frames = dask.dataframe.from_pandas(frame, npartitions=6)
    bag = dask.bag.from_sequence(range(100), npartitions=10)
    array = client.compute((x + x.T).sum())
    groups = client.compute(frames.groupby("b").a.sum())
    shuffled = client.compute(frames.shuffle("b").a.sum())
    counts = client.compute(bag.filter(lambda n: n % 3 == 0).count())
    calls = client.map(lambda n: n * n, range(30))
    assert array.result() == 2 * sum(range(400))
    assert groups.result().to_dict() == frame.groupby("b").a.sum().to_dict()
    assert shuffled.result() == frame.a.sum()
    assert counts.result() == 34
    assert client.gather(calls) == [n * n for n in range(30)]
    del array, groups, shuffled, counts, calls
    cluster.check_empty()


def test_a_task_without_priority_is_not_held(cluster: Cluster) -> None:
    """Dask makes a task of a large argument, which has no priority in some releases.

    Such a release cannot run it, with the gate or without. The gate does not fail.
    """
    client = cluster.client()
    futures = client.map(lambda a, b: a + len(b), range(10), b=bytes(1_000_000))
    until(lambda: all(future.done() for future in futures))
    assert not cluster.gate.is_open
    assert client.submit(lambda: 1).result() == 1


def test_an_error_reaches_its_client(cluster: Cluster) -> None:
    """The failed task and all that need it fail; others go on."""
    client = cluster.client()

    def fail() -> None:
        raise ValueError("no")

    bad = client.submit(fail)
    behind = client.submit(lambda x: x, bad)
    good = client.submit(lambda: 1)
    with pytest.raises(ValueError, match="no"):
        behind.result()
    assert good.result() == 1
    del bad, behind, good
    cluster.check_empty()


def test_failed_tasks_are_retried(cluster: Cluster, tmp_path: Path) -> None:
    """Dask's retries work, at once and when a user asks for them."""
    client = cluster.client()

    def third(path: Path) -> int:
        """Succeeds at the third call."""
        with path.open("a") as file:
            file.write("x")
        if (calls := path.stat().st_size) < 3:
            raise ValueError("not yet")
        return calls

    assert client.submit(third, tmp_path / "a", retries=5).result() == 3
    future = client.submit(third, tmp_path / "b", retries=1)
    assert isinstance(future.exception(), ValueError)
    future.retry()
    assert future.result() == 3
    del future
    cluster.check_empty()


def test_cancelled_tasks_are_forgotten(cluster: Cluster, tmp_path: Path) -> None:
    """Most of them have not run."""
    client = cluster.client()

    def note(number: int) -> None:
        (tmp_path / str(number)).touch()
        time.sleep(0.01)

    futures = client.map(note, range(200), pure=False)
    until(lambda: any(tmp_path.iterdir()))
    client.cancel(futures)
    assert client.submit(lambda: 5).result() == 5
    assert len(list(tmp_path.iterdir())) < 200
    del futures
    cluster.check_empty()


def test_graphs_may_share_keys(cluster: Cluster) -> None:
    """The first client releases what the second still needs."""
    one, other = cluster.client("one"), cluster.client("other")

    def slow(number: int) -> int:
        time.sleep(0.02)
        return number

    first = one.map(slow, range(20))
    second = other.map(slow, range(20))
    one.cancel(first)
    total = other.submit(sum, second)
    assert total.result() == sum(range(20))
    del first, second, total
    cluster.check_empty()


def test_lost_results_are_computed_again(cluster: Cluster) -> None:
    """A worker leaves with the only copies of results, while they are needed."""
    client = cluster.client()
    parts = client.map(lambda n: n + 0.5, range(20))
    client.gather(parts)
    worker = cluster.local.workers[0]
    cluster.local.sync(worker.close)
    total = client.submit(sum, parts)
    assert total.result() == sum(range(20)) + 10
    del parts, total
    cluster.check_empty()


def test_restrictions_of_users_hold(make_cluster: Callable[..., Cluster]) -> None:
    """Tasks for one worker run there; other tasks use the other worker meanwhile."""
    cluster = make_cluster()
    cluster.install("fair")
    client = cluster.client()
    addresses = sorted(worker.address for worker in cluster.local.workers.values())

    def where(number: int) -> str:
        from distributed import get_worker

        time.sleep(0.02)
        return str(get_worker().address)

    bound = client.map(where, range(30), workers=[addresses[0]], pure=False)
    free = client.map(where, range(10), pure=False)
    assert set(client.gather(bound)) == {addresses[0]}
    assert addresses[1] in client.gather(free)
    del bound, free
    cluster.check_empty()


def test_a_task_for_a_worker_that_has_left_may_run_elsewhere(
    make_cluster: Callable[..., Cluster],
) -> None:
    """It is held for the one worker, which is busy, when that leaves."""
    cluster = make_cluster()
    cluster.install("fair")
    client = cluster.client()
    worker = cluster.local.workers[0]
    address = worker.address
    bound = client.map(
        lambda n: time.sleep(0.05), range(20), workers=[address], allow_other_workers=True,
        pure=False,
    )  # fmt: skip
    until(lambda: len(cluster.gate._restricted) > 0)
    cluster.local.sync(worker.close)
    assert client.gather(bound) == [None] * 20
    del bound
    cluster.check_empty()


def test_resources_of_users_hold(make_cluster: Callable[..., Cluster]) -> None:
    """Two tasks that need the one GPU of each worker never run there at once."""
    cluster = make_cluster(threads=4, resources={"GPU": 1})
    cluster.install("fair")
    client = cluster.client()

    MEETING.call(2)
    futures = client.map(meet, range(20), resources={"GPU": 1}, pure=False)
    client.gather(futures)
    assert MEETING.most == 2
    del futures
    cluster.check_empty()


def test_actors_work(cluster: Cluster) -> None:
    """An actor counts while other tasks run."""

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

    client = cluster.client()
    others = client.map(lambda n: time.sleep(0.01), range(20), pure=False)
    future = client.submit(Counter, actor=True)
    counter = future.result()
    assert [counter.add().result() for _ in range(3)] == [1, 2, 3]
    client.gather(others)
    del others, counter, future
    cluster.check_empty()


@pytest.mark.parametrize("secedes", [True, False])
def test_a_task_may_wait_for_tasks_that_it_submits(
    secedes: bool, make_cluster: Callable[..., Cluster]
) -> None:
    """Its pool may hold one slot at once, which is not enough for parent and child."""
    cluster = make_cluster()
    cluster.install("fair", pools=[Pool("one", slots_max={"task": 1})])
    client = cluster.client("one")

    def parent(number: int) -> int:
        if secedes:
            with worker_client() as inner:
                return int(inner.submit(lambda n: n + 1, number, pure=False).result())
        return int(get_client().submit(lambda n: n + 1, number, pure=False).result())

    futures = client.map(parent, range(3), pure=False)
    assert client.gather(futures) == [1, 2, 3]
    del futures
    cluster.check_empty()


def test_a_max_share_is_never_exceeded(make_cluster: Callable[..., Cluster]) -> None:
    """A pool with a max share of 2 on 4 threads runs 2 tasks at once; with the others idle."""
    cluster = make_cluster(threads=2)
    cluster.install("fair", pools=[Pool("two", slots_max={"task": 2})])
    client = cluster.client("two")

    MEETING.call(2)
    futures = client.map(meet, range(40), pure=False)
    client.gather(futures)
    assert MEETING.most == 2
    del futures
    cluster.check_empty()


def test_a_pool_at_its_max_share_keeps_no_room_for_tasks_of_certain_workers(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The only slot of its pool is held; a task of another pool for the free worker begins."""
    cluster = make_cluster()
    cluster.install("fair", pools=[Pool("one", slots_max={"task": 1})])
    full, other = cluster.client("one"), cluster.client()
    goes_on = Event("goes on", client=other)
    busy, free = (worker.address for worker in cluster.local.workers.values())

    def wait(number: int) -> int:
        Event("goes on", client=get_client()).wait()
        return number

    first = full.submit(wait, 1, workers=[busy], pure=False)
    until(lambda: cluster.gate._computations.running == 1)
    second = full.submit(lambda: 2, workers=[free], pure=False)
    until(lambda: len(cluster.gate._restricted) == 1)
    assert other.submit(lambda: 3, workers=[free], pure=False).result(20) == 3
    assert not first.done()
    assert not second.done()
    goes_on.set()
    assert (first.result(20), second.result(20)) == (1, 2)
    del first, second
    cluster.check_empty()


def test_an_annotation_names_the_pool(make_cluster: Callable[..., Cluster]) -> None:
    """The job has the pool, the weight and the deadline of the annotation."""
    cluster = make_cluster()
    cluster.install("fair", pools=[Pool("reports")])
    client = cluster.client()
    given = {"pool": "reports", "weight": 2.0, "deadline": 60}
    with dask.annotate(slotwise=given):
        graph = tree(40, 0.02)
    future = client.compute(graph, optimize_graph=False)
    until(lambda: bool(list(cluster.gate._state.jobs_left())))
    (phases,) = list(cluster.gate._state.jobs_left())
    job = phases[0].job
    assert (job.pool, job.weight) == ("reports", 2.0)
    assert job.deadline == pytest.approx(job.arrival + 60)
    assert future.result() == sum(range(40))


def test_an_error_of_the_gate_opens_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All that is held runs, and what comes later, too; the error is logged once."""
    client = cluster.client()
    futures = client.map(lambda n: time.sleep(0.01), range(50), pure=False)

    def fail(*args: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(cluster.gate._slotwise.assigner.__class__, "assign", fail)
    client.gather(futures)
    assert client.submit(lambda: 3).result() == 3
    assert cluster.gate.is_open
    assert sum("the gate has failed" in one.message for one in caplog.records) == 1


def test_the_gate_can_be_removed_while_graphs_run(cluster: Cluster) -> None:
    """All that is held runs."""
    client = cluster.client()
    gate = cluster.gate
    futures = client.map(lambda n: time.sleep(0.01), range(300), pure=False)
    until(lambda: len(gate._holding) > 100)
    client.unregister_scheduler_plugin("slotwise")
    client.gather(futures)
    assert gate.is_open
    assert not len(gate._holding)
    assert client.submit(lambda: 3).result() == 3


def test_a_removed_gate_takes_no_turn(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Dask has not told it what ended since; an alarm may wake it before it looks."""
    client, gate, scheduler = cluster.client(), cluster.gate, cluster.local.scheduler
    scheduler.validate = True
    futures = client.map(lambda n: time.sleep(0.01), range(100), pure=False)
    until(lambda: gate._computations.launches > 5)

    async def remove_and_wake() -> None:
        scheduler.remove_plugin("slotwise")
        launched = [one for one in gate._computations.tasks if gate._standing(one) == "running"]
        while gate._standing(launched[0]) == "running":
            await asyncio.sleep(0.001)
        gate._wake()

    client.sync(remove_and_wake)
    client.gather(futures)
    assert gate.is_open
    assert "the gate has failed" not in caplog.text


def test_a_new_gate_replaces_the_old_one(cluster: Cluster) -> None:
    """Tasks that the old one held run, later ones are held by the new one."""
    client = cluster.client()
    futures = client.map(lambda n: time.sleep(0.01), range(300), pure=False)
    old = cluster.gate
    until(lambda: len(old._holding) > 100)
    cluster.install("flex")
    assert cluster.gate is not old
    assert not len(old._holding)
    client.gather(futures)
    more = client.map(lambda n: n, range(10), pure=False)
    assert client.gather(more) == list(range(10))
    assert not cluster.gate.is_open
    del futures, more
    cluster.check_empty()


def test_a_priority_of_dask_is_the_priority_of_the_job(cluster: Cluster) -> None:
    """The graph of the highest priority came last and ends first, that of the lowest last."""
    client = cluster.client()
    tasks = {
        level: client.map(lambda n: time.sleep(0.01), range(60), pure=False, priority=level)
        for level in (-1, 0, 1)
    }
    until(lambda: len(list(cluster.gate._state.jobs_left())) == 3)
    priorities = [phases[0].job.priority for phases in cluster.gate._state.jobs_left()]
    assert priorities == ["very_low", "normal", "very_high"]
    client.gather(tasks[1])
    assert not all(future.done() for future in tasks[0])
    client.gather(tasks[0])
    assert not all(future.done() for future in tasks[-1])
