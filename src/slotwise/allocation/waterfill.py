"""Water-filling: the slots that keep given due dates."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.malleable import Malleable
from slotwise.allocation.packing import Packing
from slotwise.objective.costs import Floats

ROUNDING = 1e-9
"""Relative: so much more than there is may be asked for, by rounding."""


def water_fill(problem: Malleable, due: Floats) -> Packing:
    """A schedule in which each job completes by its due date, inf not allowed.

    In order of due dates, each job's work is poured into the time before its due date: on its
    least share as the ground, and then where the least is in use, up to one level, as far as
    its most share allows (the normal form of Beaumont and others, 2012, here with least
    shares). Use falls in time, and of all ways to place a job this one leaves what is most use
    to later ones, so it succeeds whenever the due dates can be kept at all. O(J^2).
    """
    due = np.minimum(due, problem.ends)
    order = np.argsort(due, kind="stable")
    ends = np.unique(due)
    lengths = np.diff(ends, prepend=0.0)
    column = np.searchsorted(ends, due)
    # Every job holds its least share until it is due; that much of the slots is in use.
    ground = np.bincount(column, problem.least, len(ends))[::-1].cumsum()[::-1]
    used = ground.copy()
    pieces: Packing = [[] for _ in range(len(problem))]
    for job in order:
        width = column[job] + 1
        least, room = problem.least[job], problem.most[job] - problem.least[job]
        rest = problem.work[job] - least * due[job]
        poured = _pour(used[:width], lengths[:width], room, rest)
        used[:width] += poured
        pieces[job] = _pieces(ends[:width], least + poured)
    assert used[0] <= problem.capacity * (1 + ROUNDING), "the due dates can be kept"
    return pieces


def _pour(used: Floats, lengths: Floats, room: float, work: float) -> Floats:
    """Slots more for each column: up to a common level of use, at most `room`, in sum `work`.

    `used` falls from column to column.
    """
    if work <= 0 or room <= 0:
        return np.zeros_like(used)
    # Below level L lies sum(lengths * (L - used)) over the columns in use below L.
    high = used[::-1]
    area = np.concatenate(([0.0], np.cumsum(lengths[::-1])))
    moment = np.concatenate(([0.0], np.cumsum((lengths * used)[::-1])))

    def below(level: Floats) -> Floats:
        count = np.searchsorted(high, level)
        return level * area[count] - moment[count]

    bends = np.sort(np.concatenate((high, high + room)))
    filled = below(bends) - below(bends - room)
    place = int(np.searchsorted(filled, work))
    if place == len(bends):  # By rounding alone the columns at their most do not hold it.
        level = bends[-1]
    elif place == 0:
        level = bends[0]
    else:
        part = (work - filled[place - 1]) / (filled[place] - filled[place - 1])
        level = bends[place - 1] + part * (bends[place] - bends[place - 1])
    poured: Floats = np.clip(level - used, 0.0, room)
    return poured


def _pieces(ends: Floats, slots: Floats) -> list[tuple[float, float, float]]:
    """The columns in which a job holds slots, neighbours with equal slots as one piece."""
    changes = np.flatnonzero(np.diff(slots)) + 1
    firsts = np.concatenate(([0], changes))
    lasts = np.concatenate((changes - 1, [len(slots) - 1]))
    starts = np.concatenate(([0.0], ends[:-1]))
    return [
        (float(starts[first]), float(ends[last]), float(slots[first]))
        for first, last in zip(firsts, lasts, strict=True)
        if slots[first] > 0
    ]
