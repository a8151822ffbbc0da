"""The water-line: sharing by weight, within least and most shares (Hadoop Fair Scheduler)."""

from __future__ import annotations

from collections.abc import Sequence


def water_line(
    capacity: float,
    weight: Sequence[float],
    min_share: Sequence[float],
    max_share: Sequence[float],
) -> list[float]:
    """Shares min(most, max(r * weight, least)) with the level r that fills the capacity.

    They sum to min(capacity, sum of most). Where the least shares alone exceed the capacity
    they are scaled down in proportion (HFS design document, 3.2). Exact but for rounding: the
    level is found among the points where a share leaves its least or reaches its most, not by
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
    else:  # By rounding alone the most shares do not fill the capacity.
        return list(map(float, max_share))
    # The level lies before this bend. Running sums would give it, but rounded: weights may be
    # far apart. So it is found from sums over those who grow there and those who do not.
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
    # Weights of very different sizes leave a level that is rounded; its shares are cut to fit.
    kept = (capacity - filled) / (total - filled)
    return [low + (share - low) * kept for low, share in zip(floors, shares, strict=True)]


def scale_to(capacity: float, min_share: Sequence[float]) -> list[float]:
    """Least shares as they are, or scaled down in proportion when they exceed the capacity."""
    total = sum(min_share)
    if total <= capacity:
        return list(min_share)
    factor = capacity / total
    return [share * factor for share in min_share]
