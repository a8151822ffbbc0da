"""The memory of Dask's workers: what tasks need, what is free, and which tasks fit where.

A worker has room for a task if its limit less a reserve, less what its process takes without
tasks, less the results stored there, less the estimates of the tasks that run there, is at
least the estimate of the task. What a task needs is stated by its annotation, or learned from
the tasks of its prefix that have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from typing import Any, NamedTuple

import cloudpickle

from slotwise.core.errors import InputError
from slotwise.core.resources import MEMORY, resources_of
from slotwise.core.sizing import CASES_MIN, LearnedMemory
from slotwise.core.units import size_text
from slotwise.dask import measuring
from slotwise.dask.computations import Key
from slotwise.dask.holding import Places, Workers

logger = logging.getLogger("slotwise.dask")

RESERVE = 0.2
"""The part of a worker's limit that tasks do not get: from there on, Dask pauses the worker."""

WAIT_SECONDS = 1.0
"""The time after which a task that fits nowhere has a worker kept free for it."""

PREFIXES_MAX = 10_000
"""The number of prefixes whose memory is known; the one known longest is forgotten."""

Need = int | str
"""What a task needs: bytes that are stated, or its prefix, whose need is learned."""

ALONE = ""
"""The need of a task whose worker was lost while it ran: a worker for itself."""


class MemoryGroup(NamedTuple):
    """Tasks of a job with the same need that may use the same workers; None: all of them."""

    workers: Workers | None
    need: Need
    job: str


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """The memory of a worker, in bytes.

    limit      its limit; 0 if it has none
    other      what its process takes without tasks and results
    stored     the results in its memory
    estimated  what the tasks that run there may need together
    tasks      the number of those that occupy a thread
    """

    worker: str
    limit: int
    other: int
    stored: int
    estimated: int
    tasks: int

    @property
    def free(self) -> float:
        """What further tasks may use now."""
        return max(0.0, self.free_idle - self.estimated)

    @property
    def free_idle(self) -> float:
        """What tasks could use if none ran."""
        if not self.limit:
            return inf
        return max(0.0, int((1 - RESERVE) * self.limit) - self.other - self.stored)


@dataclass(slots=True)
class _PrefixPeaks:
    """What is known of a prefix: its cases, and the largest."""

    learned: LearnedMemory
    cases: int = 0
    largest: int = 0

    def note(self, peak: int) -> None:
        self.learned.note(peak)
        self.cases, self.largest = self.cases + 1, max(self.largest, peak)

    @property
    def estimate(self) -> int:
        """With few cases there is no estimate: the fewer, the more is added to the largest."""
        few = int(self.learned.after_failure(0) * (1 + 1 / self.cases))
        return self.learned.estimate() or few


class Needs:
    """What tasks need, by prefix."""

    def __init__(self) -> None:
        self._known: dict[str, _PrefixPeaks] = {}

    def learn(self, prefix: str, rise: int, at_once: int, beside: Iterable[str]) -> None:
        """Learn from a task during which the memory of its worker rose by `rise` bytes.

        If others ran at the same time, it counts with an equal part of the rise. A part that
        is above its estimate, but not above those of the others, says nothing: it may be
        theirs.
        """
        part = max(0, rise) // at_once
        known = self._known.get(prefix)
        is_explained = any(part <= self.bytes_of(other) for other in beside)
        if at_once > 1 and is_explained and part > (known.largest if known else 0):
            return
        if known is None:
            if len(self._known) == PREFIXES_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[prefix] = _PrefixPeaks(LearnedMemory())
        known.note(part)

    def bytes_of(self, need: Need) -> float:
        """The bytes of a need; infinite for a prefix of which no task has ended."""
        if isinstance(need, int):
            return need
        known = self._known.get(need)
        return inf if known is None else known.estimate

    def is_sure(self, need: Need) -> bool:
        """Whether a need is stated, or learned from enough cases for an estimate."""
        if isinstance(need, int):
            return True
        return need in self._known and self._known[need].cases >= CASES_MIN

    def text(self, need: Need) -> str:
        """A need as text."""
        known = self.bytes_of(need)
        if known < inf:
            return f"{size_text(int(known))} of memory"
        return (
            "a worker for itself until its memory is known" if need else "a worker for itself"
        )


class PoolMemory:
    """What running tasks hold in the pools that limit memory, in bytes.

    A task that needs more than its pool may hold, or of which nothing is known, begins while no
    other task of the pool runs, since Dask could not refuse it.
    """

    def __init__(self, limits_of: Callable[[str], Mapping[str, int]]) -> None:
        """`limits_of`: the pools that limit the memory of a job, with the most of each."""
        self.limits_of = limits_of
        self._held: dict[str, float] = {}

    def hold(self, job: str, amount: float) -> None:
        """Count a task of a job that needs so much."""
        for pool in self.limits_of(job):
            self._held[pool] = self._held.get(pool, 0.0) + amount

    def needed(self, group: MemoryGroup, amount: float) -> dict[str, float]:
        """What is kept in its pools for a task of a group that has waited."""
        return {pool: min(amount, most) for pool, most in self.limits_of(group.job).items()}

    def count(self, job: str, amount: float, beside: Mapping[str, float]) -> float:
        """How many tasks of a job that need so much may begin, with so much kept for others."""
        found = inf
        for pool, most in self.limits_of(job).items():
            held = self._held.get(pool, 0.0) + beside.get(pool, 0.0)
            if amount > most:
                found = min(found, 0 if held else 1)
            elif amount:
                found = min(found, max(0.0, most - held) // amount)
        return found

    def full(self, job: str, amount: float) -> str:
        """The pool that has no room for a task of a job now; empty if all have."""
        for pool, most in self.limits_of(job).items():
            held = self._held.get(pool, 0.0)
            if held and held + amount > most:
                what = "a task of unknown need" if held == inf else size_text(int(held))
                return f"pool {pool} holds {what} of at most {size_text(most)} of memory"
        return ""


class MemoryPlaces(Places):
    """Workers with room for tasks: they have a free thread, and enough free memory.

    A task that needs more than any worker could give has the worker with the most memory for
    itself. One whose need is unknown has any worker for itself.

    kept    the worker that is kept free for a group that has waited, if any
    pools   what running tasks hold in the pools that limit memory
    larger  the needs that were larger than the most memory that a worker could give, with that
    """

    def __init__(
        self,
        room: dict[str, int],
        workers: Mapping[str, WorkerMemory],
        bytes_of: Callable[[Need], float],
        kept: tuple[str, MemoryGroup] | None = None,
        pools: PoolMemory | None = None,
    ) -> None:
        super().__init__(room)
        self._workers, self._bytes_of, self._kept = dict(workers), bytes_of, kept
        self.pools = pools or PoolMemory(lambda job: {})
        self.larger: dict[Need, int] = {}
        self._found: dict[MemoryGroup, dict[str, int]] = {}  # since the last task began

    def of(self, group: Any) -> set[str]:
        """The workers with room for a task of a group."""
        return set(self._counts(group))

    def count(self, group: Any) -> int:
        """How many tasks of a group have room now, if no others begin."""
        return sum(self._counts(group).values())

    def take(self, address: str, group: Any) -> None:
        """Count a task that begins."""
        super().take(address, group)
        self._found.clear()
        one, amount = self._workers[address], self._bytes_of(group.need)
        self.pools.hold(group.job, amount)
        amount = min(amount, one.free) if one.limit else 0
        estimated = one.estimated + int(amount)
        self._workers[address] = replace(one, estimated=estimated, tasks=one.tasks + 1)

    def largest(self, workers: Workers | None) -> str | None:
        """Of these workers, one that could give most memory."""
        able = self._workers if workers is None else self._workers.keys() & workers
        return max(able, key=lambda one: (self._workers[one].free_idle, one), default=None)

    def _counts(self, group: MemoryGroup) -> dict[str, int]:
        found = self._found.get(group)
        if found is None:
            found = self._found[group] = dict(self._counted(group))
            kept = self._kept[1] if self._kept and self._kept[1] != group else None
            beside = {} if kept is None else self.pools.needed(kept, self._bytes_of(kept.need))
            most = self.pools.count(group.job, self._bytes_of(group.need), beside)
            for address in found:
                found[address] = int(min(found[address], most))
                most -= found[address]
            found = self._found[group] = {one: n for one, n in found.items() if n}
        return found

    def _counted(self, group: MemoryGroup) -> Iterator[tuple[str, int]]:
        amount = self._bytes_of(group.need)
        able = self.room.keys() if group.workers is None else self.room.keys() & group.workers
        if self._kept and self._kept[1] != group:
            able = able - {self._kept[0]}
        largest = self.largest(group.workers)
        most = self._workers[largest].free_idle if largest else 0
        for address in able:
            one, room = self._workers[address], self.room[address]
            if not one.limit:
                count = room
            elif amount <= most:
                count = min(room, int(one.free // amount)) if amount else room
            else:
                is_able = amount == inf or address == largest
                if amount < inf:
                    self.larger[group.need] = int(most)
                count = int(is_able and not one.tasks)
            if count:
                yield address, count


class TaskMemory:
    """The memory of the workers and tasks of a Dask scheduler."""

    def __init__(
        self,
        scheduler: Any,
        job_of: Callable[[Key], str] = lambda key: "",
        limits_of: Callable[[str], Mapping[str, int]] | None = None,
    ) -> None:
        """`job_of`: the job of a task; `limits_of` as of `PoolMemory`, None without limits."""
        self._scheduler, self._job_of, self._limits_of = scheduler, job_of, limits_of
        self.needs = Needs()
        self._other: dict[str, int] = {}
        self._since: dict[MemoryGroup, float] = {}
        self._warned: set[Need] = set()
        self._places = MemoryPlaces({}, {}, self.needs.bytes_of)

    def learn(self, report: Mapping[str, Any]) -> None:
        """Learn from the report of a `TaskMeter`."""
        what = (report[name] for name in ("prefix", "rise", "at_once", "beside"))
        self.needs.learn(*what)
        worker = self._scheduler.workers.get(report["worker"])
        if worker is not None and report["at_once"] == 1:
            self._other[worker.address] = max(0, report["begin"] - _stored(worker))

    def need(self, key: Key) -> Need:
        """What a task needs."""
        task = self._scheduler.tasks[key]
        if task.suspicious:
            return ALONE
        stated = _stated(task.annotations)
        return str(task.prefix.name) if stated is None else stated

    def workers(self) -> dict[str, WorkerMemory]:
        """The memory of each worker that runs tasks. O(workers + their tasks)."""
        self._other = {
            address: other
            for address, other in self._other.items()
            if address in self._scheduler.workers
        }
        return {one.address: self._worker(one) for one in self._scheduler.running}

    def places(
        self, room: dict[str, int], parked: Iterable[MemoryGroup], now: float
    ) -> MemoryPlaces:
        """The workers with room; `parked` has the groups of tasks that wait.

        Of the groups that have fitted nowhere for `WAIT_SECONDS`, the first one has a worker
        kept free for it until it fits. Otherwise tasks that need little could take the room
        forever.
        """
        self._warn(self._places.larger)
        workers, since = self.workers(), self._since
        find = partial(MemoryPlaces, room, workers, self.needs.bytes_of, pools=self._pools())
        places = self._places = find()
        waiting = list(parked)
        due = [group for group in waiting if now >= since.get(group, now) + WAIT_SECONDS]
        self._since = {
            group: since.get(group, now) for group in waiting if not places.count(group)
        }
        first = min(due, key=lambda group: since[group], default=None)
        worker = first and places.largest(first.workers)
        if first is None or worker is None:
            return places
        self._places = find(kept=(worker, first))
        return self._places

    def _pools(self) -> PoolMemory:
        """What the tasks that run hold in pools. O(tasks of the workers)."""
        if self._limits_of is None:
            return PoolMemory(lambda job: {})
        pools = PoolMemory(self._limits_of)
        for worker in self._scheduler.workers.values():
            for task in worker.processing:
                pools.hold(self._job_of(task.key), self.needs.bytes_of(self.need(task.key)))
        return pools

    def why(self, group: MemoryGroup) -> str:
        """Why the tasks of a group wait."""
        tasks = (
            f"tasks {group.need!r}" if isinstance(group.need, str) and group.need else "tasks"
        )
        need = self.needs.text(group.need)
        if full := self._places.pools.full(group.job, self.needs.bytes_of(group.need)):
            return f"its {tasks} need {need}; {full}"
        return f"its {tasks} need {need}; no worker that may run them has room"

    def _warn(self, larger: Mapping[Need, int]) -> None:
        for need in larger.keys() - self._warned:
            if self.needs.is_sure(need):
                self._warned.add(need)
                logger.warning(
                    "%s need %s, but no worker has more than %s; each runs alone",
                    f"tasks {need!r}" if isinstance(need, str) else "tasks",
                    self.needs.text(need),
                    size_text(larger[need]),
                )

    def _worker(self, worker: Any) -> WorkerMemory:
        if worker.address not in self._other:
            process = worker.metrics.get("memory", 0)
            self._other[worker.address] = max(0, process - _stored(worker))
        limit, other, stored = (
            worker.memory_limit or 0,
            self._other[worker.address],
            _stored(worker),
        )
        needs = [self.needs.bytes_of(self.need(task.key)) for task in worker.processing]
        idle = WorkerMemory(str(worker.name), limit, other, stored, 0, 0)
        estimated = int(min(sum(needs), idle.free_idle)) if limit else 0
        tasks = len(worker.processing) - len(worker.long_running)
        return replace(idle, estimated=estimated, tasks=tasks)


async def send_meter(scheduler: Any) -> None:
    """Let all workers, also later ones, measure the memory of tasks."""
    cloudpickle.register_pickle_by_value(measuring)
    try:
        plugin = cloudpickle.dumps(measuring.TaskMeter())
    finally:
        cloudpickle.unregister_pickle_by_value(measuring)
    await scheduler.register_worker_plugin(None, plugin, measuring.TOPIC, idempotent=True)


def _stored(worker: Any) -> int:
    """The bytes of results in the memory of a worker, without those on disk."""
    spilled = (worker.metrics.get("spilled_bytes") or {}).get("memory", 0)
    return max(0, int(worker.nbytes) - int(spilled))


def _stated(annotations: Mapping[str, Any] | None) -> int | None:
    """The memory that the annotation of a task states, or None. What is invalid is ignored."""
    mine = (annotations or {}).get("slotwise")
    stated = mine.get(MEMORY) if isinstance(mine, Mapping) else None
    return _bytes(stated) if isinstance(stated, str | int) else None


@lru_cache
def _bytes(stated: str | int) -> int | None:
    try:
        return resources_of("memory", {MEMORY: stated})[MEMORY]
    except InputError:
        return None  # With a warning when its graph came.
