"""Admission: each pool runs a limited number of jobs at once; the others wait."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from math import inf

from slotwise.model.job import PRIORITIES, Job
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree


class Admission:
    """Admits jobs by priority, then by arrival, while their pools are below `jobs_max`.

    A pool also counts the jobs of the pools below it.
    """

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()  # by pool
        # The waiting jobs by pool, the next one first.
        self._waiting: dict[str, list[tuple[float, int, Job]]] = {}
        self._arrived = 0
        # More than `jobs_max` only where jobs moved to a pool, or its limit was lowered.
        self._excess: Counter[str] = Counter()

    def arrive(self, job: Job, pools: PoolTree) -> Iterator[Job]:
        """Add a job that arrived. The jobs that may begin now."""
        self._arrived += 1
        if not any(pool.jobs_max for pool in pools.path(job.pool)):
            return iter((job,))
        place = (-PRIORITIES[job.priority], self._arrived, job)
        insort(self._waiting.setdefault(job.pool, []), place)
        return self._admit(pools)

    def leave(self, job: Job, pools: PoolTree) -> Iterator[Job]:
        """Remove an admitted job that is over. The jobs that may begin now."""
        self._running.subtract(_limited(job, pools))
        return self._admit(pools) if self._waiting else iter(())

    def give_up(self, job: Job, pools: PoolTree) -> Iterator[Job]:
        """Remove a job that ends early, perhaps while it waits. The jobs that may begin now."""
        place = self._place(job)
        if place is None:
            return self.leave(job, pools)
        self._drop(place)
        return iter(())  # It took no room.

    def change(self, old: Job, job: Job, pools: PoolTree) -> Iterator[Job]:
        """Replace a job by one of another priority or pool. The jobs that may begin now."""
        if place := self._place(old):
            self._drop(place)
            new = (-PRIORITIES[job.priority], place[1], job)
            insort(self._waiting.setdefault(job.pool, []), new)
        else:
            self._running.subtract(_limited(old, pools))
            self._running.update(_limited(job, pools))
            self._excess |= self._running
        return self._admit(pools)

    def recount(self, admitted: Iterable[Job], pools: PoolTree) -> Iterator[Job]:
        """Count the admitted jobs anew, in new pools. The jobs that may begin now."""
        self._running = Counter(name for job in admitted for name in _limited(job, pools))
        self._excess = self._running.copy()
        return self._admit(pools)

    def waiting(self) -> list[str]:
        """The jobs that await admission, the next one first."""
        return [job.id for *_, job in sorted(chain(*self._waiting.values()))]

    def full(self, job: Job, pools: PoolTree) -> list[str]:
        """The pools of a job that are at their `jobs_max`."""
        return [pool.name for pool in pools.path(job.pool) if not self._has_room(pool)]

    def check(self, pools: PoolTree) -> None:
        """Assert that no pool runs too many jobs. For tests."""
        for name, count in self._running.items():
            jobs_max = pools[name].jobs_max
            most = inf if jobs_max is None else max(jobs_max, self._excess[name])
            assert 0 <= count <= most, "no pool runs too many jobs"

    def _admit(self, pools: PoolTree) -> Iterator[Job]:
        """Admit what fits. Jobs of a pool have the same limits: only its first is checked."""
        waiting = self._waiting
        while fit := [
            jobs[0]
            for name, jobs in waiting.items()
            if all(map(self._has_room, pools.path(name)))
        ]:
            first = min(fit)
            job = first[2]
            self._running.update(_limited(job, pools))
            self._drop(first)
            yield job

    def _place(self, job: Job) -> tuple[float, int, Job] | None:
        """The place of a waiting job; None for one that was admitted."""
        waiting = self._waiting.get(job.pool, ())
        return next((place for place in waiting if place[2].id == job.id), None)

    def _drop(self, place: tuple[float, int, Job]) -> None:
        """Remove a waiting job."""
        pool = place[2].pool
        self._waiting[pool].remove(place)
        if not self._waiting[pool]:
            del self._waiting[pool]

    def _has_room(self, pool: Pool) -> bool:
        return pool.jobs_max is None or self._running[pool.name] < pool.jobs_max


def _limited(job: Job, pools: PoolTree) -> list[str]:
    """The pools of a job that run a limited number of jobs; only these are counted."""
    return [pool.name for pool in pools.path(job.pool) if pool.jobs_max is not None]
