"""Changes of jobs, pools and the objective while a session runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from slotwise.model.errors import InputError
from slotwise.model.event import (
    JobChanged,
    ObjectiveChanged,
    PoolsChanged,
)
from slotwise.model.fitting import check_fits
from slotwise.model.job import Job
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree
from slotwise.objective.objective import Objective
from slotwise.runtime.state import State
from slotwise.sessions.checking import (
    check_number,
    check_pools,
    check_seconds,
    check_text,
    part_of_session,
)
from slotwise.sessions.futures import Future
from slotwise.sessions.loop_thread import LoopThread


@part_of_session
class ChangesJobs:
    """The part of a session that changes jobs, pools and the objective."""

    lock: threading.RLock
    _loop: LoopThread
    _state: State
    _pools: PoolTree
    _objective: Objective

    @property
    def now(self) -> float:
        """Seconds since the session began."""
        return self._loop.backend.now

    def _jobs_left(self) -> list[Job]:
        """The jobs that are not over, also those that have not arrived yet."""
        raise NotImplementedError

    def warn_of_pool(self, pool: str) -> None:
        """Warn if a pool is none of those that the session was given."""
        raise NotImplementedError

    def change(
        self,
        future: Future[Any],
        *,
        priority: str | None = None,
        weight: float | None = None,
        pool: str | None = None,
        deadline: float | None = None,
    ) -> None:
        """Change properties of a job while it runs; those not given stay.

        `deadline` in seconds from now. Tasks that run continue. No effect on a job that is
        over. InputError for a value that no job can have.
        """
        if not isinstance(future, Future) or not future.is_of(self):
            raise InputError(
                f"{future!r} is no future of this session; give what `submit`, `run` or"
                " `command` returned"
            )
        for what, text in (("pool", pool), ("priority", priority)):
            if text is not None:
                check_text(what, text)
        if weight is not None:
            check_number("weight", weight)
        if deadline is not None:
            check_seconds("deadline", deadline)
        if pool is not None:
            self.warn_of_pool(pool)

        def change() -> None:
            for phase in self._state.phases_of(future.job)[:1]:
                old, now = phase.job, self.now
                event = JobChanged(
                    now,
                    old.id,
                    old.priority if priority is None else priority,
                    old.weight if weight is None else weight,
                    old.pool if pool is None else pool,
                    old.deadline if deadline is None else now + deadline,
                )
                pools = self._state.pools.with_pools([event.pool])
                check_fits(event.applied_to(old), self._state.cluster, pools)
                self._loop.hear(event)

        self._loop.ask(change)

    def set_pools(self, pools: Iterable[Pool]) -> None:
        """Replace the pools, with their weights and shares; jobs keep theirs by name.

        InputError for pools that do not fit together, that leave a pool of a job without jobs
        of its own, or whose max share is smaller than a task of a job.
        """
        given = check_pools(pools)

        def change() -> None:
            with self.lock:
                tree = PoolTree(given)
                jobs = self._jobs_left()
                tree.with_pools(sorted({job.pool for job in jobs}))
                for job in jobs:
                    check_fits(job, self._state.cluster, tree)
                self._pools = tree
                self._loop.hear(PoolsChanged(self.now, given))

        self._loop.ask(change)

    def set_objective(self, objective: Objective | str) -> None:
        """Replace the objective.

        InputError for a name that is no penalty, or if a job lacks the deadline that it needs.
        """
        named = Objective.named(objective) if isinstance(objective, str) else objective
        if not isinstance(named, Objective):
            raise InputError(
                f"objective is {named!r}; give the name of a penalty, or a slotwise.Objective"
            )
        event = ObjectiveChanged(self.now, named.penalty, named.aggregate)

        def change() -> None:
            with self.lock:
                named.check(self._jobs_left())
                self._objective = named
                self._loop.hear(event)

        self._loop.ask(change)
