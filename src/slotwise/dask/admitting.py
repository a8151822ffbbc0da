"""Finds tasks that must not wait until their computation is admitted to its pool.

A pool runs at most `jobs_max` computations; further ones await admission. Computations that run
may need tasks of these: results that were lost are computed again as a new computation, and
graphs share keys. If such tasks awaited admission, both computations would wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from slotwise.dask.computations import Computations, Key
from slotwise.dask.holding import TaskHolds

PART = 0.01
"""The part of the time that looking for such tasks may take."""


class Needed:
    """Tasks of computations that await admission, on which others wait.

    Keys that run without the gate must not wait for these tasks either.
    """

    def __init__(self, computations: Computations, holding: TaskHolds) -> None:
        self._computations, self._holding = computations, holding
        self._looks_from = 0.0

    def keys(self, outside: Collection[str]) -> list[Key]:
        """These keys; `outside` are the jobs that await admission.

        O(blocked tasks and what they depend on). Where that takes long, it finds none until
        looking has taken only `PART` of the time.
        """
        began = time.monotonic()
        if not outside or began < self._looks_from:
            return []
        tasks = self._computations.tasks
        left = [*self._holding.exempted]
        left += [
            key
            for key, task in tasks.items()
            if task.status == "blocked" and task.phase.job not in outside
        ]
        seen, needed = set(left), []
        while left:
            for key in self._holding.waits_for(left.pop()):
                if key not in seen:
                    seen.add(key)
                    left.append(key)
                    if key in tasks and tasks[key].phase.job in outside:
                        needed.append(key)
        ended = time.monotonic()
        self._looks_from = ended + (ended - began) / PART
        return needed
