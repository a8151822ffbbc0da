"""FlowFlex, Fig. 12: FlowFlex against FAIR and FIFO, task by task, simulated and live (5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from experiments.figure import Experiment, Row
from experiments.flowflex.cluster import (
    AIMS,
    FLOWFLEX,
    SCHEMES,
    FlowClusterSetting,
    Scheme,
    experiment,
)
from experiments.flowflex.jobs import GridMixFlows
from experiments.flowflex.rows import FlowClusterRow
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.insight.report.text import number

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

RUNS = 3
"""Random sets of flows, as in the paper."""

GAP = 60.0
"""Mean seconds between arrivals, about a quarter of the time that ten flows take: ours."""

OTHERS = ("fair", "fifo")


@dataclass(frozen=True, slots=True)
class FlowClusterFigure:
    """The gain of FlowFlex by four metrics, for flows that arrive at once and one by one."""

    name: str
    title: str
    setting: FlowClusterSetting
    gap: float = GAP
    axis: str = "metric"
    runs: int = RUNS

    @property
    def settings(self) -> Mapping[str, FlowClusterSetting]:
        """The workloads by way of arrival, with the same flows in each."""
        jobs = self.setting.jobs
        return {
            "all at once": replace(self.setting, jobs=replace(jobs, gap=0.0)),
            "one by one": replace(self.setting, jobs=replace(jobs, gap=self.gap)),
        }

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """One for each way to arrive, scheme and set of flows, in this order."""
        return [
            partial(experiment, setting, scheme, seed, run)
            for setting in self.settings.values()
            for scheme in SCHEMES
            for run in range(runs)
        ]

    def rows(self, outcomes: Sequence[Mapping[str, float]]) -> Sequence[Row]:
        """A row for each metric, for each way to arrive."""
        runs = len(outcomes) // (len(self.settings) * len(SCHEMES))
        parts = iter(outcomes)
        found = {
            (arrivals, scheme): [next(parts) for _ in range(runs)]
            for arrivals in self.settings
            for scheme in SCHEMES
        }
        return [
            asdict(
                row_of(
                    arrivals,
                    metric,
                    [one[metric] for one in found[arrivals, Scheme(FLOWFLEX, metric)]],
                    *([one[metric] for one in found[arrivals, Scheme(s)]] for s in OTHERS),
                )
            )
            for arrivals in self.settings
            for metric in AIMS
        ]

    def table(self, rows: Sequence[Row], runs: int) -> Table:
        """Means of all schemes, and the gains of FlowFlex."""
        table = Table(
            title=f"{self.title}: mean of {runs} sets, FlowFlex better by (least, most)",
            title_justify="left",
            box=SIMPLE_HEAD,
        )
        for heading in ("flows arrive", self.axis):
            table.add_column(heading)
        for heading in ("FlowFlex", "FAIR", "FIFO", "better than FAIR", "better than FIFO"):
            table.add_column(heading, justify="right")
        for row in (FlowClusterRow(**row) for row in rows):
            table.add_row(
                row.arrivals,
                row.metric,
                *map(number, (row.flowflex, row.fair, row.fifo)),
                _better(row.better_fair, row.better_fair_least, row.better_fair_most),
                _better(row.better_fifo, row.better_fifo_least, row.better_fifo_most),
            )
        return table

    def draw(self, rows: Sequence[Row]) -> Picture:
        """Bars of improvement, in a panel for each way to arrive."""
        from experiments.flowflex.pictures import draw_improvements

        return draw_improvements(self.name, self.title, [FlowClusterRow(**row) for row in rows])


def row_of(
    arrivals: str,
    metric: str,
    flowflex: Sequence[float],
    fair: Sequence[float],
    fifo: Sequence[float],
) -> FlowClusterRow:
    """The results by one metric, from the values of each set of flows."""
    over_fair, over_fifo = (
        [1 - mine / theirs for mine, theirs in zip(flowflex, other, strict=True)]
        for other in (fair, fifo)
    )
    means = [fmean(values) for values in (flowflex, fair, fifo)]
    return FlowClusterRow(
        arrivals=arrivals,
        metric=metric,
        sets=len(flowflex),
        flowflex=means[0],
        fair=means[1],
        fifo=means[2],
        better_fair=1 - means[0] / means[1],
        better_fair_least=min(over_fair),
        better_fair_most=max(over_fair),
        better_fifo=1 - means[0] / means[2],
        better_fifo_least=min(over_fifo),
        better_fifo_most=max(over_fifo),
    )


def _better(mean: float, least: float, most: float) -> str:
    return f"{100 * mean:.0f} % ({100 * least:.0f}, {100 * most:.0f})"


FLOWFLEX_12 = FlowClusterFigure(
    "flowflex-12",
    "FlowFlex, FAIR and FIFO task by task: ten flows of GridMix-like jobs on 50 slots",
    FlowClusterSetting(),
)

LIVE_BLOCKS, LIVE_SLOTS, LIVE_SPEED = 20, 8, 50.0
"""Tasks sleep for 0.4 to 1.4 s, so that slots may outnumber processors and decisions are short
in comparison; a run takes about 20 s. These slots have the same load as the simulated ones."""

FLOWFLEX_12_LIVE = FlowClusterFigure(
    "flowflex-12-live",
    "FlowFlex, FAIR and FIFO live on this machine: ten small flows of tasks that sleep",
    FlowClusterSetting(GridMixFlows(blocks=LIVE_BLOCKS), LIVE_SLOTS, LIVE_SPEED),
)

DASK_HOSTS = Cluster(tuple(Host(f"host-{n}", {ANY_KIND: 2}) for n in range(1, 5)))
"""As many slots together."""

FLOWFLEX_12_ON_DASK = replace(
    FLOWFLEX_12_LIVE,
    name="flowflex-12-live-dask",
    title="FlowFlex, FAIR and FIFO live on a Dask cluster of four hosts with two slots",
    setting=replace(FLOWFLEX_12_LIVE.setting, hosts=DASK_HOSTS),
)

FLOWFLEX_12_BOTH = (FLOWFLEX_12, FLOWFLEX_12_LIVE)
