"""Water-filling: the slots that keep given due dates."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.malleable import Malleable
from slotwise.allocation.packing import Packing
from slotwise.allocation.tolerances import CLOSE
from slotwise.objective.costs import Floats


def water_fill(problem: Malleable, due: Floats) -> Packing | None:
    """A schedule in which each job completes by its finite due date, or None if there is none.

    In order of due dates, each job's work is poured into the time before its due date: first
    its min share, then where the fewest slots are in use, up to one level, within its max share
    (the normal form of Beaumont and others, 2012, here with min shares). The use of slots does
    not increase in time. Of all placements of a job, this one leaves the most useful room for
    later jobs, so it succeeds whenever the due dates can be kept. Rounding may make them
    infeasible for a job whose work is tiny compared with that of others. O(J^2).
    """
    due = np.minimum(due, problem.ends)
    order = np.argsort(due, kind="stable")
    ends = np.unique(due)
    lengths = np.diff(ends, prepend=0.0)
    column = np.searchsorted(ends, due)
    # Every job holds its min share until it is due; these slots are in use.
    ground = np.bincount(column, problem.min_share, len(ends))[::-1].cumsum()[::-1]
    used = ground.copy()
    pieces: Packing = [[] for _ in range(len(problem))]
    for job in order:
        width = column[job] + 1
        min_share, room = (
            problem.min_share[job],
            problem.max_share[job] - problem.min_share[job],
        )
        rest = problem.work[job] - min_share * due[job]
        level = _level(used[:width], lengths[:width], room, rest)
        above = min(level, problem.capacity) - used[:width]
        poured = np.minimum(np.maximum(above, 0.0), room)
        if rest - float(poured @ lengths[:width]) > CLOSE * problem.work[job]:
            return None
        used[:width] += poured
        pieces[job] = _pieces(ends[:width], min_share + poured)
        if not pieces[job]:
            return None
    return pieces


def _level(used: Floats, lengths: Floats, room: float, work: float) -> float:
    """The level of use up to which columns are filled, each by at most `room`, to hold `work`.

    `used` must not increase from column to column.
    """
    if work <= 0 or room <= 0:
        return 0.0
    # Below level L lies sum(lengths * (L - used)) over the columns in use below L.
    high, widths = used[::-1], lengths[::-1]
    area, moment = np.zeros(len(used) + 1), np.zeros(len(used) + 1)
    widths.cumsum(out=area[1:])
    (widths * high).cumsum(out=moment[1:])

    def below(level: Floats) -> Floats:
        count = high.searchsorted(level)
        return level * area[count] - moment[count]

    bends = np.concatenate((high, high + room))
    bends.sort()
    filled = below(bends) - below(bends - room)
    place = int(filled.searchsorted(work))
    if place == 0 or place == len(bends):  # Beyond the ends only because of rounding.
        return float(bends[min(place, len(bends) - 1)])
    part = (work - filled[place - 1]) / (filled[place] - filled[place - 1])
    return float(bends[place - 1] + part * (bends[place] - bends[place - 1]))


def _pieces(ends: Floats, slots: Floats) -> list[tuple[float, float, float]]:
    """The pieces of a job; adjacent columns with equal slots are joined."""
    (changes,) = (slots[1:] != slots[:-1]).nonzero()
    lasts = np.append(changes, len(slots) - 1)
    stops = ends[lasts].tolist()
    pieces = zip([0.0, *stops], stops, slots[lasts].tolist(), strict=False)
    return [(start, stop, held) for start, stop, held in pieces if held > 0]
