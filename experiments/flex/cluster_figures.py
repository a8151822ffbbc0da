"""FLEX, Fig. 6: FLEX against FAIR on a cluster of uneven hosts, task by task (FLEX 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.flex.cluster_experiment import (
    SLOW_START,
    UNSEEN_SECONDS,
    ClusterSetting,
    experiment,
)
from experiments.flex.cluster_jobs import GridMix, SpreadJobs
from experiments.flex.cluster_row import ClusterRow
from slotwise.core.job import Shuffle

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

RUNS = 10
"""Experiments a point; the paper does not state its number."""

SLACKS = (15, 35, 55, 75, 95)
"""In percent, as in the paper."""

GAPS = (0.0, 0.5, 1.0, 1.5, 2.0, 4.0, 6.0)
"""Mean minutes between submissions; the last two are ours."""

SPREADS = (0, 1, 2, 3, 4)
"""Standard deviations of sizes, as in the paper."""

SUBMISSION = 0.25
"""Approximate mean minutes for a Hadoop client to submit a job; ours."""

HADOOP = Shuffle(slow_start=SLOW_START)
"""Reduces hold their slots while they copy."""

SPLIT = Shuffle(slow_start=SLOW_START, split=True, copies_per_job=39)
"""Copying separate from computing; no job uses more than a quarter of the slots for copying."""


@dataclass(frozen=True, slots=True)
class ClusterPoint:
    """A place on the x axis of a panel, and the setting of its experiments."""

    x: float
    setting: ClusterSetting
    panel: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFigure:
    """A figure of mean responses under FAIR and FLEX.

    published  the statements of the paper's text about places on the axis
    """

    name: str
    title: str
    axis: str
    points: tuple[ClusterPoint, ...]
    published: Mapping[float, str]
    runs: int = RUNS

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """Those of the first point, then those of the next; the same draws at every point."""
        return [
            partial(experiment, point.setting, seed, number)
            for point in self.points
            for number in range(runs)
        ]

    def rows(self, outcomes: Sequence[Mapping[str, float]]) -> Sequence[Row]:
        """A row for each point."""
        runs = len(outcomes) // len(self.points)
        return [
            asdict(row_of(point, outcomes[number * runs : (number + 1) * runs]))
            for number, point in enumerate(self.points)
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """Both means and the gain of FLEX, next to the statements of the paper."""
        has_panels = len({row["panel"] for row in rows}) > 1
        table = Table(
            title=f"{self.title}: mean response (min), mean of {runs} experiments",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        if has_panels:
            table.add_column("case", vertical="bottom")
        table.add_column(self.axis, vertical="bottom")
        for heading in ("FAIR", "FLEX", "FLEX better by\nmean", "least", "most"):
            table.add_column(heading, justify="right", vertical="bottom")
        if self.published:
            table.add_column("the paper on FLEX", vertical="bottom")
        for row in (ClusterRow(**row) for row in rows):
            table.add_row(
                *([row.panel] if has_panels else []),
                f"{row.x:g}",
                f"{row.fair:.1f}",
                f"{row.flex:.1f}",
                *(f"{100 * v:.0f} %" for v in (row.better, row.better_least, row.better_most)),
                *([self.published.get(row.x, "")] if self.published else []),
            )
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """A panel for each case: both lines."""
        from experiments.flex.cluster_pictures import draw_responses

        return draw_responses(
            self.name, self.title, self.axis, [ClusterRow(**row) for row in rows]
        )


def row_of(point: ClusterPoint, outcomes: Sequence[Mapping[str, float]]) -> ClusterRow:
    """The results of the experiments of one point."""
    fair, flex = ([outcome[scheme] for outcome in outcomes] for scheme in ("fair", "flex"))
    better = [1 - mine / other for mine, other in zip(flex, fair, strict=True)]
    return ClusterRow(
        panel=point.panel,
        x=point.x,
        experiments=len(outcomes),
        fair=fmean(fair),
        fair_deviation=_deviation(fair),
        flex=fmean(flex),
        flex_deviation=_deviation(flex),
        better=1 - fmean(flex) / fmean(fair),
        better_least=min(better),
        better_most=max(better),
    )


def _unseen(gap: float, unseen: float) -> ClusterPoint:
    jobs = SpreadJobs(gap=gap, maps=400.0, reduces=120.0)
    panel = f"unseen tasks assumed to take {unseen:,.0f} s"
    return ClusterPoint(gap, ClusterSetting(jobs, unseen=unseen), panel)


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _at_once(x: float) -> ClusterPoint:
    return ClusterPoint(x, ClusterSetting(SpreadJobs(spread=x)), "all jobs at once")


def _largest_first(x: float, panel: str, shuffle: Shuffle) -> ClusterPoint:
    jobs = SpreadJobs(spread=x, gap=SUBMISSION, largest_first=True)
    return ClusterPoint(x, ClusterSetting(jobs, shuffle=shuffle), panel)


FLEX_6A = ClusterFigure(
    "flex-6a",
    "FLEX and FAIR on 26 hosts, by the slack that min shares leave",
    "slack (%)",
    tuple(ClusterPoint(x, ClusterSetting(slack=x / 100)) for x in SLACKS),
    {15: "not much better", 95: "better by almost 50 %"},
)
FLEX_6B = ClusterFigure(
    "flex-6b",
    "FLEX and FAIR on 26 hosts, by the time between submissions",
    "mean time between submissions (min)",
    tuple(ClusterPoint(x, ClusterSetting(SpreadJobs(gap=x))) for x in GAPS),
    {0.0: "better by almost 50 %", 4.0: "very little difference above 3"},
)
FLEX_6C = ClusterFigure(
    "flex-6c",
    "FLEX and FAIR on 26 hosts, by the spread of job sizes",
    "standard deviation of job sizes",
    (
        *(_at_once(x) for x in SPREADS),
        *(_largest_first(x, "largest first", HADOOP) for x in SPREADS),
        *(_largest_first(x, "largest first, copies separate", SPLIT) for x in SPREADS),
    ),
    {1: "better by up to 50 %", 4: "not much better, no worse"},
)
FLEX_6_JOBS = ClusterFigure(
    "flex-6-jobs",
    "FLEX and FAIR on 26 hosts, by the number of jobs",
    "jobs",
    tuple(ClusterPoint(x, ClusterSetting(SpreadJobs(jobs=x))) for x in (10, 20, 40)),
    {20: "better by almost 20 %", 40: "better by almost 20 %"},
)
FLEX_6_GRIDMIX = ClusterFigure(
    "flex-6-gridmix",
    "FLEX and FAIR on 26 hosts, 172 jobs after GridMix2",
    "mean time between submissions (s)",
    tuple(ClusterPoint(x, ClusterSetting(GridMix(gap=x))) for x in (0.0, 5.0, 15.0)),
    {0.0: "better by 30 % on average"},
)

FLEX_6_UNSEEN = ClusterFigure(
    "flex-6-unseen",
    "FLEX and FAIR on 26 hosts, twice the reduces, by the assumed time of unseen tasks",
    "mean time between submissions (min)",
    tuple(_unseen(gap, unseen) for unseen in (UNSEEN_SECONDS, 10.0) for gap in GAPS[:5]),
    {},
)
"""Not in the paper, which says only that FLEX needs estimates."""

FLEX_6 = (FLEX_6A, FLEX_6B, FLEX_6C, FLEX_6_JOBS, FLEX_6_GRIDMIX, FLEX_6_UNSEEN)
