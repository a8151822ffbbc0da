"""Cells of attempts and levels of steps: few enough to draw, and true to the log."""

from dataclasses import replace

import pytest

from slotwise.core.decisions import Locality
from slotwise.core.job import PhaseId
from slotwise.insight.reducer import Attempt
from slotwise.insight.report.pictures.comparison import bound_of
from slotwise.insight.report.pictures.jobs import levels
from slotwise.insight.report.pictures.usage import SHADES, Cell, cells_of
from slotwise.insight.report.reported import scene_of
from slotwise.insight.report.text import unit_for
from slotwise.insight.timeline import PlacedAttempt, StepFunction


def placed(start, end, job="j", task=0, ending="done"):
    """An attempt in lane 0 of host h."""
    attempt = Attempt(
        PhaseId(job, "map"), task, 1, "h", Locality.NODE, start, end, end - start, ending
    )
    return PlacedAttempt(attempt, "task", 0)


def test_a_cell_shows_the_job_with_the_most_slots():
    """Equal neighbours are one cell, idle time has none."""
    attempts = [placed(0, 4, "a"), placed(0, 1, "b"), placed(6, 8, "b")]
    cells = cells_of(attempts, [0, 0, 0], [1], begin=0, end=8, columns=4)
    assert cells == [Cell(0, 0, 2, "a", SHADES), Cell(0, 3, 4, "b", SHADES)]


def test_levels_keep_the_area(three_runs):
    """Exact for few changes, means over columns for many; both have the same area."""
    scene = scene_of(three_runs)
    steps = StepFunction.of_changes((0.05 * at, 1.0 if at % 3 else -1.5) for at in range(1, 60))
    area = steps.area(0, steps.times[-1])
    for columns in (240, 40):
        cut = levels(scene, steps, columns)
        assert len(cut) <= 60
        low, high = cut[0][0], cut[-1][1]
        shown = sum((end - start) * mean for start, end, mean in cut)
        assert shown == pytest.approx(steps.area(low, high), abs=0.05)
    assert area > 0


def test_levels_too_short_for_the_axis_are_omitted(three_runs):
    """Steps 1e-9 of the axis apart become one instant, and every level has a width."""
    scene = scene_of(three_runs)
    width = scene.end - scene.begin
    times = [scene.begin + width * at for at in (0.1, 0.1 + 1e-9, 0.1 + 2e-9, 0.2)]
    steps = StepFunction(tuple(times), (1.0, 2.0, 3.0, 0.0))
    assert levels(scene, steps) == [(scene.at(times[0]), scene.at(times[3]), 3.0)]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_resolution_of_the_axis_follows_the_length_of_the_run(three_runs, scale):
    """A thousandth of a run is distinguishable, in runs of microseconds and of weeks."""
    end = 12.0 * scale
    scene = replace(scene_of(three_runs), begin=0.0, end=end, unit=unit_for(end))
    places = [scene.at(end * at / 1000) * scene.unit.seconds / end for at in range(1001)]
    assert places == pytest.approx([at / 1000 for at in range(1001)], abs=1e-5)


def test_the_bound_is_drawn_only_for_metrics_that_it_bounds(make):
    """Always for the value, and for the metric that is the objective or its mean."""
    run = make("fair", ["a", "b"])
    bound = run.outcome.bound
    assert bound_of(run, "value") == bound
    assert bound_of(run, "response_mean") == bound / 2
    assert bound_of(run, "stretch_mean") is None
    assert bound_of(run, "makespan") is None
    run = make("fair", ["a", "b"], objective="makespan")
    assert bound_of(run, "makespan") == run.outcome.bound
    assert bound_of(run, "response_mean") is None
