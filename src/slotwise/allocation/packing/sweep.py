"""The packing scheme as a sweep over the instants at which jobs end.

One source, two implementations: Python runs `sweep` directly, on lists; numba compiles the same
function for large problems (`compiled.py`). Hence its plain loops and many arguments. Neither
changes the order of additions, so the results are identical to the bit.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from slotwise.allocation.compiled import Numbers


def sweep(
    capacity: float,
    work: Numbers,
    min_share: Numbers,
    max_share: Numbers,
    order: Numbers,
    early: Numbers,
    early_end: Numbers,
    completion: Numbers,
    changed: Numbers,
    since: Numbers,
    slots: Numbers,
) -> int:
    """Fig. 3 by events: fills in `completion` and the changes of shares; returns their number.

    In Fig. 3 a job goes from its min share, through at most one interval of partial shares, to
    its max share and never back, because slack only grows as jobs end. So the ends of jobs at
    their min shares are sorted in advance, the ends of jobs at their max shares are in a heap,
    and only one job, the partial one, changes at each event. O(J log J).

    early, early_end      the jobs with a min share and their ends on it alone, in order of
                          these ends; a last end of inf follows
    completion            of each job, seconds; initially -1
    changed, since, slots buffers for the job, instant and new share of each change after the
                          min shares: of length 2 J + 1, or empty if not needed
    """
    is_traced = len(changed) > 0
    count, changes = len(order), 0
    slack = capacity
    for floor in min_share:  # lines 4 to 6
        slack -= floor
    full = [(inf, 0.0)]  # (end, slots) of the jobs at their max share, and a sentinel
    now, first, at_least = 0.0, 0, 0
    partial, share, left, began, partial_end = -1, 0.0, 0.0, 0.0, inf
    while True:
        while slack > 0.0 and first < count:  # lines 7 to 11
            j = order[first]
            if completion[j] >= 0.0:  # It has ended at its min share.
                first += 1
                continue
            if j != partial:
                share, left = min_share[j], work[j] - min_share[j] * now
            else:
                left -= share * (now - began)
            left, top = max(0.0, left), max_share[j]
            if slack < top - share:
                share += slack
                slack, partial, began, partial_end = 0.0, j, now, now + left / share
            else:
                slack -= top - share
                share, partial, partial_end = top, -1, inf
                completion[j] = now + left / top
                heappush(full, (completion[j], top))
                first += 1
            if is_traced:
                changed[changes], since[changes], slots[changes] = j, now, share
                changes += 1
        if first == count:  # All running jobs are at their max share until they end.
            return changes
        while early_end[at_least] < inf and (
            completion[early[at_least]] >= 0.0 or early[at_least] == partial
        ):
            at_least += 1
        # Lines 12 to 15: the first end, and its slots become slack.
        if full[0][0] <= min(partial_end, early_end[at_least]):
            assert full[0][0] < inf, "slots are free, yet nothing runs"
            now, freed = heappop(full)
            slack += freed
        elif partial_end <= early_end[at_least]:
            now, completion[partial] = partial_end, partial_end
            slack, partial, partial_end = slack + share, -1, inf
            first += 1
        else:
            j, now = early[at_least], early_end[at_least]
            completion[j] = now
            slack += min_share[j]
