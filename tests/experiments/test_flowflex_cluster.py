"""FlowFlex, Fig. 12: the flows, their estimates, and runs on both backends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from experiments.flowflex.cluster import (
    AIMS,
    SCHEMES,
    FlowClusterSetting,
    Scheme,
    completions,
    experiment,
    measured,
)
from experiments.flowflex.cluster_figures import (
    FLOWFLEX_12_BOTH,
    FlowClusterFigure,
    row_of,
)
from experiments.flowflex.jobs import GridMixFlows, believed, faster
from slotwise.core.job import Job, Phase, Tasks

TINY = GridMixFlows(flows=3, jobs_most=3, blocks=20)
SMALL = FlowClusterSetting(TINY, slots=6)


def test_flows_are_dags_of_maps_and_reduces() -> None:
    """2 to 10 jobs; a reduce waits for its maps, and maps for reduces of earlier jobs only."""
    sizes = set()
    for seed in range(30):
        flows = GridMixFlows().draw(np.random.default_rng(seed))
        assert len(flows) == 10
        for flow in flows:
            assert len(flow.phases) in range(4, 21, 2)
            sizes.add(len(flow.phases))
            for place, (mapping, reducing) in enumerate(
                zip(flow.phases[::2], flow.phases[1::2], strict=True)
            ):
                assert reducing.after == {mapping.name}
                assert mapping.after <= {f"reduce-{n}" for n in range(place)}
                assert mapping.tasks.count in (3, 30, 300)
                assert 1 <= reducing.tasks.count <= mapping.tasks.count
    assert sizes == set(range(4, 21, 2))


def test_flows_with_another_gap_differ_only_in_their_arrivals() -> None:
    """All at once, or one by one from 0 on."""
    at_once, one_by_one = (
        GridMixFlows(gap=gap).draw(np.random.default_rng(5)) for gap in (0.0, 60.0)
    )
    assert [flow.arrival for flow in at_once] == [0.0] * 10
    arrivals = [flow.arrival for flow in one_by_one]
    assert arrivals[0] == 0
    assert np.all(np.diff(arrivals) > 0)
    assert [flow.phases for flow in at_once] == [flow.phases for flow in one_by_one]


def test_durations_of_tasks_vary_and_are_unknown_to_schedulers() -> None:
    """Maps of sorts take 30 s on average, deviating by a quarter; all have one estimate."""
    flows = GridMixFlows().draw(np.random.default_rng(1))
    [maps, *_] = [p for f in flows for p in f.phases[::2] if p.tasks.count == 300]
    works = np.array([maps.tasks.work_of(n) for n in range(300)])
    assert works.mean() == pytest.approx(30, rel=0.05) or works.mean() == pytest.approx(
        20, rel=0.05
    )
    assert works.std() / works.mean() == pytest.approx(0.25, rel=0.15)
    estimated = believed(flows[0], 30.0)
    assert [p.tasks.count for p in estimated.phases] == [p.tasks.count for p in flows[0].phases]
    assert {p.tasks.work for p in estimated.phases} == {30.0}
    assert faster(flows[0], 10).work == pytest.approx((flows[0].work or 0) / 10)


def test_metrics_use_the_arrival_and_the_true_work() -> None:
    """Responses 10 and 20, work 5 and 40: stretch 2 and 1/2."""
    jobs = [
        Job("a", (Phase("p", Tasks(1, 5.0)),)),
        Job("b", (Phase("p", Tasks(4, 10.0)),), arrival=3.0),
    ]
    found = measured(jobs, {"a": 10.0, "b": 23.0})
    assert found == {
        "mean completion": 15.0,
        "makespan": 23.0,
        "mean stretch": 1.25,
        "max stretch": 2.0,
    }
    assert list(found) == list(AIMS)


EACH = [
    pytest.param(
        scheme,
        id=f"{scheme.scheduler} {scheme.metric}".strip(),
        marks=pytest.mark.slow if scheme.metric not in ("", "makespan") else [],
    )
    for scheme in SCHEMES
]
"""By default FlowFlex runs by one metric."""


@pytest.mark.parametrize("scheme", EACH)
def test_the_same_numbers_give_the_same_run(scheme: Scheme) -> None:
    """Another number draws other flows."""
    one = experiment(SMALL, scheme, 0, 1)
    assert experiment(SMALL, scheme, 0, 1) == one
    assert experiment(SMALL, scheme, 0, 2) != one
    least = sum(job.work or 0.0 for job in TINY.draw(np.random.default_rng([0, 1]))) / 6
    assert one["makespan"] >= least


def test_live_runs_take_at_least_as_long_as_their_tasks_sleep() -> None:
    """The same flows 200 times as fast; times are converted back to the clock of the flows."""
    jobs = TINY.draw(np.random.default_rng([0, 1]))
    live = completions(replace(SMALL, speed=200.0), jobs, Scheme("fair"))
    assert set(live) == {job.id for job in jobs}
    for job in jobs:
        assert live[job.id] >= max(p.tasks.work_of(0) or 0.0 for p in job.phases)
    assert max(live.values()) >= sum(job.work or 0.0 for job in jobs) / 6


def test_a_row_has_the_gains_of_the_means_and_of_single_sets() -> None:
    """Better than FAIR by 1 - 15/20 of the means, by 1/2 and by 1/6 in the two sets."""
    row = row_of("all at once", "makespan", [5.0, 25.0], [10.0, 30.0], [5.0, 100.0])
    assert (row.flowflex, row.fair, row.fifo, row.sets) == (15, 20, 52.5, 2)
    assert row.better_fair == pytest.approx(0.25)
    assert (row.better_fair_least, row.better_fair_most) == pytest.approx((1 / 6, 0.5))
    assert (row.better_fifo_least, row.better_fifo_most) == (0, 0.75)


@pytest.mark.parametrize("figure", FLOWFLEX_12_BOTH, ids=lambda figure: figure.name)
def test_a_figure_shows_every_metric_for_flows_at_once_and_one_by_one(
    figure: FlowClusterFigure,
) -> None:
    """FlowFlex's value by a metric is that of the run that planned for it."""
    outcomes = [
        {m: 1.0 if m == scheme.metric else 9.0 if scheme.metric else 2.0 for m in AIMS}
        for _ in figure.settings
        for scheme in SCHEMES
        for _ in range(2)
    ]
    rows = figure.rows(outcomes)
    assert [row["flowflex"] for row in rows] == [1.0] * 8
    assert [row["better_fifo"] for row in rows] == [0.5] * 8
    console = Console(width=200)
    with console.capture() as captured:
        console.print(figure.table(rows, 2))
    assert captured.get().count("50 % (50, 50)") == 16
    picture = figure.draw(rows)
    assert [len(bars) for bars in picture.rows.values()] == [8, 8]
    assert "better by (%)" in str(picture.spec())
