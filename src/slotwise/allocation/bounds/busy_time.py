"""The mean busy time bound: the squashed area with arrivals and limited rates."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

import numpy as np

from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import latest_moments


def busy_time_bound(jobs: BoundJobs, capacity: float) -> float:
    """A lower bound on the sum of costs that are lines. O(J log J).

    The mean busy time of a job is before its completion by at least its least moment over its
    work: by work / (2 rate) for one part. The weighted sum of mean busy times is minimal if, at
    each instant, all capacity goes to the present job of the largest slope / work (Goemans).
    With one arrival time and unlimited rates this is the squashed area bound of Turek and
    others.
    """
    assert jobs.costs.are_lines
    slope, origin = jobs.costs.slope, jobs.costs.origin
    work = np.where(jobs.work > 0, jobs.work, 1.0)
    busy = _moments(jobs, capacity) * capacity / work
    earliest = busy + latest_moments(jobs, capacity) / work
    return float(np.sum(slope * (jobs.arrival - origin + earliest)))


def _moments(jobs: BoundJobs, capacity: float) -> np.ndarray:
    """For each job, the integral of t - arrival over the time in which it is served.

    Offsets from the arrival are used, since squares of late instants would lose digits.
    """
    arrival, work = jobs.arrival.tolist(), jobs.work.tolist()
    # The order by slope / work does not change while a job is processed.
    urgency = (jobs.work / jobs.costs.slope).tolist()
    order = sorted(range(len(work)), key=lambda j: arrival[j])
    left = [amount / capacity for amount in work]  # seconds on the whole cluster
    moment = np.zeros(len(left))
    waiting: list[tuple[float, int]] = []
    now, come = 0.0, 0
    while come < len(order) or waiting:
        if not waiting:
            now = max(now, arrival[order[come]])
        while come < len(order) and arrival[order[come]] <= now:
            j = order[come]
            if left[j] > 0:
                heappush(waiting, (urgency[j], j))
            come += 1
        if not waiting:
            continue
        j = waiting[0][1]
        coming = arrival[order[come]] if come < len(order) else inf
        step = min(left[j], coming - now)
        moment[j] += step * (now - arrival[j] + step / 2)
        now = coming if step == coming - now else now + step
        left[j] -= step
        if left[j] <= 0:
            heappop(waiting)
    return moment
