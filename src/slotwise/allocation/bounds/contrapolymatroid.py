"""The least weighted sum of completion times under inequalities for all sets of jobs.

    sum_{j in S} W_j C_j >= sum_{j in S} A_j + (sum_{j in S} W_j)^2 / 2 P
    C_j >= l_j

for every set S of jobs: 2^J inequalities, and no linear program is needed to solve them (DMRS
has the same ones). Proof: docs/algorithms/bounds.md.
"""

from __future__ import annotations

import numpy as np

from slotwise.objective.costs import Floats


def least_completions(
    work: Floats, alone: Floats, capacity: float, soonest: Floats, weight: Floats
) -> Floats:
    """The C that minimises sum weight * C.

    work      W_j >= 0; a job without work ends at its soonest
    alone     A_j >= 0; W_j^2 / 2 M_j for jobs of one part that do at most M_j in a second
    capacity  P > 0
    soonest   l_j
    weight    > 0

    y_j = W_j (C_j - l_j) >= 0 must reach h(S) on each set S, where h is supermodular. So jobs
    are taken by weight / W_j, largest first, and each gets what the set of those taken must
    have beyond what it had before: max h(T) over its subsets T. The best T is always a prefix
    in the order of l_j - A_j / W_j. O(J^2), by J passes over arrays.
    """
    ends = soonest.astype(float)
    (some,) = np.nonzero(work > 0)
    some = some[np.argsort(soonest[some] - alone[some] / work[some], kind="stable")]
    size, first = work[some], soonest[some]
    own = alone[some] - size * first
    # Over the jobs taken so far: of each prefix its work, and the part of h that adds up.
    area, linear = np.zeros(len(some)), np.zeros(len(some))
    needed = 0.0
    for j in np.argsort(-weight[some] / size, kind="stable"):
        area[j:] += size[j]
        linear[j:] += own[j]
        most = float(np.max(linear[j:] + area[j:] * area[j:] / (2 * capacity)))
        # Prefixes without the job were not more before, and are as they were.
        if most > needed:
            ends[some[j]] = first[j] + (most - needed) / size[j]
            needed = most
    return ends
