"""The minimum time that a job needs when all others hold their min shares."""

from __future__ import annotations

import numpy as np

from slotwise.objective.costs import Floats

INSTANTS_MOST = 128
"""The maximum number of instants considered; fewer make the times shorter, not wrong."""


def least_times(capacity: float, work: Floats, min_share: Floats, max_share: Floats) -> Floats:
    """Minimum seconds from 0 to the completion of each job, if all are present at 0.

    By any instant the others have had their min shares. Work that does not fit in the rest must
    be done later, at the max share of the job. O(J) for each instant considered.
    """
    heights: Floats = work / max_share
    held = np.where(min_share > 0, min_share, 1.0)
    ends = np.unique((work / held)[(min_share > 0) & (work > 0)])
    if not len(ends):
        return heights
    if len(ends) > INSTANTS_MOST:
        ends = ends[np.linspace(0, len(ends) - 1, INSTANTS_MOST).astype(int)]
    instants = np.concatenate([[0.0], ends])
    own = np.minimum(work[:, None], min_share[:, None] * instants)
    rooms = capacity * instants - own.sum(axis=0) + own
    # Room is convex, so between two instants it is at most the linear interpolation.
    grown = np.diff(rooms, axis=1) / np.diff(instants)
    last = np.full((len(work), 1), capacity)
    pace = np.minimum(np.concatenate([grown, last], axis=1), max_share[:, None])
    behind = np.maximum(work[:, None] - rooms, 0.0)
    # From an instant on at its max share; if it ends before the next one, at the room's slope.
    fits_next = np.concatenate([behind[:, 1:] == 0, np.ones((len(work), 1), bool)], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = behind / np.where(fits_next, pace, max_share[:, None])
    needed = np.where(behind > 0, instants + needed, 0.0)
    times: Floats = np.maximum(heights, needed.max(axis=1))
    return times
