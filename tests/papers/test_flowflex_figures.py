"""Statements in the text of FlowFlex 5.1, checked on a few workloads of its generator."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pytest

from experiments.flowflex.experiment import (
    FLOWFLEX,
    FlowOutcome,
    FlowSetting,
    experiment,
)
from experiments.flowflex.figures import MAY_BE_NOTHING, MINIMAX, MINISUM
from experiments.flowflex.generator import FlowGenerator

SMALL = FlowGenerator(flows_most=8, phases_most=10)
"""Makes the tests fast; everything else is as in the figures."""

SMALLEST = FlowGenerator(flows_most=6, phases_most=6)
"""Without --slow."""


@pytest.fixture(scope="module")
def outcomes(pytestconfig: pytest.Config) -> Sequence[dict[str, FlowOutcome]]:
    """All metrics of a few workloads."""
    is_slow = pytestconfig.getoption("--slow")
    generator, steps, runs = (SMALL, 100, 3) if is_slow else (SMALLEST, 50, 2)
    setting = FlowSetting(MINISUM + MINIMAX, generator, steps)
    return [experiment(setting, 1, number) for number in range(runs)]


def average(outcomes: Sequence[dict[str, FlowOutcome]], metric: str, scheme: str) -> float:
    """The average ratio to the bound, as in the figures."""
    penalty = next(m.penalty for m in MINISUM + MINIMAX if m.name == metric)
    added = float(penalty in MAY_BE_NOTHING)
    return fmean(outcome[metric].ratio(scheme, added) for outcome in outcomes)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("metric", [m.name for m in MINISUM + MINIMAX])
def test_flowflex_is_better_than_fair_and_fifo_by_every_metric(
    outcomes: Sequence[dict[str, FlowOutcome]], metric: str
) -> None:
    """On average. By the makespan, which is good under all schemes, it may be equally good."""
    mine, fair, fifo = (average(outcomes, metric, s) for s in (FLOWFLEX, "fair", "fifo"))
    if metric == "makespan":
        assert 1 - 1e-9 <= mine <= min(fair, fifo) <= max(fair, fifo) < 1.26
    else:
        assert 1 - 1e-9 <= mine < min(fair, fifo)


@pytest.mark.parametrize("metric", [m.name for m in MINIMAX])
@pytest.mark.slow
def test_maxima_are_within_126_percent_of_the_bound_on_average(
    outcomes: Sequence[dict[str, FlowOutcome]], metric: str
) -> None:
    """In all eight sets of experiments."""
    assert average(outcomes, metric, FLOWFLEX) <= 1.26


def test_fifo_is_particularly_poor_on_average_stretch(
    outcomes: Sequence[dict[str, FlowOutcome]],
) -> None:
    """Of the metrics without deadlines: a small flow after big ones has a high stretch."""
    names = ("mean completion", "weighted completion", "mean stretch")
    ratios = {name: average(outcomes, name, "fifo") for name in names}
    assert max(ratios, key=lambda name: ratios[name]) == "mean stretch"
    assert ratios["mean stretch"] > average(outcomes, "mean stretch", "fair")
