"""DMRS V, the execution database: how wrong estimates are, without a history and with one."""

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
"""Where almost nothing is left, estimate and truth are taken to be off by no more than this."""


@dataclass(frozen=True, slots=True)
class HistoryFigure:
    """Live runs of the same jobs, told nothing, what was seen, and what is ten times off."""

    name: str
    title: str
    axis: str = "tasks of the phase that have ended"
    runs: int = 2

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One: the rounds are measured by the clock, so nothing runs beside them."""
        return [partial(live, runs, seed)]

    def rows(self, outcomes: Sequence[Sequence[Sequence[Ran]]]) -> Sequence[Row]:
        """A row for each phase when its job comes, and whenever a task of it has ended."""
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
        """By which factor the work of each job was wrong, at its first allocation and later."""
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
        """First estimates beside their course within the runs that were told wrong."""
        from experiments.dmrs.history_pictures import draw_history

        return draw_history(self, rows)


def first_ratios(rows: Sequence[Row], history: str, job: str | None = None) -> list[float]:
    """Estimate over truth of the work of a job when it came, of each job and round."""
    sums: dict[tuple[int, str], tuple[float, float]] = {}
    for row in rows:
        if row["history"] == history and row["tasks"] == 0 and job in (None, row["job"]):
            estimate, truth = sums.get((row["round"], row["job"]), (0.0, 0.0))
            sums[row["round"], row["job"]] = estimate + row["estimate"], truth + row["truth"]
    return [estimate / truth for estimate, truth in sums.values()]


def later_ratios(rows: Sequence[Row], history: str, phase: str, part: float) -> list[float]:
    """Estimate over truth of the work left of each such phase once this part of its tasks had
    ended: at least one, and not all."""
    most = _tasks_of(rows)
    found: dict[tuple[int, str], Row] = {}
    for row in rows:
        if row["history"] == history and row["phase"] == phase:
            enough = max(1, part * most[row["job"], phase])
            if row["tasks"] >= enough:
                found.setdefault((row["round"], row["job"]), row)
    return [ratio_of(row) for row in found.values()]


def _tasks_of(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """The tasks of each phase; the end of the last one is no row."""
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
    """Their geometric mean: twice too much and half too little are right on average."""
    return exp(fmean(map(log, ratios)))


def mean_wrong(ratios: Sequence[float]) -> float:
    """By which factor they are off, on average: twice too much and half too little are 2."""
    return exp(fmean(abs(log(ratio)) for ratio in ratios))


WRONG_BY: dict[str, Callable[[Sequence[Row], str], list[float]]] = {
    "wrong by, first": first_ratios,
    "maps, one ended": partial(later_ratios, phase="map", part=0.0),
    "maps, half ended": partial(later_ratios, phase="map", part=0.5),
    "reduces, one ended": partial(later_ratios, phase="reduce", part=0.0),
}
"""What is told of all jobs together, and how it is found."""

DMRS_HISTORY = HistoryFigure(
    "dmrs-history", "Estimates of five live jobs, by what is known of earlier runs"
)
