"""Ratios of the estimates of a figure to the truth, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import fmean

from experiments.figure import Row

MIN_RATIO = 1e-3
"""Lower limit of estimate and truth in their ratio, for instants with almost no work left."""


def first_ratios(rows: Sequence[Row], history: str, job: str | None = None) -> list[float]:
    """Estimate over truth of the work of a job on arrival, for each job and round."""
    sums: dict[tuple[int, str], tuple[float, float]] = {}
    for row in rows:
        if row["history"] == history and row["tasks"] == 0 and job in (None, row["job"]):
            estimate, truth = sums.get((row["round"], row["job"]), (0.0, 0.0))
            sums[row["round"], row["job"]] = estimate + row["estimate"], truth + row["truth"]
    return [estimate / truth for estimate, truth in sums.values()]


def later_ratios(rows: Sequence[Row], history: str, phase: str, part: float) -> list[float]:
    """Estimate over truth of the remaining work of each such phase after this fraction of its
    tasks had ended: at least one, and not all."""
    most = _tasks_of(rows)
    found: dict[tuple[int, str], Row] = {}
    for row in rows:
        if row["history"] == history and row["phase"] == phase:
            enough = max(1, part * most[row["job"], phase])
            if row["tasks"] >= enough:
                found.setdefault((row["round"], row["job"]), row)
    return [ratio_of(row) for row in found.values()]


def _tasks_of(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """The number of tasks of each phase; the end of the last one has no row."""
    most: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["job"], row["phase"])
        most[key] = max(most.get(key, 1), row["tasks"] + 1)
    return most


def ratio_of(row: Row) -> float:
    """Estimate over truth."""
    estimate: float = max(row["estimate"], MIN_RATIO)
    truth: float = max(row["truth"], MIN_RATIO)
    return estimate / truth


def mean_ratio(ratios: Sequence[float]) -> float:
    """Their geometric mean: a factor of 2 and a factor of 1/2 average to 1."""
    return exp(fmean(map(log, ratios)))


def mean_wrong(ratios: Sequence[float]) -> float:
    """The mean error factor: ratios of 2 and of 1/2 both count as 2."""
    return exp(fmean(abs(log(ratio)) for ratio in ratios))
