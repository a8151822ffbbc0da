"""The sweep over the numbers missing from the text of the DMRS paper, and its summaries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING

from experiments.dmrs.experiment import DmrsSetting

if TYPE_CHECKING:
    from experiments.dmrs.figure import DmrsRow

MAX_PAPER = 0.82
"""The largest gain of DMRS over its rivals, as stated in the paper's abstract."""

MACHINES, FAST, RATIOS, INTERVALS = (
    (10, 20, 40),
    (1 / 4, 1 / 2, 3 / 4),
    (1.5, 2.0, 3.0, 5.0),
    (0.0, 1 / 8, 1 / 4, 1 / 2, 1.0),
)
"""The sweep; the defaults of a Setting are the middle values."""

SETTINGS = tuple(
    dict.fromkeys(
        [
            *(DmrsSetting(*place) for place in product(MACHINES, FAST, RATIOS)),
            *(DmrsSetting(interval=interval) for interval in INTERVALS),
        ]
    )
)

Place = tuple[int, float, float, float]
"""Machines, the fast part of them, the speed ratio and the interval."""


def by_setting(rows: Sequence[DmrsRow]) -> dict[Place, list[DmrsRow]]:
    """The rows of all benchmarks, setting by setting."""
    found: dict[Place, list[DmrsRow]] = {}
    for row in rows:
        place = row.machines, row.fast, row.ratio, row.interval
        found.setdefault(place, []).append(row)
    return found


def gains_over(rival: str, rows: Sequence[DmrsRow]) -> tuple[float, float]:
    """DMRS's gain over a rival: the mean of these rows, and the maximum of all experiments."""
    mine = [row for row in rows if row.scheduler == rival]
    return fmean(row.gain for row in mine), max(row.gain_most for row in mine)
