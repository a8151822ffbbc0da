"""A plugin beside the gate that checks from outside how a Dask cluster is shared.

It counts the tasks that Dask has sent to workers and that have not seceded, by pool. It knows
the pool of a task by the client that sent it first. Of the gate it reads when turns begin, when
the next allocation may be (0.05 s after the last one, or later with many phases), and which
nested tasks are never held: these count for no pool, unless they began before the gate knew
that their parents wait for them.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from math import inf
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from slotwise.core.pools import Pool, PoolTree
from slotwise.dask.options import client_name


class GateObserver(SchedulerPlugin):
    """Notes what breaks a promise of the gate, in `wrong`.

    `longest_lack` is the longest time for which a pool lacked a slot of its min share although
    it had a task for it that any worker may run, in seconds.
    """

    name = "observer"

    def __init__(self, scheduler: Any, gate: Any, pools: tuple[Pool, ...]) -> None:
        self.scheduler, self.pools = scheduler, PoolTree([*pools, Pool("default")])
        self.wrong: list[str] = []
        self.longest_lack = 0.0
        self.tasks = 0
        self._pool_of: dict[Hashable, str] = {}
        self._busy: dict[str, set[Hashable]] = defaultdict(set)
        self._runnable: dict[str, set[Hashable]] = defaultdict(set)
        # Of each slot that a pool lacks: since when, and when the next allocation may be.
        self._lacks: dict[tuple[str, int], tuple[float, float]] = {}
        # What pools needed at most since the last allocation, which holds until the next one.
        self._allocation, self._needed = -inf, Counter[str]()
        self._turn_began = 0.0
        self._started: list[tuple[Hashable, str]] = []
        self._gate = gate
        turn = gate._turn

        def observed() -> None:
            self._turn_began = time.monotonic()
            turn()
            self._note_lacks()
            self._check_turn()

        gate._turn = observed

    # Hooks.

    def update_graph(self, scheduler: Any, *, client: str, tasks: Any, **kwargs: Any) -> None:
        """Each task is of the pool of the client that has sent it first."""
        pool = client_name(client)
        for key in tasks:
            name = str(key[0] if isinstance(key, tuple) else key)
            if name.startswith("nested-"):
                self._pool_of[key] = name.split("-")[1]
            elif pool in self.pools:
                self._pool_of.setdefault(key, pool)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task begins to wait for a slot, gets one, or gives it back."""
        pool = self._pool_of.get(key)
        if finish == "forgotten":
            self._pool_of.pop(key, None)
        task = self.scheduler.tasks.get(key)
        if pool is None or (task is not None and task.actor):
            return
        if start == "processing":
            self._busy[pool].discard(key)
        if start == "no-worker":
            self._runnable[pool].discard(key)
        if finish == "no-worker" and not self._is_bound(task):
            self._runnable[pool].add(key)
        if finish == "processing":
            self.tasks += 1
            if key not in self._gate._holding.exempted:
                self._busy[pool].add(key)
            self._check_start(key, pool)
        self._note_lacks()

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """The slots are fewer."""
        self._note_lacks()

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """The slots are more."""
        self._note_lacks()

    # What must hold.

    def _check_start(self, key: Hashable, pool: str) -> None:
        """No max share is exceeded."""
        for one in self.pools.path(pool):
            most = one.slots_max.get("task", inf)
            if (held := self._held(one.name)) > most:
                self.wrong.append(f"pool {one.name} holds {held} of at most {most}: {key}")
        if key not in self._gate._holding.exempted:
            self._started.append((key, pool))

    def _is_owed(self, pool: str, other: str) -> bool:
        """Whether a task of a pool may begin although the other pool lacks slots.

        Where their paths part, either the branch of the pool holds no more than its guarantee
        since the last allocation, or that of the other one holds its guarantee: then the other
        gets the next slot there.
        """
        pairs = zip(self.pools.path(pool), self.pools.path(other), strict=False)
        mine, its = next(((one, two) for one, two in pairs if one != two), (None, None))
        if mine is None or its is None:
            return True  # One contains the other.
        return self._held(mine.name) <= self._needed[mine.name] or (
            self._held(its.name) >= self._need(its.name)
        )

    def _need(self, name: str) -> int:
        """The guaranteed slots that a pool can use now."""
        below = sum(self._need(one.name) for one in self.pools.values() if one.parent == name)
        return min(max(self.pools[name].slots_min.get("task", 0), below), self._usable(name))

    def _guaranteed(self, name: str) -> int:
        """The min share of a pool, or those of the pools in it, within its max share."""
        inside = [one.name for one in self.pools.values() if one.parent == name]
        below = sum(map(self._guaranteed, inside))
        own = self.pools[name].slots_min.get("task", 0)
        return min(max(own, below), self.pools[name].slots_max.get("task", own + below))

    def _usable(self, name: str) -> int:
        """The slots that the tasks of a pool could occupy now, by the max shares there."""
        here = sum(map(self._occupies, self._busy[name])) + len(self._runnable[name])
        below = sum(self._usable(one.name) for one in self.pools.values() if one.parent == name)
        return min(here + below, self.pools[name].slots_max.get("task", here + below))

    def _note_lacks(self) -> None:
        """Note which slots of their min shares pools lack now, and since when."""
        now = time.monotonic()
        if self._allocation != (allocation := self._gate._state.reallocates_from):
            self._allocation, self._needed = allocation, Counter()
        self._needed |= Counter({name: self._need(name) for name in self.pools})
        lacks = {(name, slot) for name in self.pools for slot in self._lacking(name)}
        for ended in self._lacks.keys() - lacks:
            since, _ = self._lacks.pop(ended)
            self.longest_lack = max(self.longest_lack, now - since)
        for begun in lacks - self._lacks.keys():
            allocation = self._gate._began + self._gate._state.reallocates_from
            self._lacks[begun] = now, max(now, allocation)

    def _check_turn(self) -> None:
        """After a turn: no pool that is owed slots lacks them while others got some."""
        started, self._started = self._started, []
        for name, since in self._late():
            late = f"{name} has lacked slots for {self._turn_began - since:.3f} s"
            for key, pool in started:
                if not self._is_owed(pool, name):
                    self.wrong.append(f"{late}, {key} of {pool} began; {self._seen(name)}")
            if self._free_threads() > 0 and not self._gate._is_awake:
                self.wrong.append(f"{late}, threads are free; {self._seen(name)}")

    def _seen(self, name: str) -> str:
        """The tasks of a pool that wait, as the gate knows them."""
        tasks = self._gate._computations.tasks
        keys = [key for one in self._below(name) for key in self._runnable[one]]
        return f"at {self._gate.now:.3f} {[(key, tasks.get(key)) for key in keys[:3]]}"

    def _late(self) -> list[tuple[str, float]]:
        """The pools that lack a slot since before the last allocation, and since when."""
        return [
            (name, since)
            for (name, _), (since, due) in self._lacks.items()
            if self._turn_began > due
        ]

    def _free_threads(self) -> int:
        """The threads of running workers for which there is no task."""
        return sum(
            max(0, worker.nthreads - len(worker.processing) + len(worker.long_running))
            for worker in self.scheduler.running
        )

    def _lacking(self, name: str) -> range:
        """The numbers of the slots of its min share that a pool lacks and could use.

        Each is noted on its own: tasks that come later may need a second slot while the pool
        still lacks the first one.
        """
        least = self.pools[name].slots_min.get("task", 0)
        if not least or not self._is_enough():
            return range(0)
        above = (one for one in self.pools.path(name) if one.name != name)
        if any(self._held(one.name) >= one.slots_max.get("task", inf) for one in above):
            return range(0)
        return range(self._held(name), min(least, self._usable(name)))

    def _is_enough(self) -> bool:
        """Whether the threads suffice for all min shares, and for what no pool holds."""
        least = sum(self._guaranteed(one.name) for one in self.pools.values() if not one.parent)
        counted = sum(map(self._held, self.pools))
        running = self.scheduler.running
        busy = sum(len(worker.processing) - len(worker.long_running) for worker in running)
        threads = sum(worker.nthreads for worker in running)
        return threads >= least + max(0, busy - counted)

    def _held(self, name: str) -> int:
        """The slots that a pool holds."""
        keys = (key for pool in self._below(name) for key in self._busy[pool])
        return sum(map(self._occupies, keys))

    def _occupies(self, key: Hashable) -> bool:
        task = self.scheduler.tasks.get(key)
        worker = task and task.processing_on
        return bool(worker) and task not in worker.long_running

    def _below(self, name: str) -> Iterator[str]:
        """The pools with jobs in a pool, itself included."""
        return (one for one in self.pools if self.pools[name] in self.pools.path(one))

    def _is_bound(self, task: Any) -> bool:
        """Whether a task may use certain workers only, or needs their resources."""
        annotations = task.annotations or {}
        return bool(
            task.worker_restrictions
            or task.host_restrictions
            or "resources" in annotations
            or "workers" in annotations
        )
