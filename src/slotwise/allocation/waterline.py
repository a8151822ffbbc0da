"""The water-line: sharing by weight, within least and most shares (Hadoop Fair Scheduler)."""

from __future__ import annotations

from collections.abc import Sequence


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
    if sum(floors) >= capacity:
        return floors
    if sum(most) <= capacity:
        return list(map(float, most))
    # As the level rises, share j grows by weight_j from level floor_j / w_j to most_j / w_j.
    bends: list[tuple[float, float]] = []
    for w, low, high in zip(weight, floors, most, strict=True):
        bends.append((low / w, w))
        bends.append((high / w, -w))
    bends.sort()
    level, filled, slope = 0.0, sum(floors), 0.0
    for bend, change in bends:
        reached = filled + slope * (bend - level)
        if reached >= capacity:
            level = min(bend, level + (capacity - filled) / slope)
            break
        level, filled, slope = bend, reached, slope + change
    else:  # By rounding alone the most shares do not quite fill the capacity.
        return list(map(float, most))
    return [
        min(high, max(level * w, low))
        for w, low, high in zip(weight, floors, most, strict=True)
    ]


def scale_to(capacity: float, least: Sequence[float]) -> list[float]:
    """Least shares as they are, or scaled down in proportion when they exceed the capacity."""
    total = sum(least)
    factor = capacity / total if total > capacity else 1.0
    return [share * factor for share in least]
