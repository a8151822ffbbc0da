"""Aggregate attempts to cells: for each row and time interval, the job that held most of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotwise.analysis.timeline import PlacedAttempt

SHADES = 4
"""The number of utilisation levels that a cell can show."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Columns `start` to `end` of a row: the job that held most slots, and the utilisation.

    `shade` is from 1 (almost idle) to SHADES (all slots of the row held all the time).
    """

    row: int
    start: int
    end: int
    job: str
    shade: int


def cells_of(
    attempts: Sequence[PlacedAttempt],
    rows: Sequence[int],
    slots: Sequence[int],
    begin: float,
    end: float,
    columns: int,
) -> list[Cell]:
    """The non-idle cells of a grid; equal neighbours in a row are merged.

    `rows` has the row of each attempt, `slots` the slots of each row; times in seconds.
    O(n + cells touched).
    """
    width = (end - begin) / columns
    held: defaultdict[tuple[int, int], defaultdict[str, float]] = defaultdict(_floats)
    for row, placed in zip(rows, attempts, strict=True):
        attempt = placed.attempt
        first = max(0, int((attempt.start - begin) / width))
        last = min(columns - 1, int((attempt.end - begin) / width))
        for column in range(first, last + 1):
            left = begin + column * width
            overlap = min(attempt.end, left + width) - max(attempt.start, left)
            if overlap > 0:
                held[row, column][attempt.phase.job] += overlap
    cells: list[Cell] = []
    for row, column in sorted(held):
        of_job = held[row, column]
        share = sum(of_job.values()) / (width * slots[row])
        cell = Cell(row, column, column + 1, _most(of_job), _shade(share))
        if cells and replace(cells[-1], start=column, end=cells[-1].end + 1) == cell:
            cells[-1] = replace(cells[-1], end=cell.end)
        else:
            cells.append(cell)
    return cells


def _floats() -> defaultdict[str, float]:
    return defaultdict(float)


def _most(of_job: dict[str, float]) -> str:
    return min(of_job, key=lambda job: (-of_job[job], job))


def _shade(share: float) -> int:
    return max(1, min(SHADES, round(share * SHADES)))
