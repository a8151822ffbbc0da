"""FLEX, Fig. 5: FIFO, FAIR and FLEX by the best priority order, in simulations (FLEX 4.1).

`flex-tasks` is not in the paper: it varies a number of the base case that the paper omits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.flex.experiment import MEAN_RESPONSE, FlexSetting, Metric
from experiments.ratios import Point, Published, RatioFigure, RatioRow
from slotwise.workload.generators import FlexGenerator

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

METRICS = (
    MEAN_RESPONSE,
    Metric("weighted response", "response", weighted=True),
    Metric("mean stretch", "stretch"),
    Metric("max stretch", "stretch", "max"),
    Metric("tardy jobs", "tardy"),
    Metric("weighted tardy jobs", "tardy", weighted=True),
    Metric("mean tardiness", "tardiness"),
    Metric("weighted tardiness", "tardiness", weighted=True),
    Metric("max weighted tardiness", "tardiness", "max", weighted=True),
    Metric("max lateness", "lateness", "max"),
    Metric("SLA cost", "sla"),
    Metric("makespan", "makespan", "max"),
)
"""The metrics of Fig. 5(c), as far as the text names them, and more."""

SLACKS = tuple(range(5, 100, 10))
"""In percent."""

SMALL_JOBS = tuple(range(0, 100, 10))
"""In percent. Without 100: once normalised, ten small jobs equal ten large ones."""

TASKS = (100, 200, 300, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 100_000)
"""Tasks of an experiment, a number that the paper does not state."""

BASE_CASE = {"fifo": (2.07, 3.24), "fair": (1.54, 1.61)}
"""Mean and worst ratios of the base case as the paper states them."""


def _published(x: float) -> tuple[Published, ...]:
    """The paper's numbers at the base case of a figure."""
    return tuple(Published(x, scheme, *ratios) for scheme, ratios in BASE_CASE.items())


def _by_lines(figure: RatioFigure, rows: Sequence[RatioRow]) -> Picture:
    from experiments.flex.pictures import draw_lines

    return draw_lines(figure, rows)


def _by_metric(figure: RatioFigure, rows: Sequence[RatioRow]) -> Picture:
    from experiments.flex.pictures import draw_metrics

    return draw_metrics(figure, rows)


FLEX_5A = RatioFigure(
    "flex-5a",
    "Mean response, by the slack that min shares leave",
    "slack (%)",
    tuple(Point(x, FlexSetting(FlexGenerator(slack=x / 100))) for x in SLACKS),
    _by_lines,
    _published(75),
)
FLEX_5B = RatioFigure(
    "flex-5b",
    "Mean response, by the share of small jobs",
    "small jobs (%)",
    tuple(Point(x, FlexSetting(FlexGenerator(small=x / 100))) for x in SMALL_JOBS),
    _by_lines,
    _published(80),
)
FLEX_5C = RatioFigure(
    "flex-5c",
    "Every metric in the base case",
    "metric",
    tuple(Point(metric.name, FlexSetting(metric=metric)) for metric in METRICS),
    _by_metric,
)
FLEX_TASKS = RatioFigure(
    "flex-tasks",
    "Mean response in the base case, by the number of tasks, which the paper does not state",
    "tasks of ten jobs on 100 slots",
    tuple(Point(x, FlexSetting(FlexGenerator(tasks_total=x))) for x in TASKS),
    _by_lines,
    is_log=True,
)

FLEX_5 = (FLEX_5A, FLEX_5B, FLEX_5C, FLEX_TASKS)
