"""One experiment of FLEX 4.1: the schemes computed by hand, and their order."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.flex.experiment import (
    FlexSetting,
    Metric,
    experiment,
    fair_completion,
    fifo_completion,
    problem_of,
)
from experiments.flex.figures import METRICS
from slotwise.core.objective import Line
from slotwise.policy.malleable import Malleable
from slotwise.workload.generators import DrawnJobs, FlexGenerator


def three_jobs() -> Malleable:
    """A long job that came first and two short ones, on 10 slots; each has a min share of 2."""
    return Malleable.of(10, [60, 10, 8], [2, 2, 2], [10, 5, 4], [Line(1.0)] * 3)


def test_fifo_serves_in_order_of_arrival_without_min_shares() -> None:
    """The long job has all slots until 6; then the others, which come to 9 together, fit."""
    assert fifo_completion(three_jobs()).tolist() == pytest.approx([6, 8, 8])


def test_fair_shares_equally_and_again_after_each_completion() -> None:
    """10/3 slots each until 2.4; then 5 each until 2.8; then all for the long job.

    By 2.4 the short one of 8 is done. The other has 2 left and the long one 52, so at 2.8 the
    long one has 50 left.
    """
    assert fair_completion(three_jobs()).tolist() == pytest.approx([7.8, 2.8, 2.4])


def one_experiment() -> DrawnJobs:
    """The first experiment of seed 0 in the base case."""
    return FlexGenerator().draw(np.random.default_rng([0, 0]))


def test_metrics_are_the_penalties_of_the_jobs() -> None:
    """Costs follow the definitions; weights count only in weighted metrics."""
    drawn, at = one_experiment(), np.full(10, 50.0)

    def costs(penalty: str, weighted: bool) -> np.ndarray:
        return problem_of(drawn, Metric("some", penalty, "sum", weighted)).costs.at(at)

    assert costs("response", False).tolist() == [50.0] * 10
    assert costs("response", True) == pytest.approx(50 * drawn.weight)
    assert costs("stretch", False) == pytest.approx(50 / drawn.work)
    assert costs("tardy", True) == pytest.approx(drawn.weight * (drawn.deadline < 50))
    assert costs("tardiness", False) == pytest.approx(np.maximum(0, 50 - drawn.deadline))
    passed = [
        max([0.0, *heights[instants < 50]])
        for instants, heights in zip(drawn.step_instants, drawn.step_heights, strict=True)
    ]
    assert costs("sla", False) == pytest.approx(passed)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_scheme_is_below_the_bound_and_flex_is_at_least_as_good_as_the_others(
    metric: Metric, pytestconfig: pytest.Config
) -> None:
    """FLEX is no worse than FAIR, and no scheme that keeps min shares is below the bound.

    FIFO need not keep min shares, so the bound does not hold for it.
    """
    setting = FlexSetting(FlexGenerator(jobs=6), metric)
    for run in range(3 if pytestconfig.getoption("--slow") else 1):
        outcome = experiment(setting, seed=7, run=run)
        rounding = 1e-6 * max(1.0, abs(outcome.bound))
        assert outcome.bound <= outcome.flex + rounding
        assert outcome.bound <= outcome.best_order + rounding
        assert outcome.bound <= outcome.fair + rounding
        assert outcome.flex <= outcome.fair + rounding
        assert outcome.flex <= outcome.best_order * 1.05 + rounding


def test_the_same_numbers_give_the_same_experiment() -> None:
    """An experiment depends only on its setting, seed and number."""
    setting = FlexSetting(FlexGenerator(jobs=5))
    assert experiment(setting, 1, 2) == experiment(setting, 1, 2)
    assert experiment(setting, 1, 2) != experiment(setting, 1, 3)
    assert experiment(setting, 1, 2) != experiment(setting, 2, 2)


def test_the_base_case_is_as_the_paper_says(pytestconfig: pytest.Config) -> None:
    """FLEX is nearly optimal, FAIR about half as long again, FIFO worst and most variable."""
    runs = 8 if pytestconfig.getoption("--slow") else 2
    outcomes = [experiment(FlexSetting(), 0, run) for run in range(runs)]
    fifo, fair, flex = (
        np.array([getattr(o, name) / o.best_order for o in outcomes])
        for name in ("fifo", "fair", "flex")
    )
    assert np.max(flex) < 1.001
    assert 1.4 < np.mean(fair) < 1.65
    assert 1.6 < np.mean(fifo) < 2.4
    assert np.std(fifo) > 3 * np.std(fair)
