"""Bounds on a sum of lines: mean busy times, and caps, which use the area of each set of jobs.

Proofs: docs/algorithms/bounds.md, sections 2 and 3.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

import numpy as np

from slotwise.core.costs import Floats
from slotwise.policy.bounds.jobs import BoundJobs, latest_moments

MAX_JOBS = 40_000
"""Above this number of jobs, O(J^2) takes more than a second or two."""


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


def caps_bound(jobs: BoundJobs, capacity: float) -> float:
    """A lower bound on the sum of costs that are lines, from the first arrival on. O(J^2).

    For any set of jobs, the sum of work times completion is at least the sum of their least
    moments about the completion, plus half of the square of their total work over the capacity.
    Each job also needs its height. The minimum weighted sum of such completion times is
    computed exactly.
    """
    assert jobs.costs.are_lines
    begin = float(jobs.arrival.min())
    slope, origin = jobs.costs.slope, jobs.costs.origin
    soonest = jobs.arrival - begin + jobs.height
    moments = latest_moments(jobs, capacity)
    ends = least_completions(jobs.work, moments, capacity, soonest, slope)
    return float(np.sum(slope * (begin - origin + ends)))


def least_completions(
    work: Floats, alone: Floats, capacity: float, soonest: Floats, weight: Floats
) -> Floats:
    """The C that minimises sum weight * C under inequalities for all sets S of jobs.

        sum_{j in S} W_j C_j >= sum_{j in S} A_j + (sum_{j in S} W_j)^2 / 2 P
        C_j >= l_j

    These are 2^J inequalities, but solving them needs no linear program (DMRS has the same
    ones).

    work      W_j >= 0; a job without work ends at its soonest
    alone     A_j >= 0; W_j^2 / 2 M_j for jobs of one part that do at most M_j per second
    capacity  P > 0
    soonest   l_j
    weight    > 0

    y_j = W_j (C_j - l_j) >= 0 must reach h(S) on each set S, where h is supermodular. So the
    greedy method is optimal: jobs are taken by weight / W_j, largest first, and each gets the
    increase of max h(T) over subsets T of the jobs taken. The best T is always a prefix in the
    order of l_j - A_j / W_j, and it never becomes shorter. So two sums represent the jobs in
    it; the other taken jobs wait after it. O(J log J), and O(J) more for each job that is taken
    while some wait, by passes over arrays.
    """
    ends = soonest.astype(float)
    (some,) = np.nonzero(work > 0)
    some = some[np.argsort(soonest[some] - alone[some] / work[some], kind="stable")]
    size = work[some]
    own = alone[some] - size * soonest[some]
    order = np.argsort(-weight[some] / size, kind="stable")
    gained = np.zeros(len(some))
    # In this unit, h is the square of an area plus a linear part.
    scaled = size / np.sqrt(2 * capacity)
    # The area and the linear part of h: of the best prefix, which ends at place `best`, and of
    # the further jobs in each longer prefix.
    area, linear, best = 0.0, 0.0, -1
    areas, linears = np.zeros(len(some)), np.zeros(len(some))
    highest = 0.0
    taken = zip(order.tolist(), scaled[order].tolist(), own[order].tolist(), strict=True)
    for j, add, part in taken:
        start = best + 1
        if j <= best:
            area += add
            linear += part
        else:
            # Prefixes without the job do not change, so they are not the best.
            start = j
            areas[j:] += add
            linears[j:] += part
        now = linear + area * area
        if areas[-1] > 0:
            longer = areas[start:] + area
            longer *= longer
            longer += linears[start:]
            place = int(longer.argmax())
            if longer[place] + linear > now:
                best = start + place
                more, further = float(areas[best]), float(linears[best])
                area += more
                linear += further
                areas[best:] -= more
                linears[best:] -= further
                now = linear + area * area
        if now > highest:
            gained[j] = now - highest
            highest = now
    ends[some] += gained / size
    return ends


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
        next_arrival = arrival[order[come]] if come < len(order) else inf
        step = min(left[j], next_arrival - now)
        moment[j] += step * (now - arrival[j] + step / 2)
        now = next_arrival if step == next_arrival - now else now + step
        left[j] -= step
        if left[j] <= 0:
            heappop(waiting)
    return moment
