"""Figures of ratios: the value of each scheme over that of a reference, point by point."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.flex.experiment import FlexSetting, SchemeValues, experiment
from slotwise.insight.report.text import MISSING

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

SCHEMES = ("fifo", "fair", "flex")
BEST_ORDER, BOUND = YARDSTICKS = ("best order", "bound")

RUNS = 100
"""Experiments a point, as in the FLEX paper."""

NOTHING = 1e-9
"""The ratio to a reference value that is not above this is not meaningful."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the x axis, by its value or its name, and the setting to experiment with."""

    x: float | str
    setting: FlexSetting


@dataclass(frozen=True, slots=True)
class RatioRow:
    """The results of the experiments of one point, for one scheme and one reference.

    mean, worst, least  of the ratios of the scheme's value to that of the reference; None
                        where all experiments were ignored
    deviation           standard deviation of these ratios, 0 for a single experiment
    counted, ignored    numbers of experiments; one is ignored if the reference is not above 0
    proven              experiments in which the reference is proven to be the optimum
    """

    x: float | str
    scheme: str
    yardstick: str
    mean: float | None
    worst: float | None
    least: float | None
    deviation: float | None
    counted: int
    ignored: int
    proven: int


@dataclass(frozen=True, slots=True)
class Published:
    """Numbers that the text of a paper states for a point: ratios of a scheme."""

    x: float
    scheme: str
    mean: float
    worst: float


@dataclass(frozen=True, slots=True)
class RatioFigure:
    """A figure of ratios: the varied parameter, and how to draw the results.

    axis       the quantity on the x axis
    drawing    makes the picture; it needs the extra `plots`
    published  the numbers of the paper, shown next to ours
    is_log     whether the axis is logarithmic
    """

    name: str
    title: str
    axis: str
    points: tuple[Point, ...]
    drawing: Callable[[RatioFigure, Sequence[RatioRow]], Picture]
    published: tuple[Published, ...] = ()
    is_log: bool = False
    runs: int = RUNS

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """Those of the first point, then those of the next."""
        return [
            partial(experiment, point.setting, seed, run)
            for point in self.points
            for run in range(runs)
        ]

    def rows(self, outcomes: Sequence[SchemeValues]) -> Sequence[Row]:
        """Each scheme for each reference, point by point."""
        runs = len(outcomes) // len(self.points)
        return [
            asdict(row)
            for number, point in enumerate(self.points)
            for row in rows_of(point, outcomes[number * runs : (number + 1) * runs])
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """Mean and worst ratio of each scheme, a line for each point.

        FIFO and FAIR relative to the best order, as in the papers; FLEX also to the bound.
        """
        found = {(row.x, row.scheme, row.yardstick): row for row in _typed(rows)}
        table = Table(
            title=f"{self.title}: mean and worst of {runs} experiments",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        table.add_column(self.axis, vertical="bottom")
        columns = [(scheme, BEST_ORDER) for scheme in SCHEMES] + [("flex", BOUND)]
        for scheme, yardstick in columns:
            table.add_column(f"{scheme}\nby {yardstick}", justify="right")
        for heading in ("bound is\nthe optimum", "ignored\nby order", "ignored\nby bound"):
            table.add_column(heading, justify="right")
        for point in self.points:
            order, bound = (found[point.x, "flex", yardstick] for yardstick in YARDSTICKS)
            cells = [_ratios(found[point.x, *column]) for column in columns]
            proven = f"{bound.proven} of {bound.counted}"
            ignored = (str(order.ignored), str(bound.ignored))
            table.add_row(str(point.x), *cells, proven, *ignored)
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """The picture, made by `drawing`."""
        return self.drawing(self, _typed(rows))


def rows_of(point: Point, outcomes: Sequence[SchemeValues]) -> list[RatioRow]:
    """The rows of a point: each scheme for each reference."""
    return [
        _row(point, scheme, yardstick, outcomes)
        for yardstick in YARDSTICKS
        for scheme in SCHEMES
    ]


def _typed(rows: Sequence[Row]) -> list[RatioRow]:
    return [RatioRow(**row) for row in rows]


def _row(
    point: Point, scheme: str, yardstick: str, outcomes: Sequence[SchemeValues]
) -> RatioRow:
    of_yardstick = attrgetter(yardstick.replace(" ", "_"))
    sensible = [outcome for outcome in outcomes if of_yardstick(outcome) > NOTHING]
    ratios = [getattr(outcome, scheme) / of_yardstick(outcome) for outcome in sensible]
    return RatioRow(
        x=point.x,
        scheme=scheme,
        yardstick=yardstick,
        mean=statistics.fmean(ratios) if ratios else None,
        worst=max(ratios, default=None),
        least=min(ratios, default=None),
        deviation=statistics.stdev(ratios) if len(ratios) > 1 else 0.0 if ratios else None,
        counted=len(ratios),
        ignored=len(outcomes) - len(ratios),
        proven=sum(map(_is_tight[yardstick], sensible)),
    )


_is_tight: dict[str, Callable[[SchemeValues], bool]] = {
    BEST_ORDER: lambda outcome: outcome.is_optimal(outcome.best_order),
    BOUND: lambda outcome: outcome.is_optimal(min(outcome.flex, outcome.best_order)),
}
"""Whether a reference is proven to be the optimum itself."""


def _ratios(row: RatioRow) -> str:
    if row.mean is None or row.worst is None:
        return MISSING
    return f"{_ratio(row.mean)} {_ratio(row.worst):>7}"


def _ratio(value: float) -> str:
    return (
        f"{value:.4f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    )
