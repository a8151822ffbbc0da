"""Reduce step functions to a number of levels that can be drawn."""

from __future__ import annotations

from slotwise.analysis.timeline import StepFunction
from slotwise.report.scene import Scene

COLUMNS = 240
"""Step functions with more changes are drawn as means over this number of intervals."""


def levels(
    scene: Scene, steps: StepFunction, columns: int = COLUMNS
) -> list[tuple[float, float, float]]:
    """A step function as (start, end, mean) on the axis: exact, or in `columns` intervals.

    Levels too narrow for the resolution of the axis are left out.
    """
    edges = list(steps.times)
    if len(edges) > columns:
        width = (scene.end - scene.begin) / columns
        grid = [scene.begin + column * width for column in range(columns + 1)]
        edges = [
            edge for edge in grid if steps.times[0] - width < edge < steps.times[-1] + width
        ]
    if len(edges) < 2:
        return []
    means = [round(mean, 2) for mean in steps.means(edges)]
    ends = [scene.at(edge) for edge in edges]
    return [
        (start, end, mean)
        for start, end, mean in zip(ends, ends[1:], means, strict=False)
        if start < end
    ]
