"""The runnable tasks that must wait because the workers that they may use have no room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from slotwise.dask.computations import Key

Workers = frozenset[str]
"""The addresses of workers."""


@dataclass(slots=True)
class Parked:
    """Such tasks, by the workers that they may use."""

    _keys: dict[Workers, dict[Key, None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def __iter__(self) -> Iterator[Key]:
        return (key for keys in self._keys.values() for key in keys)

    def add(self, key: Key, allowed: Workers) -> None:
        """A task may use these workers only, which have no room."""
        self._keys.setdefault(allowed, {})[key] = None

    def take_fitting(self, room: Mapping[str, int]) -> list[Key]:
        """Take out as many tasks as the workers with room could run."""
        found: list[Key] = []
        for allowed in [one for one in self._keys if one & room.keys()]:
            keys = self._keys[allowed]
            for key in list(keys)[: sum(room.get(address, 0) for address in allowed)]:
                del keys[key]
                found.append(key)
            if not keys:
                del self._keys[allowed]
        return found

    def take_all(self) -> list[Key]:
        """Take out all tasks."""
        found = list(self)
        self._keys.clear()
        return found

    def take_outdated(self, allowed: Callable[[Key], Workers | None]) -> list[Key]:
        """Take out the tasks that may use other workers now, as after a change of resources.

        One task stands for all that may use the same workers. O(sets of workers).
        """
        old = [one for one, keys in self._keys.items() if allowed(next(iter(keys))) != one]
        return [key for one in old for key in self._keys.pop(one)]
