"""What an adaptive cluster grows for: the tasks that its pools let begin on more workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

from slotwise.dask.computations import Computations, Key
from slotwise.runtime.pool_state import PoolState
from slotwise.runtime.state import State

TARGET = "adaptive_target"


def hide_limited(scheduler: Any, gate: Callable[[], Any]) -> None:
    """Let Dask's `adaptive_target` not count the tasks that pools hold at their limits.

    `gate` returns the gate of the scheduler, or None. What calls the function directly, or by
    the scheduler's handlers as `cluster.adapt` does, gets the wrapped one.
    """
    target = scheduler.adaptive_target

    def wrapped(target_duration: Any = None) -> int:
        one = gate()
        if one is None or one.is_open:
            return int(target(target_duration))
        waiting = scheduler.unrunnable
        scheduler.unrunnable = one.demanded(waiting)
        try:
            return int(target(target_duration))
        finally:
            scheduler.unrunnable = waiting

    scheduler.adaptive_target = scheduler.handlers[TARGET] = wrapped


class Demanded:
    """The tasks without a worker in Dask, less those that no further worker could begin.

    Those are runnable tasks of jobs that wait for admission, and of pools beyond their max
    shares. Its length costs O(jobs); an iteration, O(tasks) at worst.

    parked  the runnable tasks that wait for certain workers
    """

    def __init__(
        self, waiting: Any, state: State, computations: Computations, parked: Iterable[Key]
    ) -> None:
        self._waiting, self._tasks = waiting, computations.tasks
        of_job = Counter(self._tasks[key].phase.job for key in parked if key in self._tasks)
        self._allowed: dict[str, int] = {}
        self._hidden = 0
        outside, left = frozenset(state.awaiting_admission), dict[PoolState, float]()
        for job, computation in computations.alive.items():
            frontier = computation.frontier
            runnable = frontier.offered + frontier.later + of_job[job]
            limits = [share for phase in state.phases_of(job)[:1] for share in phase.limits]
            room = min((left.setdefault(share, share.room) for share in limits), default=inf)
            may_begin = 0 if job in outside else int(min(runnable, max(0, room)))
            for share in limits:
                left[share] -= may_begin
            if may_begin < runnable:
                self._allowed[job] = may_begin
                self._hidden += runnable - may_begin

    def __len__(self) -> int:
        return max(0, len(self._waiting) - self._hidden)

    def __iter__(self) -> Iterator[Any]:
        left = self._allowed.copy()
        for one in self._waiting:
            task = self._tasks.get(one.key)
            job = "" if task is None else task.phase.job
            if job in left:
                left[job] -= 1
                if left[job] < 0:
                    continue
            yield one

    keys = __iter__
