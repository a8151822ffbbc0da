"""Admission: each pool runs so many jobs at once, and the others wait outside."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from slotwise.model.job import PRIORITIES, Job
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree


class Admission:
    """Which jobs may begin: by priority, then by arrival, as far as their pools have room.

    A pool counts the jobs of the pools below it, too (`jobs_max`).
    """

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()  # by pool
        # Who waits, by pool, the next one first.
        self._waiting: dict[str, list[tuple[float, int, Job]]] = {}
        self._arrived = 0

    def arrive(self, job: Job, pools: PoolTree) -> Iterator[Job]:
        """A job is there; those that may begin now."""
        place = (-PRIORITIES[job.priority], self._arrived, job)
        self._arrived += 1
        insort(self._waiting.setdefault(job.pool, []), place)
        return self._admit(pools)

    def leave(self, job: Job, pools: PoolTree) -> Iterator[Job]:
        """A job that had begun is over; those that may begin now."""
        self._running.subtract(pool.name for pool in pools.path(job.pool))
        return self._admit(pools) if self._waiting else iter(())

    def waiting(self) -> list[str]:
        """The jobs that wait outside, the next one first."""
        return [job.id for *_, job in sorted(chain(*self._waiting.values()))]

    def full(self, job: Job, pools: PoolTree) -> list[str]:
        """The pools of a job that run as many jobs as they may."""
        return [pool.name for pool in pools.path(job.pool) if not self._has_room(pool)]

    def check(self, pools: PoolTree) -> None:
        """Assert that no pool runs too many jobs. For tests."""
        for name, count in self._running.items():
            max_share = pools[name].jobs_max
            assert max_share is None or 0 <= count <= max_share, "no pool runs too many jobs"

    def _admit(self, pools: PoolTree) -> Iterator[Job]:
        """Jobs of one pool wait for the same: only the first of each pool is looked at."""
        waiting = self._waiting
        while fit := [
            jobs[0]
            for name, jobs in waiting.items()
            if all(map(self._has_room, pools.path(name)))
        ]:
            first = min(fit)
            job = first[2]
            self._running.update(pool.name for pool in pools.path(job.pool))
            waiting[job.pool].remove(first)
            if not waiting[job.pool]:
                del waiting[job.pool]
            yield job

    def _has_room(self, pool: Pool) -> bool:
        return pool.jobs_max is None or self._running[pool.name] < pool.jobs_max
