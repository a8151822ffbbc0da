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
    if np.any(due * (1 + tolerance) < heights):
        return False
    instants, needed = needs(work, min_share, max_share, np.maximum(due, heights))
    return bool(np.all(needed <= capacity * instants * (1 + tolerance)))


def needs(
    work: Floats, min_share: Floats, max_share: Floats, due: Floats
) -> tuple[Floats, Floats]:
    """Instants from 0 on, and the work that all jobs must have done by each of them, seconds.

    Job j must have done max(min(W_j, m_j t), W_j - M_j (d_j - t)) by t, and W_j by d_j. The sum
    is linear between these instants and constant after the last one, except for the min shares
    of jobs that may run forever. O(J log J).
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        end = np.where(
            min_share > 0, work / min_share, np.inf
        )  # Its min share completes it by then.
    end = np.clip(due, 0.0, end)
    finite = np.isfinite(end)
    steady = float(min_share[~finite].sum())  # The slots of jobs that may run forever.
    work, min_share, max_share, end = (
        work[finite],
        min_share[finite],
        max_share[finite],
        end[finite],
    )
    late = float(np.sum(max_share * np.maximum(work / max_share - end, 0.0)))
    # From its turn on a job must run at its max share; before it, its min share suffices.
    spare = max_share - min_share
    lag = np.divide(work - min_share * end, spare, out=end.copy(), where=spare > 0)
    turn = np.clip(end - lag, 0.0, end)

    instants = np.concatenate([turn, end])
    by_time = np.argsort(instants, kind="stable")
    instants = np.concatenate([[0.0], instants[by_time]])
    change = np.cumsum(np.concatenate([spare, -max_share])[by_time])
    rate = steady + min_share.sum() + np.concatenate([[0.0], change])
    done = np.cumsum(rate[:-1] * np.diff(instants))
    return instants, late + np.concatenate([[0.0], done])
