"""FlowFlex, Figs. 10 and 11: FlowFlex, FAIR and FIFO by the best bound, simulated (5.1)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.flex.experiment import Metric
from experiments.flowflex.experiment import (
    ALONE,
    FLOWFLEX,
    SCHEMES,
    FlowOutcome,
    FlowSetting,
    experiment,
)
from experiments.flowflex.rows import FlowRow
from slotwise.insight.report.text import number

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

RUNS = 25
"""Experiments a figure, as in the paper; each is measured by all metrics."""

MINISUM = (
    Metric("mean completion", "response"),
    Metric("weighted completion", "response", weighted=True),
    Metric("mean stretch", "stretch"),
    Metric("tardy flows", "tardy"),
    Metric("weighted tardy flows", "tardy", weighted=True),
    Metric("mean tardiness", "tardiness"),
    Metric("weighted tardiness", "tardiness", weighted=True),
    Metric("SLA steps", "sla"),
    Metric("SLA cost", "sla", weighted=True),
)
"""The nine metrics of Fig. 10: each of the paper's types, weighted and unweighted; stretch has
its own weights. The steps of an SLA count 1 each, or have random heights."""

MINIMAX = (
    Metric("makespan", "makespan", "max"),
    Metric("max weighted completion", "response", "max", weighted=True),
    Metric("max stretch", "stretch", "max"),
    Metric("max weighted tardy flow", "tardy", "max", weighted=True),
    Metric("max tardiness", "tardiness", "max"),
    Metric("max weighted tardiness", "tardiness", "max", weighted=True),
    Metric("max SLA steps", "sla", "max"),
    Metric("max SLA cost", "sla", "max", weighted=True),
)
"""The eight metrics of Fig. 11: the same without the unweighted tardy flow, as in the paper."""

MAY_BE_NOTHING = frozenset({"tardy", "tardiness", "sla"})
"""Penalties that a job may avoid. Where a bound of 0 is possible, 1 is added to both values and
bounds, in every experiment, as we interpret the paper (FlowFlex, footnote 10)."""


@dataclass(frozen=True, slots=True)
class FlowFigure:
    """Ratios to the best bound, average and worst, metric by metric.

    published  the maximum that the paper states for the average of FlowFlex; None if not stated
    """

    name: str
    title: str
    setting: FlowSetting
    published: float | None = None
    axis: str = "metric"
    runs: int = RUNS

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One for each random workload."""
        return [partial(experiment, self.setting, seed, run) for run in range(runs)]

    def rows(self, outcomes: Sequence[Mapping[str, FlowOutcome]]) -> Sequence[Row]:
        """A row for each scheme by each metric."""
        return [
            asdict(row_of(metric, scheme, [outcome[metric.name] for outcome in outcomes]))
            for metric in self.setting.metrics
            for scheme in SCHEMES
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """Average and worst ratio of each scheme, a line for each metric."""
        found = {(row.metric, row.scheme): row for row in _typed(rows)}
        table = Table(
            title=f"{self.title}: average and worst of {runs} experiments, by the best bound",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        table.add_column(self.axis, vertical="bottom")
        for heading in (FLOWFLEX, *(["of the paper"] if self.published else []), *SCHEMES[1:]):
            table.add_column(heading, justify="right", vertical="bottom")
        for heading in ("proven\noptimal", "paper's method\nis better", "bound\nis 0", "added"):
            table.add_column(heading, justify="right", vertical="bottom")
        for metric in self.setting.metrics:
            mine = found[metric.name, FLOWFLEX]
            cells = [_ratios(found[metric.name, scheme]) for scheme in SCHEMES]
            said = [f"<= {self.published:g}"] if self.published else []
            counts = [mine.proven, mine.behind, mine.nothing]
            table.add_row(
                metric.name,
                cells[0],
                *said,
                *cells[1:],
                *(str(count) for count in counts),
                f"{mine.added:g}",
            )
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Bars: averages next to worst cases."""
        from experiments.flowflex.pictures import draw_ratios

        return draw_ratios(self.name, self.title, _typed(rows))


def row_of(metric: Metric, scheme: str, outcomes: Sequence[FlowOutcome]) -> FlowRow:
    """The results of the experiments by one metric, for one scheme."""
    added = 1.0 if metric.penalty in MAY_BE_NOTHING else 0.0
    ratios = [outcome.ratio(scheme, added) for outcome in outcomes]
    return FlowRow(
        metric=metric.name,
        scheme=scheme,
        mean=statistics.fmean(ratios),
        worst=max(ratios),
        least=min(ratios),
        deviation=statistics.stdev(ratios) if len(ratios) > 1 else 0.0,
        added=added,
        proven=sum(outcome.is_proven(scheme) for outcome in outcomes),
        behind=sum(_is_behind(outcome, scheme) for outcome in outcomes),
        nothing=sum(outcome.bound <= 0 for outcome in outcomes),
        experiments=len(outcomes),
    )


ROUNDING = 1e-9
"""Values that differ by no more than this, relatively, count as equal."""


def _is_behind(outcome: FlowOutcome, scheme: str) -> bool:
    value, papers = outcome.values[scheme], outcome.values[ALONE]
    return value > papers + ROUNDING * max(1.0, abs(papers))


def _typed(rows: Sequence[Row]) -> list[FlowRow]:
    return [FlowRow(**row) for row in rows]


def _ratios(row: FlowRow) -> str:
    mean, worst = (
        f"{value:.3f}" if value < 10 else number(value) for value in (row.mean, row.worst)
    )
    return f"{mean} {worst:>6}"


FLOWFLEX_10 = FlowFigure(
    "flowflex-10", "FlowFlex, FAIR and FIFO by sums over all flows", FlowSetting(MINISUM)
)
FLOWFLEX_11 = FlowFigure(
    "flowflex-11",
    "FlowFlex, FAIR and FIFO by the maximum over all flows",
    FlowSetting(MINIMAX),
    published=1.26,
)

FLOWFLEX_RATIOS = (FLOWFLEX_10, FLOWFLEX_11)
