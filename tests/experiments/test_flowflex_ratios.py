"""FlowFlex, Figs. 10 and 11: metrics, ratios, tables and pictures; plans of real allocators."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from rich.console import Console

import slotwise
from experiments.flowflex import experiment as experimenting
from experiments.flowflex.experiment import (
    ALONE,
    FLOWFLEX,
    SCHEMES,
    FlowOutcome,
    FlowSetting,
    experiment,
)
from experiments.flowflex.figures import (
    FLOWFLEX_10,
    FLOWFLEX_11,
    FLOWFLEX_RATIOS,
    MINIMAX,
    MINISUM,
    FlowFigure,
    row_of,
)
from experiments.flowflex.generator import FlowGenerator
from slotwise.core.objective import Objective

SMALL = FlowGenerator(flows_least=2, flows_most=4, phases_most=4)


def test_the_metrics_are_those_that_the_paper_names() -> None:
    """Nine sums; eight maxima, since a maximum of unweighted tardy flows is 0 or 1."""
    assert (len(MINISUM), len(MINIMAX)) == (9, 8)
    sums = {(m.penalty, m.weighted) for m in MINISUM}
    maxima = {(m.penalty.replace("makespan", "response"), m.weighted) for m in MINIMAX}
    assert sums - maxima == {("tardy", False)}
    assert maxima < sums
    assert {m.aggregate for m in MINISUM} == {"sum"}
    assert {m.aggregate for m in MINIMAX} == {"max"}
    assert (FLOWFLEX_10.runs, FLOWFLEX_11.runs, FLOWFLEX_11.published) == (25, 25, 1.26)


def outcome(bound: float, **values: float) -> FlowOutcome:
    """An outcome; values are by the first word of the name of their scheme."""
    return FlowOutcome(
        {scheme: values[scheme.split("'")[0]] for scheme in SCHEMES},
        bound,
    )


def test_one_is_added_to_value_and_bound_where_the_bound_can_be_zero() -> None:
    """Tardiness 3 by a bound of 0 is 4, 5 by 2 is 2 (footnote 10); a stretch is not changed."""
    outcomes = [
        outcome(0.0, flowflex=3.0, paper=3.0, fair=9.0, fifo=1.0),
        outcome(2.0, flowflex=5.0, paper=4.0, fair=2.0, fifo=8.0),
    ]
    tardiness = row_of(MINISUM[5], FLOWFLEX, outcomes)
    assert (tardiness.mean, tardiness.worst, tardiness.least) == (3.0, 4.0, 2.0)
    assert (tardiness.added, tardiness.nothing, tardiness.behind) == (1.0, 1, 1)
    assert row_of(MINISUM[5], "fair", outcomes).proven == 1
    stretch = row_of(MINISUM[2], FLOWFLEX, outcomes[1:])
    assert (stretch.mean, stretch.added, stretch.deviation) == (2.5, 0.0, 0.0)


def test_a_bound_just_below_zero_counts_as_zero() -> None:
    """Bounds are lowered slightly for rounding; a value of 0 is still optimal."""
    found = outcome(-1e-12, flowflex=0.0, paper=0.0, fair=1.0, fifo=1.0)
    assert found.ratio(FLOWFLEX, 1.0) == 1.0
    assert found.is_proven(FLOWFLEX)
    assert not found.is_proven("fair")


@pytest.mark.parametrize("figure", FLOWFLEX_RATIOS, ids=lambda figure: figure.name)
def test_a_figure_shows_every_metric_and_scheme(figure: FlowFigure) -> None:
    """In the table and in the picture; a bar that is cut shows its value."""
    one = outcome(1.0, flowflex=1.0, paper=1.5, fair=2.0, fifo=500.0)
    rows = figure.rows([{metric.name: one for metric in figure.setting.metrics}] * 2)
    assert len(rows) == len(figure.setting.metrics) * len(SCHEMES)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(figure.table(rows, 2))
    table = captured.get()
    for metric in figure.setting.metrics:
        assert metric.name in table
    assert ("<= 1.26" in table) == (figure is FLOWFLEX_11)
    picture = figure.draw(rows)
    assert len(picture.rows["average"]) == len(picture.rows["worst"]) == len(rows)
    assert {bar["written"] for bar in picture.rows["worst"]} >= {"1.00", "500"}
    assert max(bar["ratio"] for bar in picture.rows["worst"]) == 10
    assert "ratio to the bound" in str(picture.spec())


def test_values_are_those_of_plans() -> None:
    """Each scheme has the value of its plan; FAIR ignores the weights, its costs do not."""
    metric = MINISUM[1]
    found = experiment(FlowSetting((metric,), SMALL, steps=50), 3, 1)[metric.name]
    jobs = SMALL.draw(experimenting.np.random.default_rng([3, 1]))
    assert len({job.weight for job in jobs}) > 1
    planned = slotwise.plan(jobs, "fifo", slots=25, objective=Objective("response"))
    assert found.values["fifo"] == pytest.approx(planned.value)
    plain = experimenting.unweighted(jobs)
    done = slotwise.plan(plain, "fair", slots=25).schedule.completion()
    assert found.values["fair"] == pytest.approx(sum(job.weight * done[job.id] for job in jobs))


@pytest.mark.parametrize("metrics", [MINISUM, MINIMAX], ids=["sums", "maxima"])
@pytest.mark.slow
def test_no_scheme_is_below_the_bound_and_flowflex_is_never_worse_than_the_paper(
    metrics: tuple[experimenting.Metric, ...], pytestconfig: pytest.Config
) -> None:
    """With small flows, by every metric."""
    for number in range(3 if pytestconfig.getoption("--slow") else 1):
        found: Mapping[str, FlowOutcome] = experiment(
            FlowSetting(metrics, SMALL, steps=50), 0, number
        )
        assert list(found) == [metric.name for metric in metrics]
        for one in found.values():
            room = 1e-9 * max(1.0, abs(one.bound))
            assert one.bound <= min(one.values.values()) + room
            assert one.values[FLOWFLEX] <= one.values[ALONE] + room
