"""DMRS V, the execution database: the error of estimates, without a history and with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.dmrs.history_experiment import HISTORIES, Ran, live
from experiments.figure import Experiment, Row

if TYPE_CHECKING:
    from slotwise.report.pictures.picture import Picture

RATIO_LEAST = 1e-3
"""Lower limit of estimate and truth in their ratio, for instants with almost no work left."""


@dataclass(frozen=True, slots=True)
class HistoryFigure:
    """Live runs of the same jobs: without a history, with one, and with one wrong by ten."""

    name: str
    title: str
    axis: str = "tasks of the phase that have ended"
    runs: int = 2

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One: the rounds measure wall-clock time, so nothing runs concurrently with them."""
        return [partial(live, runs, seed)]

    def rows(self, outcomes: Sequence[Sequence[Sequence[Ran]]]) -> Sequence[Row]:
        """A row for each phase when its job arrives, and after each end of one of its tasks."""
        [rounds] = outcomes
        return [
            {
                "round": number,
                "history": ran.history,
                "job": left.phase.job,
                "phase": left.phase.phase,
                "tasks": left.tasks,
                "seconds": left.seconds,
                "estimate": left.estimate,
                "truth": left.truth,
            }
            for number, round_ in enumerate(rounds)
            for ran in round_
            for left in ran.left
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """The error factor of the work of each job, at its first allocation and later."""
        table = Table(
            title=f"{self.title}\nestimate of the work over what it was, rounds: {runs}",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        table.add_column("")
        for history in HISTORIES:
            table.add_column(history, justify="right")
        for job in dict.fromkeys(row["job"] for row in rows):
            ratios = [mean_ratio(first_ratios(rows, history, job)) for history in HISTORIES]
            table.add_row(f"{job}, first", *(f"{ratio:.2f}" for ratio in ratios))
        for label, ratios_of in WRONG_BY.items():
            wrong = [mean_wrong(ratios_of(rows, history)) for history in HISTORIES]
            table.add_row(label, *(f"x {factor:.2f}" for factor in wrong))
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """First estimates, and the course of the estimates in the runs with a wrong history."""
        from experiments.dmrs.history_pictures import draw_history

        return draw_history(self, rows)


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
    estimate: float = max(row["estimate"], RATIO_LEAST)
    truth: float = max(row["truth"], RATIO_LEAST)
    return estimate / truth


def mean_ratio(ratios: Sequence[float]) -> float:
    """Their geometric mean: a factor of 2 and a factor of 1/2 average to 1."""
    return exp(fmean(map(log, ratios)))


def mean_wrong(ratios: Sequence[float]) -> float:
    """The mean error factor: ratios of 2 and of 1/2 both count as 2."""
    return exp(fmean(abs(log(ratio)) for ratio in ratios))


WRONG_BY: dict[str, Callable[[Sequence[Row], str], list[float]]] = {
    "wrong by, first": first_ratios,
    "maps, one ended": partial(later_ratios, phase="map", part=0.0),
    "maps, half ended": partial(later_ratios, phase="map", part=0.5),
    "reduces, one ended": partial(later_ratios, phase="reduce", part=0.0),
}
"""The summary lines over all jobs, and the ratios of each."""

DMRS_HISTORY = HistoryFigure(
    "dmrs-history", "Estimates of five live jobs, by what is known of earlier runs"
)
