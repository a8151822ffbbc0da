"""Changes of jobs, pools and the objective while a session runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slotwise.model.event import (
    JobChanged,
    ObjectiveChanged,
    PoolsChanged,
)
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree
from slotwise.objective.objective import Objective
from slotwise.runtime.local.arrivals import Entry as Put
from slotwise.runtime.state import State
from slotwise.sessions.futures import Future
from slotwise.sessions.loop_thread import LoopThread


class ChangesJobs:
    """The part of a session that changes jobs, pools and the objective."""

    _loop: LoopThread
    _state: State

    @property
    def now(self) -> float:
        """Seconds since the session began."""
        return self._loop.backend.now

    def put(self, entry: Put) -> None:
        """Give an entry to the loop; the caller holds the lock."""
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
                event.applied_to(old)
                self._state.pools.with_pools([event.pool])
                self.put(event)

        self._loop.ask(change)

    def set_pools(self, pools: Iterable[Pool]) -> None:
        """Replace the pools, with their weights and shares; jobs keep theirs by name.

        InputError for pools that do not fit together, or that leave a pool of a job without
        jobs of its own.
        """
        given = tuple(pools)

        def change() -> None:
            used = {phase.job.pool for job in self._state.jobs_left() for phase in job}
            PoolTree(given).with_pools(sorted(used))
            self.put(PoolsChanged(self.now, given))

        self._loop.ask(change)

    def set_objective(self, objective: Objective | str) -> None:
        """Replace the objective. InputError for a name that is no penalty."""
        named = Objective.named(objective) if isinstance(objective, str) else objective
        event = ObjectiveChanged(self.now, named.penalty, named.aggregate)
        self._loop.ask(lambda: self.put(event))
