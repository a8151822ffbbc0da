"""Whether due dates can be kept: malleable jobs with min and max shares, all present at 0.

Each job must have had some of its work by an instant, to be done by its due date and because
it never holds less than its min share. Due dates can be kept if and only if, at no instant,
that is more than all slots can have done. Proof: docs/algorithms/due-dates.md.
"""

from __future__ import annotations

import numpy as np

from slotwise.objective.costs import Floats

ROUNDING = 1e-12
"""By so much, relatively, capacity and due dates may be exceeded: more is not rounding."""


def fits(
    capacity: float,
    work: Floats,
    min_share: Floats,
    max_share: Floats,
    due: Floats,
    tolerance: float = ROUNDING,
) -> bool:
    """Whether a schedule exists in which each job is complete by its due date.

    work       seconds at speed 1, >= 0
    least      slots, >= 0, at most `most`; together at most the capacity
    most       slots, > 0
    due        seconds; inf where there is none
    tolerance  True is said of what would fit if capacity and due dates were larger by this
               part. So False means surely not; for surely yes, give it below 0.

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
    """Instants from 0 on, and what all jobs together must have had by each of them.

    Job j must have had max(min(W_j, m_j t), W_j - M_j (d_j - t)) by t, and W_j by d_j. The sum
    is a straight line between these instants and constant behind the last, but for least
    shares of jobs that go on for ever.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        end = np.where(
            min_share > 0, work / min_share, np.inf
        )  # It is done by then at any rate.
    end = np.clip(due, 0.0, end)
    finite = np.isfinite(end)
    steady = float(min_share[~finite].sum())  # The slots of jobs that may go on for ever.
    work, min_share, max_share, end = (
        work[finite],
        min_share[finite],
        max_share[finite],
        end[finite],
    )
    late = float(np.sum(max_share * np.maximum(work / max_share - end, 0.0)))
    # From its turn on a job must run at its max share; till then its min share will do.
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
