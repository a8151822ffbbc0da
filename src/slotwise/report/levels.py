"""From step functions to levels: few enough to draw."""

from __future__ import annotations

from slotwise.analysis.timeline import Steps
from slotwise.report.scene import Scene

COLUMNS = 240
"""Steps with more changes than this are drawn as means over so many stretches of time."""


def levels(
    scene: Scene, steps: Steps, columns: int = COLUMNS
) -> list[tuple[float, float, float]]:
    """A step function as (start, end, mean) on the axis: exact, or in so many columns.

    Each level has a width: those that the axis cannot show are left out.
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
