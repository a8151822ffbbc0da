"""Experiments have the same outcomes in one process and in several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from experiments import reproduce as reproducing
from experiments.dmrs.experiment import GB, Batch, Case, DmrsSetting
from experiments.dmrs.figures import DMRS_2A
from experiments.dmrs.profiles import MB, Profile
from experiments.figure import Experiment, Figure, Row
from experiments.flex.cluster_experiment import ClusterSetting
from experiments.flex.cluster_figures import FLEX_6A, ClusterFigure, ClusterPoint
from experiments.flex.cluster_jobs import SpreadJobs
from experiments.flex.experiment import FlexSetting
from experiments.flex.figures import FLEX_5A
from experiments.flowflex.cluster import FlowClusterSetting
from experiments.flowflex.cluster_figures import FLOWFLEX_12
from experiments.flowflex.experiment import FlowSetting
from experiments.flowflex.figures import MINIMAX, MINISUM, FlowFigure
from experiments.flowflex.generator import FlowGenerator
from experiments.flowflex.jobs import GridMixFlows
from experiments.ratios import Point
from experiments.reproduce import reproduce
from slotwise.workload.generators import FlexGenerator

FLEX = replace(
    FLEX_5A,
    name="flex",
    points=tuple(Point(n, FlexSetting(FlexGenerator(jobs=n))) for n in (3, 4)),
)
CLUSTER = ClusterFigure(
    "cluster",
    "Three jobs",
    FLEX_6A.axis,
    tuple(
        ClusterPoint(x, ClusterSetting(SpreadJobs(jobs=3, maps=60, reduces=20), slack=x / 100))
        for x in (15, 95)
    ),
    {},
)
FLOWS = FlowFigure(
    "flows",
    "Few flows",
    FlowSetting(
        (MINISUM[6], MINIMAX[5]),
        FlowGenerator(flows_least=2, flows_most=4, phases_most=4),
        steps=50,
    ),
)
FLOW_CLUSTER = replace(
    FLOWFLEX_12,
    name="flow cluster",
    setting=FlowClusterSetting(GridMixFlows(flows=3, jobs_most=3, blocks=20), slots=6),
)
DMRS = replace(
    DMRS_2A,
    name="dmrs",
    cases=tuple(
        Case(
            name,
            (Batch(3, GB, 256 * MB), Batch(2, GB // 2, 128 * MB)),
            DmrsSetting(machines=4),
        )
        for name in ("wordcount", "sort")
    ),
    profiles={"wordcount": Profile(9e-8, 3e-9), "sort": Profile(3e-8, 1e-8)},
)


@dataclass(frozen=True)
class Joined:
    """Several figures as one, so that the processes are started once for all of them."""

    figures: Sequence[Figure]

    def experiments(self, runs: int, seed: int) -> Sequence[Experiment]:
        """The experiments of all figures."""
        return [one for figure in self.figures for one in figure.experiments(runs, seed)]

    def rows(self, outcomes: Sequence[Any]) -> Sequence[Row]:
        """A row for each figure, with the rows of the figure."""
        left, rows = list(outcomes), []
        for figure in self.figures:
            count = len(figure.experiments(1, 0))
            rows.append({"figure": figure.name, "rows": figure.rows(left[:count])})
            del left[:count]
        return rows


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows_in_any_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Rows keep their order and their numbers; another seed gives other numbers.

    By default those of the two figures that take the least time.
    """
    larger = [CLUSTER, FLOWS, DMRS] if pytestconfig.getoption("--slow") else []
    joined = Joined([FLEX, FLOW_CLUSTER, *larger])
    monkeypatch.setattr(reproducing, "FIGURES", {"joined": joined})
    alone = reproduce("joined", runs=1, seed=1).rows
    assert reproduce("joined", runs=1, seed=1, processes=2).rows == alone
    for one, other in zip(alone, reproduce("joined", runs=1, seed=2).rows, strict=True):
        assert one["rows"] != other["rows"], one["figure"]
    for row in alone:
        if row["figure"] == CLUSTER.name:
            assert all(one["better_least"] >= 0 for one in row["rows"]), "FLEX beats FAIR"
