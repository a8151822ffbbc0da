"""Random mixes of graphs on a Dask cluster with the gate, while its workers come and go."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from distributed import Client, Nanny, Scheduler, Status, Worker

import dask
from gate_observer import GateObserver
from graph_mixes import GRAPHS, Mix, client_of
from slotwise.core.pools import Pool
from slotwise.dask import Gate, GateOptions

POOLS = (
    (),
    (
        Pool("a", weight=2, slots_min={"task": 1}),
        Pool("b", slots_max={"task": 2}),
        Pool("c", jobs_max=2),
    ),
    (
        Pool("outer", slots_min={"task": 2}),
        Pool("a", parent="outer", slots_min={"task": 1}),
        Pool("b", parent="outer", slots_max={"task": 1}),
        Pool("c", policy="fifo", slots_max={"task": 3}),
    ),
    (
        Pool("outer", slots_max={"task": 2}),
        Pool("a", parent="outer", slots_min={"task": 1}, weight=3),
        Pool("b", parent="outer"),
        Pool("c", slots_min={"task": 1}),
    ),
)
"""Configurations of pools, in which clients are in `a`, `b`, `c` or `default`."""

SCHEDULERS = ("fair", "flex", "fair", "flex", "fifo", "uwfq", "las", "flowflex")

CONFIG = {
    "distributed.scheduler.allowed-failures": 10_000,
    "distributed.logging.distributed": "critical",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.scheduler.worker-ttl": None,
    "distributed.admin.tick.limit": "1h",
    "distributed.p2p.comm.retry.count": 2,
    "distributed.p2p.comm.retry.delay.min": "0.1s",
    "distributed.p2p.comm.retry.delay.max": "0.2s",
}

PATIENCE = 150
"""Seconds after which a graph is taken to hang."""

CLOSE_SECONDS = 5.0
"""How long a worker may take to close."""


class ClusterMix:
    """One mix, which follows from its seed, apart from the timing.

    The gate is not told the shares of one kind, `untold`, which the observer then misses.
    """

    def __init__(self, seed: int, seconds: float, folder: Path, untold: str = "") -> None:
        self.rng = Random(seed)
        self.seconds, self.folder = seconds, folder
        self.pools = self.rng.choice(POOLS)
        self.told_pools = tuple(
            replace(one, **{untold: {}} if untold else {}) for one in self.pools
        )
        self.options = {
            "scheduler": self.rng.choice(SCHEDULERS),
            "ahead": self.rng.choice((0, 0, 1, None)),
            "log": str(folder / f"mix-{seed}.jsonl"),
        }
        self.is_killing = self.rng.random() < 0.8
        self.makes_nannies = self.rng.random() < 0.1
        self.losses = 0
        self.workers: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.observer: GateObserver

    async def run(self) -> None:
        """Run it; an AssertionError or the error of a graph tells what is wrong."""
        names = [one.name for one in self.pools if one.name in "abc"] + ["default"]
        async with Scheduler(
            port=0, host="127.0.0.1", dashboard=False, validate=True
        ) as scheduler:
            self.scheduler = scheduler
            self.gate = Gate(GateOptions(pools=self.told_pools, **self.options))
            scheduler.add_plugin(self.gate, name=Gate.name)
            await self.gate.start(scheduler)
            self.observer = GateObserver(scheduler, self.gate, self._observed())
            scheduler.add_plugin(self.observer)
            for _ in range(self.rng.randint(2, 3)):
                await self._join()
            clients = [
                (name, await client_of(scheduler.address, name))
                for name in [*names, self.rng.choice(names)]
            ]
            try:
                await self._all_graphs(clients)
                for _, client in clients:
                    await client.close()
                await self._settle()
            finally:
                for _, client in clients:
                    await client.close()
                for worker in self.workers:
                    await close_worker(worker)

    def _observed(self) -> tuple[Pool, ...]:
        """The pools, with their min shares if the scheduler keeps these."""
        if self.options["scheduler"] != "fifo":
            return self.pools
        return tuple(replace(one, slots_min={}) for one in self.pools)

    async def _all_graphs(self, clients: list[tuple[str, Client]]) -> None:
        """Send graphs for some time, then wait for all of them."""
        ends = time.monotonic() + self.seconds
        churn = asyncio.create_task(self._churn(ends))
        running: set[asyncio.Task[None]] = set()
        number = 0
        while time.monotonic() < ends:
            number += 1
            pool, client = self.rng.choice(clients)
            rng = Random(self.rng.random())
            losses, has_pools = (lambda: self.losses), bool(self.pools)
            mix = Mix(client, pool, number, rng, self.folder, losses, has_pools)
            graph = self.rng.choice(GRAPHS)
            self.counts[graph.__name__] += 1
            running.add(asyncio.create_task(graph(mix), name=f"{graph.__name__} {number}"))
            await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.1, 0.3)))
            running = {one for one in running if not one.done() or one.result()}
        await churn
        ends = time.monotonic() + PATIENCE
        for one in running:
            await asyncio.wait([one], timeout=max(0.0, ends - time.monotonic()))
            assert one.done(), self._why([one.get_name() for one in running if not one.done()])
            one.result()

    async def _churn(self, ends: float) -> None:
        """Let workers come and go until then; one stays at least, and none is paused then."""
        while self.is_killing and time.monotonic() < ends:
            await asyncio.sleep(self.rng.choice((0.1, 0.4, 0.8)))
            what = self.rng.choice((self._join, self._kill, self._pause, self._retire))
            if what == self._join:
                if len(self.workers) < 5:
                    await self._join()
            elif len(self.workers) > 1:
                self.losses += what != self._pause
                await what()
                self.losses += what != self._pause
        for worker in self.workers:
            if not isinstance(worker, Nanny):
                worker.status = Status.running

    async def _join(self) -> None:
        """A worker comes."""
        kind = Nanny if self.makes_nannies else Worker
        threads = self.rng.randint(1, 2)
        self.workers.append(
            await kind(self.scheduler.address, nthreads=threads, resources={"GPU": 1})
        )
        self.counts["joined"] += 1

    async def _kill(self) -> None:
        """A worker dies without a word, perhaps to begin again."""
        worker = self.rng.choice(self.workers)
        self.counts["killed"] += 1
        if isinstance(worker, Nanny):
            await worker.kill()
            await worker.instantiate()
        else:
            self.workers.remove(worker)
            if self.rng.random() < 0.5:
                worker.batched_stream.comm.abort()
            await close_worker(worker)

    async def _retire(self) -> None:
        """A worker leaves; what it holds goes to others."""
        worker = self.rng.choice(self.workers)
        self.counts["retired"] += 1
        if not isinstance(worker, Nanny):
            self.workers.remove(worker)
            await self.scheduler.retire_workers([worker.address])
            await close_worker(worker)

    async def _pause(self) -> None:
        """A worker begins nothing for a while."""
        worker = self.rng.choice(self.workers)
        if not isinstance(worker, Nanny):
            self.counts["paused"] += 1
            worker.status = Status.paused
            await asyncio.sleep(self.rng.random() * 0.5)
            if worker in self.workers:
                worker.status = Status.running

    async def _settle(self) -> None:
        """When nobody wants results, the tables are empty."""
        gate, ends = self.gate, time.monotonic() + PATIENCE
        tables = {
            "held": gate._holding._held,
            "exempted": gate._holding.exempted,
            "tasks": gate._computations.tasks,
            "alive": gate._computations.alive,
            "submitters": gate._computations.submitters,
            "of Dask": self.scheduler.tasks,
        }
        assert not gate.is_open, "the gate has failed"

        def is_empty() -> bool:
            rest = gate._restricted, list(gate._state.jobs_left())
            return not any(tables.values()) and not any(map(len, rest)) and not gate._is_awake

        while not is_empty():
            assert time.monotonic() < ends, self._why([str(tables)[:3000]])
            gc.collect()
            await asyncio.sleep(0.05)
        assert gate._computations.running == 0
        gate.validate()
        assert not self.observer.wrong, (self.options, self.pools, self.observer.wrong[:4])

    def _why(self, left: list[str]) -> str:
        """What Dask and the gate know, for a mix that hangs."""
        gate = self.gate
        states = Counter(task.state for task in self.scheduler.tasks.values())
        known = {
            worker.address: worker for worker in self.workers if isinstance(worker, Worker)
        }
        busy = [
            (task.key, task.processing_on.address, task.processing_on.status, worker and one)
            for task in self.scheduler.tasks.values()
            if task.state == "processing"
            for worker in [known.get(task.processing_on.address)]
            for one in [worker and worker.state.tasks.get(task.key)]
        ]
        return (
            f"{left} hang; {self.options}, {self.pools}; open: {gate.is_open},"
            f" held {len(gate._holding)}, restricted {len(gate._restricted)}, room"
            f" {gate._room_now}, jobs {list(gate._computations.alive)}, {states}, {busy[:9]}"
        )


async def close_worker(worker: Any) -> None:
    """Close a worker of this process.

    If a task there has a client, Dask closes this one with a call that needs another event
    loop, and then waits for ever.
    """
    with suppress(asyncio.TimeoutError, RuntimeError):
        options = {} if isinstance(worker, Nanny) else {"executor_wait": False}
        await asyncio.wait_for(worker.close(**options), CLOSE_SECONDS)


def run_mix(seed: int, seconds: float, folder: Path) -> ClusterMix:
    """Run one mix."""
    mix = ClusterMix(seed, seconds, folder)
    with dask.config.set(CONFIG), closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(mix.run())
        # asyncio.run would wait for all tasks, and some of Dask ignore the cancellation.
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_SECONDS))
    return mix


def main() -> None:
    """Run the mix of the seed that is given, and print what it did.

    `slots_min` or `slots_max` after it: the gate is not told these shares.
    The process ends at once then: threads of workers that were killed may still wait.
    """
    seed = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        mix = ClusterMix(seed, 6.0, Path(folder), *sys.argv[2:])

        async def run() -> None:
            await mix.run()
            print(
                f"{mix.options['scheduler']}, ahead {mix.options['ahead']},"
                f" {mix.observer.tasks} tasks, longest lack {mix.observer.longest_lack:.2f} s,"
                f" {dict(mix.counts)}",
                flush=True,
            )
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)

        with dask.config.set(CONFIG):
            try:
                asyncio.run(run())
            except BaseException:
                traceback.print_exc()  # The last text: no task tells after it what it has lost.
                sys.stderr.flush()
                shutil.rmtree(folder, ignore_errors=True)
                os._exit(1)


if __name__ == "__main__":
    main()
