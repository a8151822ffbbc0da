"""Reduction of attempts, steps and rows to what can be drawn, without visible loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from slotwise.insight.report.reported import Scene
from slotwise.insight.timeline import PlacedAttempt, StepFunction

# Cells: for each row and time interval, the job that held most of it.

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
    """Return the non-idle cells of a grid, with equal neighbours in a row merged.

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


# Step functions with a number of levels that can be drawn.

COLUMNS = 240
"""Step functions with more changes are drawn as means over this number of intervals."""


def levels(
    scene: Scene, steps: StepFunction, columns: int = COLUMNS
) -> list[tuple[float, float, float]]:
    """Return a step function as (start, end, mean): exact, or in `columns` intervals.

    Levels that are too narrow for the axis are left out.
    """
    edges = list(steps.times)
    if len(edges) > columns:
        width = (scene.end - scene.begin) / columns
        grid = [scene.begin + column * width for column in range(columns + 1)]
        edges = [
            edge for edge in grid if steps.times[0] - width < edge < steps.times[-1] + width
        ]
    if len(edges) < 2:
        return []
    means = [round(mean, 2) for mean in steps.means(edges)]
    ends = [scene.at(edge) for edge in edges]
    return [
        (start, end, mean)
        for start, end, mean in zip(ends, ends[1:], means, strict=False)
        if start < end
    ]


# Rows for the page without repeated strings, at a third of the size.


def packed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Pack rows with the same fields as one table; strings become indices into `words`.

    `words` has the distinct strings of each column of strings, and None for other columns.
    """
    fields = list(rows[0]) if rows else []
    columns = [[row[field] for row in rows] for field in fields]
    words = [_words(column) for column in columns]
    for place, of_column in enumerate(words):
        if of_column is not None:
            numbers = {word: number for number, word in enumerate(of_column)}
            columns[place] = [numbers[word] for word in columns[place]]
    table = [list(row) for row in zip(*columns, strict=True)] if fields else [[] for _ in rows]
    return {"fields": fields, "words": words, "rows": table}


def _words(column: Sequence[Any]) -> list[str] | None:
    if all(isinstance(value, str) for value in column):
        return list(dict.fromkeys(column))
    return None
