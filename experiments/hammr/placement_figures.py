"""Hammr, Table 1, and a comparison of greedy, delay and minimum cost flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.hammr.placement import (
    DELAY,
    FLOW,
    GREEDY,
    MANY_HOSTS,
    NO_COSTS,
    PAPER_HOSTS,
    WITH_MOVES,
    WITH_RACKS,
    WITH_WAITS,
    Moved,
    placement_run,
)

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

PAPER = {FLOW: ("20 of 26", "1.00"), NO_COSTS: ("6.3 of 26", "1.11"), DELAY: ("20.6", "")}
"""Local maps and running time, relative to Hammr with locality: 8m21s and 9m14s. Hadoop's Fair
Scheduler took 9m30s, but that is another system."""


@dataclass(frozen=True, slots=True)
class PlacementFigure:
    """Runs of some schemes on some hosts; a row for each run."""

    name: str
    title: str
    schemes: Sequence[tuple[str, str]]
    has_paper: bool
    axis: str = "scheme"
    runs: int = 20

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """All runs of each scheme; the blocks and tasks of a run are the same for all."""
        return [
            partial(placement_run, hosts, scheme, 1_000_003 * seed + number)
            for hosts, scheme in self.schemes
            for number in range(runs)
        ]

    def rows(self, outcomes: Sequence[Moved]) -> Sequence[Row]:
        """A row for each run."""
        runs = len(outcomes) // len(self.schemes)
        names = [(*scheme, run) for scheme in self.schemes for run in range(runs)]
        return [
            {
                "panel": hosts,
                "scheme": scheme,
                "run": run,
                "local": one.local,
                "maps": one.maps,
                "rack_bytes": one.rack,
                "core_bytes": one.core,
                "seconds": one.seconds,
                "response_mean": one.response,
                "deciding_seconds": one.deciding,
                "turns": one.turns,
            }
            for (hosts, scheme, run), one in zip(names, outcomes, strict=True)
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """Means over the runs; times relative to the flow on the same hosts."""
        table = Table(
            title=f"{self.title}: mean of {runs} runs", title_justify="left", box=SIMPLE_HEAD
        )
        headings = ["", "", "local maps", "GB read in\nracks, core", "all done, s", "of flow's"]
        headings += ["mean\nresponse, s", "deciding a\nturn, ms"]
        if self.has_paper:
            headings += ["the paper:\nlocal maps", "time, of\nflow's"]
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="right" if number > 1 else "left")
        for hosts, scheme in self.schemes:
            mean = self._means(rows, hosts, scheme)
            flow = self._means(rows, hosts, FLOW)
            cells = [
                f"{mean['local']:.1f} of {mean['maps']:.0f}",
                f"{mean['rack_bytes'] / 1e9:.1f}, {mean['core_bytes'] / 1e9:.1f}",
                f"{mean['seconds']:.0f}",
                f"{mean['seconds'] / flow['seconds']:.3f}",
                f"{mean['response_mean']:.1f}",
                f"{1e3 * mean['deciding_seconds'] / mean['turns']:.2f}",
            ]
            paper = PAPER.get(scheme, ("", "")) if self.has_paper else ()
            table.add_row(hosts, scheme, *cells, *paper)
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Bars for the means: local maps, bytes, times."""
        from experiments.hammr.placement_pictures import draw_placement

        means = [
            {"panel": hosts, "scheme": scheme, **self._means(rows, hosts, scheme)}
            for hosts, scheme in self.schemes
        ]
        return draw_placement(self.name, self.title, means)

    def _means(self, rows: Sequence[Row], hosts: str, scheme: str) -> dict[str, float]:
        mine = [row for row in rows if (row["panel"], row["scheme"]) == (hosts, scheme)]
        columns = [c for c in mine[0] if c not in ("panel", "scheme", "run", "figure")]
        return {column: fmean(row[column] for row in mine) for column in columns}


HAMMR_TABLE_1 = PlacementFigure(
    "hammr-table1",
    "A word count of 26 maps and 8 reduces on 4 hosts with 2 slots",
    [(PAPER_HOSTS, scheme) for scheme in (FLOW, NO_COSTS, DELAY)],
    has_paper=True,
)

HAMMR_PLACEMENT = PlacementFigure(
    "hammr-placement",
    "Placement: greedy, delay scheduling and minimum cost flow",
    [
        *((PAPER_HOSTS, scheme) for scheme in (GREEDY, DELAY, FLOW, WITH_WAITS)),
        *(
            (MANY_HOSTS, scheme)
            for scheme in (GREEDY, DELAY, FLOW, WITH_WAITS, WITH_RACKS, WITH_MOVES)
        ),
    ],
    has_paper=False,
    runs=10,
)

HAMMR_PLACEMENTS = (HAMMR_TABLE_1, HAMMR_PLACEMENT)
