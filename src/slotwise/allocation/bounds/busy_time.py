"""Mean busy times: the squashed area with arrivals and limited rates."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

import numpy as np

from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import latest_moments


def busy_time_bound(jobs: BoundJobs, capacity: float) -> float:
    """Of the sum of costs that are lines. O(J log J).

    The mean busy time of a job comes before its completion by at least its least moment over
    its work: by work / (2 rate) for one part. And the weighted sum of mean busy times is least
    when, at each instant, all capacity goes to the present job of
    the largest slope / work (Goemans). With one arrival time and unlimited rates this is the
    squashed area bound of Turek and others.
    """
    assert jobs.costs.are_lines
    slope, origin = jobs.costs.slope, jobs.costs.origin
    work = np.where(jobs.work > 0, jobs.work, 1.0)
    busy = _moments(jobs, capacity) * capacity / work
    min_share = busy + latest_moments(jobs, capacity) / work
    return float(np.sum(slope * (jobs.arrival - origin + min_share)))


def _moments(jobs: BoundJobs, capacity: float) -> np.ndarray:
    """Of each job the integral of t - arrival over the time at which it is served.

    Instants themselves are large: differences of their squares would be lost in rounding.
    """
    arrival, work = jobs.arrival.tolist(), jobs.work.tolist()
    # The order by slope / work stays as it is while a job is being done.
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
