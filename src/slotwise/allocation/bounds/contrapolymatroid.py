"""The least weighted sum of completion times under inequalities for all sets of jobs.

    sum_{j in S} W_j C_j >= sum_{j in S} A_j + (sum_{j in S} W_j)^2 / 2 P
    C_j >= l_j

for every set S of jobs. These are 2^J inequalities, but solving them needs no linear program
(DMRS has the same ones). Proof: docs/algorithms/bounds.md.
"""

from __future__ import annotations

import numpy as np

from slotwise.objective.costs import Floats


def least_completions(
    work: Floats, alone: Floats, capacity: float, soonest: Floats, weight: Floats
) -> Floats:
    """The C that minimises sum weight * C, shape (J,).

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
