"""What it costs not to know sizes: mean response by allocator, knowledge and load."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.unknown.experiment import UnknownDraw, experiment
from experiments.unknown.row import ALL, UnknownRow, rows_of
from experiments.unknown.workloads import FB_2009, FOLDER_VARIABLE, WORKLOADS, fb_2009

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

RUNS = 10
"""Draws of each workload at each load: 200 in all."""

LOADS = (0.5, 0.7, 0.85, 0.95)


@dataclass(frozen=True, slots=True)
class UnknownFigure:
    """Mean responses under allocators that know the work of tasks, do not, or know it wrong."""

    name: str
    title: str
    loads: tuple[float, ...] = LOADS
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    axis: str = "load"
    runs: int = RUNS

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """Those of the first workload by load, then those of the next.

        FB-2009 is left out, with a message, if the trace is not there.
        """
        workloads = list(self.workloads)
        if not fb_2009().is_file():
            workloads.remove(FB_2009)
            print(f"{self.name}: {left_out()}", file=sys.stderr)
        return [
            partial(experiment, workload, load, seed, number)
            for workload in workloads
            for load in self.loads
            for number in range(runs)
        ]

    def rows(self, outcomes: Sequence[UnknownDraw]) -> Sequence[Row]:
        """All rows, beginning with those of all draws."""
        return [asdict(row) for row in rows_of(outcomes)]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """Both ratios, geometric mean and worst: of all draws, by load, and by workload."""
        typed = [UnknownRow(**row) for row in rows]
        table = Table(
            title=f"{self.title}: ratios of mean responses, geometric mean and worst of draws",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        for heading in ("workload", "load", "allocator", "knows"):
            table.add_column(heading, vertical="bottom")
        for heading in ("draws", "/ FAIR", "worst", "/ FLEX that\nknows", "worst"):
            table.add_column(heading, justify="right", vertical="bottom")
        shown = [row for row in typed if ALL in (row.workload, row.load)]
        before = None
        for row in shown:
            if before not in (None, (row.workload, row.load)):
                table.add_section()
            before = (row.workload, row.load)
            values = (row.by_fair, row.by_fair_worst, row.by_flex, row.by_flex_worst)
            table.add_row(
                row.workload,
                str(row.load),
                row.allocator,
                row.knowledge,
                str(row.draws),
                *(f"{value:.3f}" for value in values),
            )
        if FB_2009 not in {row.workload for row in typed}:
            table.caption = left_out()
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Both ratios over the load, and their worst."""
        from experiments.unknown.pictures import draw_ratios

        return draw_ratios(self.name, self.title, [UnknownRow(**row) for row in rows])


def left_out() -> str:
    """Why there is no FB-2009, and what to do about it."""
    return (
        f"{FB_2009} is left out: there is no {fb_2009()}; set {FOLDER_VARIABLE} to the folder"
        " of the SWIM traces"
    )


UNKNOWN_SIZES = UnknownFigure(
    "unknown-sizes",
    "Unknown, stated and wrong sizes on 20 slots",
)
"""Ours: papers on FLEX and FAIR state no such comparison."""
