"""The water-line: sharing by weight, within min and max shares (Hadoop Fair Scheduler)."""

from __future__ import annotations

from collections.abc import Sequence


def water_line(
    capacity: float,
    weight: Sequence[float],
    min_share: Sequence[float],
    max_share: Sequence[float],
) -> list[float]:
    """Shares min(max_share, max(r * weight, min_share)) at the level r that fills the capacity.

    They sum to min(capacity, sum of max_share). Min shares that alone exceed the capacity are
    scaled down in proportion (HFS design document, 3.2). Exact up to rounding: the level is
    found among the points where a share leaves its min share or reaches its max share, not by
    bisection. O(J log J) for J shares.
    """
    floors = scale_to(capacity, min_share)
    filled = sum(floors)
    if filled >= capacity:
        return floors
    if sum(max_share) <= capacity:
        return list(map(float, max_share))
    if len(floors) == 1:
        return [float(capacity)]
    # As the level rises, share j grows by weight_j from level floor_j / w_j to most_j / w_j.
    bends = [(low / w, w) for low, w in zip(floors, weight, strict=True)]
    bends += [(high / w, -w) for high, w in zip(max_share, weight, strict=True)]
    bends.sort()
    reached, level, slope = filled, 0.0, 0.0
    for bend, change in bends:
        more = slope * (bend - level)
        if reached + more >= capacity:
            break
        reached, level, slope = reached + more, bend, slope + change
    else:  # Only because of rounding, the max shares do not fill the capacity.
        return list(map(float, max_share))
    # The level lies before this bend. Running sums would give it with rounding errors, since
    # weights may differ by orders of magnitude. So it comes from separate sums over the shares
    # that grow at the level and those that do not.
    grows, stays = 0.0, 0.0
    for w, low, high in zip(weight, floors, max_share, strict=True):
        if high / w <= level:
            stays += high
        elif low / w >= bend:
            stays += low
        else:
            grows += w
    level = min(max(level, (capacity - stays) / grows), bend) if grows else bend
    shares = [
        min(high, max(level * w, low))
        for w, low, high in zip(weight, floors, max_share, strict=True)
    ]
    total = sum(shares)
    if total <= capacity:
        return shares
    # Very different weights cause rounding errors in the level; the shares are cut to fit.
    kept = (capacity - filled) / (total - filled)
    return [low + (share - low) * kept for low, share in zip(floors, shares, strict=True)]


def scale_to(capacity: float, min_share: Sequence[float]) -> list[float]:
    """The min shares, scaled down in proportion if together they exceed the capacity."""
    total = sum(min_share)
    if total <= capacity:
        return list(min_share)
    factor = capacity / total
    return [share * factor for share in min_share]
