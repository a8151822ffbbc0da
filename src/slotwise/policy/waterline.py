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
    scaled down in proportion (HFS design document, 3.2). Exact up to rounding.

    The method of G. Bitran and A. Hax (Disaggregation and resource allocation using convex
    knapsack problems with bounded variables, 1981): at the level of the undecided shares alone,
    either those above their max shares or those below their min shares are decided, whichever
    are further off in all. O(J) for J shares and each of usually a few rounds.
    """
    floors = scale_to(capacity, min_share)
    if sum(floors) >= capacity:
        return floors
    if sum(max_share) <= capacity:
        return list(map(float, max_share))
    level = capacity / sum(weight)
    if level * max(weight) < min(max_share) and level * min(weight) > max(floors):
        shares = [level * w for w in weight]  # The level decides all, as where many wait.
    else:
        shares = _within_limits(capacity, weight, floors, max_share)
    total, filled = sum(shares), sum(floors)
    if total <= capacity:
        return shares
    # Very different weights cause rounding errors in the level; the shares are cut to fit.
    kept = (capacity - filled) / (total - filled)
    return [low + (share - low) * kept for low, share in zip(floors, shares, strict=True)]


def _within_limits(
    capacity: float,
    weight: Sequence[float],
    floors: Sequence[float],
    max_share: Sequence[float],
) -> list[float]:
    """The shares at the level that fills the capacity, where some are at their limits."""
    left, level = float(capacity), 0.0
    undecided = list(zip(weight, floors, max_share, strict=True))
    while undecided:
        level = left / sum([w for w, _, _ in undecided])
        above = [(level * w, high) for w, _, high in undecided if level * w >= high]
        below = [(level * w, low) for w, low, _ in undecided if level * w <= low]
        over = sum([share - high for share, high in above])
        under = sum([low - share for share, low in below])
        if over > under:
            left -= sum([high for _, high in above])
            undecided = [one for one in undecided if level * one[0] < one[2]]
        elif under > over:
            left -= sum([low for _, low in below])
            undecided = [one for one in undecided if level * one[0] > one[1]]
        else:
            break
    return [
        high if (share := level * w) >= high else share if share >= low else min(high, low)
        for w, low, high in zip(weight, floors, max_share, strict=True)
    ]


def scale_to(capacity: float, min_share: Sequence[float]) -> list[float]:
    """The min shares, scaled down in proportion if together they exceed the capacity."""
    total = sum(min_share)
    if total <= capacity:
        return list(min_share)
    factor = capacity / total
    return [share * factor for share in min_share]
