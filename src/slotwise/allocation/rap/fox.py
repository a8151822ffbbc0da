"""Marginal analysis (Fox): each unit goes to the job with the largest gain."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace

import numpy as np

from slotwise.allocation.rap.gains import Gains
from slotwise.objective.costs import Ints


def fox(gains: Gains) -> Ints:
    """The units of each job, given one by one; ties go to the first job.

    B. Fox, Discrete optimization via marginal analysis, Management Science 13 (1966).
    O(J + S log J) for J jobs and S units, in a heap of the next gain of each job.
    """
    given = np.zeros(len(gains), dtype=np.int64)
    ahead = [_gains_of(gains, job) for job in range(len(gains))]
    heap = [(-next(ahead[job]), job) for job in range(len(gains))]
    heapify(heap)
    for _ in range(gains.units if heap else 0):
        worth, job = heap[0]
        if worth == np.inf:  # No job gains anything.
            break
        given[job] += 1
        heapreplace(heap, (-next(ahead[job]), job))
    return given


def _gains_of(gains: Gains, job: int) -> Iterator[float]:
    """The gains of one job in order, then -inf, computed in blocks of doubling size."""
    start, room = 0, int(gains.room[job])
    while start < room:
        given = np.arange(start, min(room, 2 * start + 1))
        yield from gains.at(np.full(len(given), job), given).tolist()
        start += len(given)
    yield -np.inf
