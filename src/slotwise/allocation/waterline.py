"""The water-line: sharing by weight, within least and most shares (Hadoop Fair Scheduler)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def water_line(
    capacity: float,
    weight: Sequence[float],
    least: Sequence[float],
    most: Sequence[float],
) -> list[float]:
    """Shares min(most, max(r * weight, least)) with the level r that fills the capacity.

    They sum to min(capacity, sum of most). Where the least shares alone exceed the capacity
    they are scaled down in proportion (HFS design document, 3.2). Exact but for rounding: the
    level is found among the points where a share leaves its least or reaches its most, not by
    bisection. O(J log J) for J shares.
    """
    floors = scale_to(capacity, least)
    filled = sum(floors)
    if filled >= capacity:
        return floors
    if sum(most) <= capacity:
        return list(map(float, most))
    if len(floors) == 1:
        return [float(capacity)]
    # As the level rises, share j grows by weight_j from level floor_j / w_j to most_j / w_j.
    w, low, high = (np.asarray(values, dtype=float) for values in (weight, floors, most))
    bends = np.concatenate((low / w, high / w))
    order = np.argsort(bends, kind="stable")
    levels = bends[order]
    # Where nothing grows, rounding could leave a slope just below 0.
    slopes = np.maximum(np.cumsum(np.concatenate((w, -w))[order]), 0.0)
    # What is shared out when the level reaches each bend, but for the first.
    reached = filled + np.cumsum(slopes[:-1] * np.diff(levels))
    last = int(np.searchsorted(reached, capacity))  # The level lies behind this bend.
    if last == len(reached):  # By rounding alone the most shares do not fill the capacity.
        return list(map(float, most))
    before = filled if last == 0 else reached[last - 1]
    level = min(levels[last] + (capacity - before) / slopes[last], levels[last + 1])
    above = np.clip(level * w, low, high) - low
    # Weights of very different sizes leave a level that is rounded; its shares are cut to fit.
    fitting = low + above * min(1.0, (capacity - filled) / above.sum())
    shares: list[float] = fitting.tolist()
    return shares


def scale_to(capacity: float, least: Sequence[float]) -> list[float]:
    """Least shares as they are, or scaled down in proportion when they exceed the capacity."""
    total = sum(least)
    if total <= capacity:
        return list(least)
    factor = capacity / total
    return [share * factor for share in least]
