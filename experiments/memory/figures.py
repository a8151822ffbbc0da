"""Responses of jobs of large and of small memory, with and without waits, by load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.memory.experiment import ASSIGNERS, WaitsDraw, WaitsRow, experiment

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

LOADS = (0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class WaitsFigure:
    """Mean responses of large and of small jobs, with and without waits."""

    name: str
    title: str
    allocators: tuple[str, ...] = ("fair", "fifo")
    loads: tuple[float, ...] = LOADS
    axis: str = "load"
    runs: int = 5

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """Those of the first allocator by load, then those of the next."""
        return [
            partial(experiment, allocator, load, seed, number)
            for allocator in self.allocators
            for load in self.loads
            for number in range(runs)
        ]

    def rows(self, outcomes: Sequence[WaitsDraw]) -> Sequence[Row]:
        """A row for each allocator and load, with and without waits."""
        by_point: dict[tuple[str, float], list[WaitsDraw]] = {}
        for draw in outcomes:
            by_point.setdefault((draw.allocator, draw.load), []).append(draw)
        return [
            asdict(
                WaitsRow(
                    *point,
                    waits,
                    len(draws),
                    fmean(draw.large[waits] for draw in draws),
                    fmean(draw.small[waits] for draw in draws),
                    fmean(draw.longest[waits] for draw in draws),
                )
            )
            for point, draws in by_point.items()
            for waits in ASSIGNERS
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """All rows."""
        table = Table(
            title=f"{self.title}: responses in seconds, means of {runs} draws",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        for heading in ("allocator", "load", "waits"):
            table.add_column(heading)
        for heading in ("large", "longest large", "small"):
            table.add_column(heading, justify="right")
        for row in [WaitsRow(**row) for row in rows]:
            values = (f"{value:.1f}" for value in (row.large, row.longest, row.small))
            table.add_row(row.allocator, str(row.load), row.waits, *values)
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Mean responses over the load: a panel for large jobs, and one for small ones."""
        from experiments.memory.pictures import draw_responses

        return draw_responses(self.name, self.title, [WaitsRow(**row) for row in rows])


MEMORY_WAITS = WaitsFigure(
    "memory-waits", "Jobs of large memory in a stream of small ones, with and without waits"
)
"""Ours."""
