"""Graphs of all kinds for a Dask cluster, each with what it must result in.

Each is a coroutine of a `Mix`, which has a client, names and random numbers. It asserts that
the results are those of plain Python.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import dask.array
import dask.dataframe
import pandas
from distributed import Client, Reschedule, get_client, rejoin, secede, worker_client

import dask


@dataclass
class Mix:
    """Who sends a graph.

    losses     tells twice how many workers have been lost; it is odd while one leaves
    has_pools  whether there are pools with shares
    """

    client: Client
    pool: str
    number: int
    rng: Random
    folder: Path
    losses: Callable[[], int]
    has_pools: bool

    def name(self, what: str) -> str:
        """A name for keys that no other graph has."""
        return f"{what}-m{self.number}x"

    @property
    def seconds(self) -> float:
        """The length of the tasks of a graph."""
        return self.rng.choice((0.0, 0.01, 0.03, 0.1))


async def client_of(address: str, pool: str) -> Client:
    """A client in a pool. It is no default: tasks in this process would use it.

    A client of Dask takes it for an error if a busy scheduler has more to tell it at once.
    """
    options = {"asynchronous": True, "name": pool, "set_as_default": False}
    try:
        return await Client(address, **options)
    except AssertionError:
        return await Client(address, **options)


def step(number: int, seconds: float = 0.0) -> int:
    """The number after it, after this time."""
    time.sleep(seconds)
    return number + 1


def fail(number: int) -> int:
    """A task that fails always."""
    raise ValueError(f"no {number}")


def third(path: Path) -> int:
    """A task that fails, then is rescheduled, then succeeds."""
    with path.open("a") as file:
        file.write("x")
    calls = path.stat().st_size
    if calls == 1:
        raise ValueError("not yet")
    if calls == 2:
        raise Reschedule
    return 3


def client_here() -> Client:
    """The client of the worker of a task; twice, as in `client_of`."""
    try:
        return get_client()
    except AssertionError:
        return get_client()


def waits_seceded(number: int, key: str) -> int:
    """Waits for a nested task without its thread."""
    client_here()  # The next line uses it.
    with worker_client() as inner:
        return int(inner.submit(step, number, key=key).result())


def waits_in_thread(number: int, key: str) -> int:
    """Waits for a nested task, and keeps its thread unless that takes too long.

    Without the gate, too, such tasks wait for ever if they occupy all threads.
    """
    one = client_here().submit(step, number, key=key)
    ends = time.monotonic() + 1
    while not one.done():
        time.sleep(0.01)
        if time.monotonic() > ends:
            secede()
            break
    return int(one.result())


def comes_back(number: int) -> int:
    """Leaves its thread for a while."""
    secede()
    time.sleep(0.05)
    rejoin()
    return number + 1


class Counter:
    """An actor."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        """Count."""
        self.count += 1
        return self.count


async def futures(mix: Mix) -> None:
    """Calls, and their sum."""
    count, seconds = mix.rng.randint(1, 30), mix.seconds
    parts = mix.client.map(step, range(count), seconds=seconds, key=mix.name("step"))
    total = mix.client.submit(sum, parts, key=mix.name("total"))
    assert await total == sum(range(1, count + 1))


async def tree(mix: Mix) -> None:
    """A tree of delayed calls."""
    count, seconds = mix.rng.randint(2, 20), mix.seconds
    make = dask.delayed(step, pure=False)
    add = dask.delayed(lambda *numbers: sum(numbers), pure=False)
    level = [make(number, seconds) for number in range(count)]
    while len(level) > 1:
        level = [add(*level[i : i + 3]) for i in range(0, len(level), 3)]
    assert await mix.client.compute(level[0]) == sum(range(1, count + 1))


async def array(mix: Mix) -> None:
    """x + x.T, by blocks."""
    size = mix.rng.randint(2, 4)
    x = dask.array.full((size * 10, size * 10), mix.number, chunks=(10, 10))
    x = x.map_blocks(lambda block: block + 1, dtype=x.dtype, name=mix.name("plus"))
    total = await mix.client.compute((x + x.T).sum())
    assert total == 2 * (mix.number + 1) * (size * 10) ** 2


def frame(mix: Mix) -> tuple[Any, Any]:
    """A dataframe, and it in partitions."""
    rows = pandas.DataFrame({"key": [n % 7 for n in range(300)], "value": mix.number})
    return rows, dask.dataframe.from_pandas(rows, npartitions=mix.rng.randint(2, 5))


async def groupby(mix: Mix) -> None:
    """Sums by key."""
    rows, parts = frame(mix)
    found = await mix.client.compute(parts.groupby("key").value.sum())
    assert found.to_dict() == rows.groupby("key").value.sum().to_dict()


async def shuffle(mix: Mix) -> None:
    """A p2p shuffle. It may fail if workers are lost, as without the gate."""
    rows, parts = frame(mix)
    before = mix.losses()
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        future = mix.client.compute(parts.shuffle("key").value.sum())
    try:
        assert await future == rows.value.sum()
    except RuntimeError as error:
        is_undisturbed = mix.losses() == before and before % 2 == 0
        if is_undisturbed or "P2P" not in str(error):
            raise


async def cancelled(mix: Mix) -> None:
    """Calls that are cancelled; others need some of them."""
    parts = mix.client.map(step, range(20), seconds=0.02, key=mix.name("step"))
    await asyncio.sleep(mix.rng.random() * 0.3)
    total = mix.client.submit(sum, parts[:3], key=mix.name("total"))
    await mix.client.cancel(parts[3:])
    assert await total == 6


async def forgotten(mix: Mix) -> None:
    """Calls of which nobody wants the results any more."""
    parts = mix.client.map(step, range(20), seconds=0.02, key=mix.name("step"))
    await asyncio.sleep(mix.rng.random() * 0.3)
    del parts


async def failing(mix: Mix) -> None:
    """A call that fails, and one that needs it."""
    parts = mix.client.map(step, range(5), seconds=mix.seconds, key=mix.name("step"))
    bad = mix.client.submit(fail, parts[2], key=mix.name("bad"))
    behind = mix.client.submit(step, bad, key=mix.name("behind"))
    error = await behind.exception()
    assert repr(error) == "ValueError('no 3')"
    assert await mix.client.gather(parts) == [1, 2, 3, 4, 5]


async def retried(mix: Mix) -> None:
    """A call that fails, is scheduled again, and succeeds."""
    path = mix.folder / mix.name("calls")
    one = mix.client.submit(third, path, retries=mix.rng.randint(0, 2), key=mix.name("third"))
    if await one.exception() is not None:
        await one.retry()
    assert await one == 3


async def actors(mix: Mix) -> None:
    """An actor; it is lost with its worker.

    Its key is a task group of its own: Dask queues actors of large groups, and a scheduler that
    validates itself takes this for an error and drops its workers.
    """
    before = mix.losses()
    try:
        future = mix.client.submit(Counter, actor=True, key=f"counter_m{mix.number}x")
        with mix.client.as_current():
            counter = await future
            found = [await asyncio.wait_for(counter.add(), 20) for _ in range(3)]
        assert found == [1, 2, 3]
    except Exception:
        if mix.losses() == before and before % 2 == 0:
            raise


async def bound(mix: Mix) -> None:
    """Calls for one worker, others for the resources that each worker has."""
    workers = list(mix.client.scheduler_info(n_workers=-1)["workers"])
    if not workers:
        return
    parts = mix.client.map(
        step,
        range(8),
        workers=[mix.rng.choice(workers)],
        allow_other_workers=True,
        seconds=mix.seconds,
        key=mix.name("bound"),
    )
    gpus = mix.client.map(step, range(8), resources={"GPU": 1}, key=mix.name("gpu"))
    assert await mix.client.gather(parts + gpus) == [*range(1, 9)] * 2


async def nested(mix: Mix) -> None:
    """Calls that wait for calls of their own; `nested-POOL` tells the pool of these.

    They may fail once workers were lost: workers of one process share a client for these calls,
    which is lost with its worker.
    """
    waits = mix.rng.choice((waits_seceded, waits_in_thread))
    inner = [f"nested-{mix.pool}-{mix.number}x-{number}" for number in range(4)]
    parts = mix.client.map(waits, range(4), inner, key=mix.name("parent"))
    try:
        assert await mix.client.gather(parts) == [1, 2, 3, 4]
    except Exception:
        if not mix.losses():
            raise


async def leaves_thread(mix: Mix) -> None:
    """Calls that secede and come back."""
    parts = mix.client.map(comes_back, range(6), key=mix.name("back"))
    assert await mix.client.gather(parts) == [1, 2, 3, 4, 5, 6]


async def shared(mix: Mix) -> None:
    """Calls that other computations share: of all clients, or of those of its pool."""
    numbers = range(mix.rng.randint(4, 12))
    keys = [f"shared-{mix.pool if mix.has_pools else ''}-{number}" for number in numbers]
    parts = [
        mix.client.submit(step, number, 0.02, key=key)
        for number, key in zip(numbers, keys, strict=True)
    ]
    if mix.rng.random() < 0.3:
        await asyncio.sleep(0.05)
        del parts
    else:
        assert await mix.client.gather(parts) == [number + 1 for number in numbers]


async def persisted(mix: Mix) -> None:
    """Blocks that stay in memory, and are computed again if they are lost."""
    x = dask.array.ones((40,), chunks=5).map_blocks(
        lambda block: block + 1, dtype=float, name=mix.name("kept")
    )
    kept = mix.client.persist(x)
    for _ in range(3):
        await asyncio.sleep(mix.rng.random() * 0.5)
        assert await mix.client.compute(kept.sum()) == 80


async def leaving(mix: Mix) -> None:
    """A client that leaves while its tasks run."""
    one = await client_of(mix.client.scheduler.address, mix.pool)
    one.map(step, range(20), seconds=0.02, key=mix.name("step"))
    await asyncio.sleep(mix.rng.random() * 0.3)
    await one.close()


GRAPHS: tuple[Callable[[Mix], Awaitable[None]], ...] = (
    futures,
    futures,
    futures,
    tree,
    array,
    groupby,
    shuffle,
    cancelled,
    forgotten,
    failing,
    retried,
    actors,
    bound,
    nested,
    leaves_thread,
    shared,
    persisted,
    leaving,
)
