"""Whether due dates can be kept: malleable jobs with min and max shares, all present at 0.

By each instant a job must have done some of its work, because of its due date and because it
never holds less than its min share. Due dates can be kept if and only if, at every instant, the
sum of this work is at most what all slots can have done. Proof: docs/algorithms/due-dates.md.
"""

from __future__ import annotations

import numpy as np

from slotwise.allocation.tolerances import SAFE
from slotwise.objective.costs import Floats


def fits(
    capacity: float,
    work: Floats,
    min_share: Floats,
    max_share: Floats,
    due: Floats,
    tolerance: float = SAFE,
) -> bool:
    """Whether a schedule exists in which each job is complete by its due date.

    work       seconds at speed 1, >= 0; shape (J,), as for the shares and due dates
    min_share  slots, >= 0, at most `max_share`; together at most the capacity
    max_share  slots, > 0
    due        seconds; inf for none
    tolerance  the result is True if the jobs fit with capacity and due dates larger by this
               part. So False is certain; for a certain True, give a negative tolerance

    O(J log J).
    """
    heights = work / max_share
    if (due * (1 + tolerance) < heights).any():
        return False
    instants, needed = needs(work, min_share, max_share, np.maximum(due, heights))
    return bool((needed <= capacity * instants * (1 + tolerance)).all())


def needs(
    work: Floats, min_share: Floats, max_share: Floats, due: Floats
) -> tuple[Floats, Floats]:
    """Instants from 0 on, and the work that all jobs must have done by each of them, seconds.

    Job j must have done max(min(W_j, m_j t), W_j - M_j (d_j - t)) by t, and W_j by d_j. The sum
    is linear between these instants and constant after the last one, except for the min shares
    of jobs that may run forever. O(J log J).
    """
    end, steady = np.maximum(due, 0.0), 0.0
    has_floors = bool(min_share.any())
    if has_floors:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # The min share of a job completes it by then.
            end = np.minimum(end, np.where(min_share > 0, work / min_share, np.inf))
    finite = np.isfinite(end)
    if not finite.all():
        steady = float(min_share[~finite].sum())  # The slots of jobs that may run forever.
        work, min_share, max_share, end = (
            work[finite],
            min_share[finite],
            max_share[finite],
            end[finite],
        )
    heights = work / max_share
    late = float((max_share * np.maximum(heights - end, 0.0)).sum())
    # From its turn on a job must run at its max share; before it, its min share suffices.
    spare, lag = max_share, heights
    if has_floors:
        spare = max_share - min_share
        lag = np.divide(work - min_share * end, spare, out=end.copy(), where=spare > 0)
    count = len(end)
    instants = np.zeros(2 * count + 1)
    instants[1 : count + 1] = (end - lag).clip(0.0, end)
    instants[count + 1 :] = end
    by_time = instants[1:].argsort(kind="stable")
    instants[1:] = instants[1:][by_time]
    rate, needed = np.zeros(2 * count + 1), np.zeros(2 * count + 1)
    rate[1:] = np.concatenate((spare, -max_share))[by_time].cumsum()
    rate += steady + min_share.sum()
    needed[1:] = (rate[:-1] * (instants[1:] - instants[:-1])).cumsum()
    return instants, late + needed
