"""The runnable tasks that may use certain workers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice

from slotwise.dask.computations import Key

Workers = frozenset[str]
"""The addresses of the workers that a task may use."""


class Restricted:
    """Runnable tasks by the workers that they may use; each is offered or parked.

    At most as many are offered slots as their workers have room for. slotwise takes the others
    as blocked: it does not know that a slot is on a worker that they may not use.
    """

    def __init__(self) -> None:
        self._offered: dict[Workers, dict[Key, None]] = {}
        self._parked: dict[Workers, dict[Key, None]] = {}
        self._workers_of: dict[Key, Workers] = {}

    def __len__(self) -> int:
        return len(self._workers_of)

    def is_parked(self, key: Key) -> bool:
        """Whether a task waits for a worker that it may use."""
        workers = self._workers_of.get(key)
        return workers is not None and key in self._parked.get(workers, ())

    def parked(self) -> Iterator[Key]:
        """The tasks that wait for workers that they may use."""
        return chain.from_iterable(self._parked.values())

    def offer(self, key: Key, workers: Workers, room: Mapping[str, int]) -> bool:
        """Offer slots to a task that may use these workers; False: it is parked."""
        self.forget(key)
        self._workers_of[key] = workers
        offered = self._offered.get(workers, ())
        is_offered = len(offered) < _room_of(workers, room)
        table = self._offered if is_offered else self._parked
        table.setdefault(workers, {})[key] = None
        return is_offered

    def forget(self, key: Key) -> None:
        """Forget a task, which runs, or need not."""
        workers = self._workers_of.pop(key, None)
        if workers is not None:
            table = self._parked if key in self._parked.get(workers, ()) else self._offered
            del table[workers][key]
            if not table[workers]:
                del table[workers]

    def changed(self, room: Mapping[str, int]) -> list[Key]:
        """The tasks to offer now, and those that can be offered no longer.

        O(kinds of restrictions + tasks returned).
        """
        found: list[Key] = []
        for workers in {**self._offered, **self._parked}:
            offered = self._offered.get(workers, {})
            more = _room_of(workers, room) - len(offered)
            if more < 0:
                found += offered
            else:
                found += islice(self._parked.get(workers, ()), more)
        return found

    def outdated(self, allowed: Callable[[Key], Workers | None]) -> list[Key]:
        """The tasks that may use other workers now, as after a change of resources.

        One task stands for all that may use the same workers. O(kinds of restrictions).
        """
        found: list[Key] = []
        for table in (self._offered, self._parked):
            for workers, keys in table.items():
                if allowed(next(iter(keys))) != workers:
                    found += keys
        return found

    def take_all(self) -> list[Key]:
        """Remove and return all tasks."""
        found = list(self._workers_of)
        for table in (self._offered, self._parked, self._workers_of):
            table.clear()
        return found


def _room_of(workers: Workers, room: Mapping[str, int]) -> int:
    return sum(room[address] for address in workers & room.keys())
