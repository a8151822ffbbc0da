"""The runnable tasks that may use certain workers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice

from slotwise.dask.computations import Key

Workers = frozenset[str]
"""The addresses of the workers that a task may use."""

IsHeld = Callable[[str], bool]
"""Whether the pools of a job hold it, so that none of its tasks can begin now."""


class Restricted:
    """Runnable tasks by the workers that they may use; each is offered or parked.

    At most as many are offered slots as their workers have room for, and none of a job that its
    pools hold, at a max share or in the queue for admission: it could not use the room.
    slotwise takes the others as blocked: it does not know that a slot is on a worker that they
    may not use.
    """

    def __init__(self) -> None:
        self._offered: dict[Workers, dict[Key, str]] = {}  # with the job of each
        self._parked: dict[Workers, dict[str, dict[Key, None]]] = {}  # by job
        self._of: dict[Key, tuple[Workers, str]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def is_parked(self, key: Key) -> bool:
        """Whether a task waits for a worker that it may use."""
        workers, job = self._of.get(key, (None, ""))
        return workers is not None and key in self._parked.get(workers, {}).get(job, ())

    def parked(self) -> Iterator[Key]:
        """The tasks that wait for workers that they may use."""
        return chain.from_iterable(
            keys for by_job in self._parked.values() for keys in by_job.values()
        )

    def offer(
        self, key: Key, workers: Workers, room: Mapping[str, int], job: str, is_held: IsHeld
    ) -> bool:
        """Offer slots to a task that may use these workers; False: it is parked."""
        self.forget(key)
        self._of[key] = workers, job
        offered = self._offered.get(workers, ())
        is_offered = len(offered) < _room_of(workers, room) and not is_held(job)
        if is_offered:
            self._offered.setdefault(workers, {})[key] = job
        else:
            self._parked.setdefault(workers, {}).setdefault(job, {})[key] = None
        return is_offered

    def forget(self, key: Key) -> None:
        """Forget a task, which runs, or need not."""
        workers, job = self._of.pop(key, (None, ""))
        if workers is None:
            return
        by_job = self._parked.get(workers, {})
        if key in by_job.get(job, ()):
            del by_job[job][key]
            if not by_job[job]:
                del by_job[job]
            if not by_job:
                del self._parked[workers]
        else:
            del self._offered[workers][key]
            if not self._offered[workers]:
                del self._offered[workers]

    def changed(self, room: Mapping[str, int], is_held: IsHeld) -> list[Key]:
        """The tasks to offer now, and those that can be offered no longer.

        O(kinds of restrictions * their jobs + tasks that are offered or returned).
        """
        found: list[Key] = []
        for workers in {**self._offered, **self._parked}:
            offered = self._offered.get(workers, {})
            held = [key for key, job in offered.items() if is_held(job)]
            more = _room_of(workers, room) - len(offered) + len(held)
            if more < 0:
                found += offered
                continue
            found += held
            for job, keys in self._parked.get(workers, {}).items():
                if more and not is_held(job):
                    come = list(islice(keys, more))
                    found += come
                    more -= len(come)
        return found

    def outdated(self, allowed: Callable[[Key], Workers | None]) -> list[Key]:
        """The tasks that may use other workers now, as after a change of resources.

        One task stands for all that may use the same workers. O(kinds of restrictions).
        """
        found: list[Key] = []
        for workers, offered in self._offered.items():
            if allowed(next(iter(offered))) != workers:
                found += offered
        for workers, by_job in self._parked.items():
            if allowed(next(iter(next(iter(by_job.values()))))) != workers:
                found += chain.from_iterable(by_job.values())
        return found

    def take_all(self) -> list[Key]:
        """Remove and return all tasks."""
        found = list(self._of)
        for table in (self._offered, self._parked, self._of):
            table.clear()
        return found


def _room_of(workers: Workers, room: Mapping[str, int]) -> int:
    return sum(room[address] for address in workers & room.keys())
