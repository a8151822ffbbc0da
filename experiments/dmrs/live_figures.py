"""The small live version of DMRS, Fig. 2: its table and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.dmrs.experiment import DMRS
from experiments.dmrs.live import DASK_HOSTS, SCHEDULERS, SLOW_SPEED, LiveRun, live_runs
from experiments.dmrs.live_row import DmrsLiveRow
from experiments.figure import Experiment, Row
from slotwise.core.cluster import Cluster
from slotwise.insight.report.text import number

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

RUNS = 2


@dataclass(frozen=True, slots=True)
class DmrsLiveFigure:
    """The same real jobs under each scheduler, one run after another.

    A run needs an otherwise idle machine, so runs count as measurements (`Measured`).

    hosts  those of a Dask cluster; None: two emulated hosts
    """

    name: str
    title: str
    axis: str = "scheduler"
    schedulers: tuple[str, ...] = SCHEDULERS
    runs: int = RUNS
    scale: float = 1.0
    hosts: Cluster | None = None
    done: tuple[Sequence[LiveRun], ...] = ()

    def measurements(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One for each random set of jobs, under all schedulers."""
        return [
            partial(live_runs, seed, number, self.schedulers, self.scale, self.hosts)
            for number in range(runs)
        ]

    def measured(self, outcomes: Sequence[Sequence[LiveRun]]) -> DmrsLiveFigure:
        """The figure with the results of these runs."""
        return replace(self, done=tuple(outcomes))

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """None in addition to the measurements."""
        return []

    def rows(self, outcomes: Sequence[object]) -> Sequence[Row]:
        """A row for each run."""
        return [
            asdict(row)
            for number, runs in enumerate(self.done)
            for row in rows_of(number, runs)
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """A line for each scheduler, means over the experiments."""
        table = Table(
            title=f"{self.title}: {runs} experiments", title_justify="left", box=SIMPLE_HEAD
        )
        table.add_column("scheduler")
        for heading in (
            "TWCT\nweight x s",
            "over the bound,\nmean",
            "least",
            "most",
            "DMRS better\nby, mean",
            "slow host,\nof the fast one",
        ):
            table.add_column(heading, justify="right")
        typed = [DmrsLiveRow(**row) for row in rows]
        for name in self.schedulers:
            mine = [row for row in typed if row.scheduler == name]
            ratios = [row.over_bound for row in mine]
            gain = fmean(row.gain for row in mine)
            table.add_row(
                name,
                number(fmean(row.twct for row in mine)),
                *(f"{ratio:.3f}" for ratio in (fmean(ratios), min(ratios), max(ratios))),
                "" if name == DMRS else f"{100 * gain:.0f} %",
                f"{fmean(row.slow_speed for row in mine):.2f}",
            )
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Bars of means, with a dot for each run."""
        from experiments.dmrs.live_pictures import draw_live

        return draw_live(self.name, self.title, [DmrsLiveRow(**row) for row in rows])


def rows_of(number: int, runs: Sequence[LiveRun]) -> list[DmrsLiveRow]:
    """The rows of one experiment."""
    ratios = {run.scheduler: run.value / run.bound for run in runs}
    return [
        DmrsLiveRow(
            number,
            run.scheduler,
            run.value,
            run.bound,
            ratios[run.scheduler],
            1 - ratios[DMRS] / ratios[run.scheduler],
            run.speed,
        )
        for run in runs
    ]


DMRS_2_LIVE = DmrsLiveFigure(
    "dmrs-2-live",
    f"Real jobs on two hosts of this machine, one of them slowed to {SLOW_SPEED:g}",
)

DMRS_2_ON_DASK = replace(
    DMRS_2_LIVE,
    name="dmrs-2-live-dask",
    title=f"Real jobs on a Dask cluster of two hosts and two of {SLOW_SPEED:g} of their speed",
    hosts=DASK_HOSTS,
)
