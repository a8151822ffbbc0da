"""DMRS V, the execution database: the error of estimates, without a history and with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.dmrs.history_experiment import HISTORIES, Ran, live
from experiments.dmrs.history_ratios import first_ratios, later_ratios, mean_ratio, mean_wrong
from experiments.figure import Experiment, Row

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture


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
