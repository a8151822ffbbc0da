"""Many attempts in little memory: columns of numbers instead of objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from slotwise.analysis.attempts import Attempt, Ending
from slotwise.model.decision import Locality
from slotwise.model.job import PhaseId

ENDINGS: tuple[Ending, ...] = get_args(Ending)


class AttemptColumns:
    """Attempts, about 50 bytes each: a day of a large cluster has millions.

    phases  the phases of the attempts; `phase` has their numbers
    """

    def __init__(self) -> None:
        self._phases: dict[PhaseId, int] = {}
        self._hosts: dict[str, int] = {}
        self._start, self._end = array("d"), array("d")
        self._seconds, self._kept = array("d"), array("d")
        self._phase, self._host = array("i"), array("i")
        self._task, self._attempt = array("i"), array("i")
        self._locality, self._ending, self._stop = array("b"), array("b"), array("b")

    def add(self, attempt: Attempt) -> None:
        """Add an attempt."""
        self._phase.append(self._phases.setdefault(attempt.phase, len(self._phases)))
        self._host.append(self._hosts.setdefault(attempt.host, len(self._hosts)))
        self._task.append(attempt.task)
        self._attempt.append(attempt.attempt)
        self._start.append(attempt.start)
        self._end.append(attempt.end)
        self._seconds.append(attempt.seconds)
        self._kept.append(attempt.kept)
        self._locality.append(attempt.locality)
        self._ending.append(ENDINGS.index(attempt.ending))
        self._stop.append(attempt.stop_requested)

    def __len__(self) -> int:
        return len(self._start)

    def __getitem__(self, place: int) -> Attempt:
        return Attempt(
            self.phases[self._phase[place]],
            self._task[place],
            self._attempt[place],
            self._names[self._host[place]],
            Locality(self._locality[place]),
            self._start[place],
            self._end[place],
            self._seconds[place],
            ENDINGS[self._ending[place]],
            self._kept[place],
            bool(self._stop[place]),
        )

    def sort(self) -> None:
        """Order them by start, then by phase, task and number. Afterwards none is added."""
        self.phases, self._names = list(self._phases), list(self._hosts)
        rank = np.empty(len(self.phases), dtype=np.intc)
        rank[sorted(range(len(rank)), key=self.phases.__getitem__)] = range(len(rank))
        order = np.lexsort(
            (_numbers(self._attempt), _numbers(self._task), rank[self.phase], self.start)
        )
        for name, column in vars(self).items():
            if isinstance(column, array):
                setattr(self, name, array(column.typecode, _numbers(column)[order].tobytes()))

    @property
    def start(self) -> np.ndarray:
        """When each began."""
        return _numbers(self._start)

    @property
    def end(self) -> np.ndarray:
        """When each ended."""
        return _numbers(self._end)

    @property
    def phase(self) -> np.ndarray:
        """The number of the phase of each."""
        return _numbers(self._phase)

    def hosts(self) -> Iterator[str]:
        """The host of each."""
        return map(self._names.__getitem__, self._host)


def _numbers(column: array[Any]) -> np.ndarray:
    return np.frombuffer(column, dtype=column.typecode)
