"""The water-line: sharing by weight, within min and max shares (Hadoop Fair Scheduler)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotwise.core.costs import Floats, Ints


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


# Many water-lines at once, with numpy arrays: how each pool divides its slots.


def water_lines(
    slots: Floats, group: Ints, weight: Floats, min_share: Floats, max_share: Floats
) -> Floats:
    """The shares by `water_line` within each group, for G groups and J shares in all.

    slots  of each group, >= 0, shape (G,)
    group  of each share: an index into slots, shape (J,), as for the other arguments

    The bends of all groups are sorted together, by group and then by level, and running sums
    restart with each group. O(J log J), independent of the number of groups.
    """
    max_share = np.minimum(max_share, slots[group])
    floors = scaled_to(slots, group, min_share)
    total = np.bincount(group, floors, len(slots))
    in_between = (total < slots) & (np.bincount(group, max_share, len(slots)) > slots)
    shares = np.where((total < slots)[group], max_share, floors)
    chosen = in_between[group]
    if chosen.any():
        # Only these groups, renumbered.
        number = np.cumsum(in_between) - 1
        parts = (values[chosen] for values in (weight, floors, max_share))
        shares[chosen] = _filled(slots[in_between], number[group[chosen]], *parts)
    return shares


def scaled_to(slots: Floats, group: Ints, min_share: Floats) -> Floats:
    """Min shares as they are, or scaled down in proportion where they exceed the slots."""
    total = np.bincount(group, min_share, len(slots))
    kept = np.ones(len(slots))
    np.divide(slots, total, out=kept, where=total > slots)
    return min_share * kept[group]


def in_orders(slots: Floats, group: Ints, min_share: Floats, max_share: Floats) -> Floats:
    """Min shares for all, scaled down if necessary; the rest of each group goes in order.

    `group` must not decrease. O(J).
    """
    floors = scaled_to(slots, group, min_share)
    left = np.maximum(slots - np.bincount(group, floors, len(slots)), 0.0)[group]
    room = np.minimum(max_share - floors, left)
    before = _sums_along(room, _begins(group)) - room
    return floors + np.clip(left - before, 0.0, room)


def _filled(slots: Floats, group: Ints, weight: Floats, low: Floats, high: Floats) -> Floats:
    """The shares in groups whose slots lie between the sums of their low and high shares."""
    count = len(slots)
    # Running sums cover all groups, so their weights are normalized to similar size.
    w = weight / np.bincount(group, weight, count)[group]
    # As the level rises, share j grows by w_j from level low_j / w_j to high_j / w_j.
    rises = np.flatnonzero(low > 0)
    bends = np.concatenate((low[rises] / w[rises], high / w))
    change = np.concatenate((w[rises], -w))
    of_bend, levels, change = _sorted(np.concatenate((group[rises], group)), bends, change)
    begins = _begins(of_bend)
    # Those without a low share grow from level 0 on.
    at_zero = np.bincount(group, np.where(low > 0, 0.0, w), count)
    behind = np.maximum(at_zero[of_bend] + _sums_along(change, begins), 0.0)
    before = np.concatenate(([0.0], behind[:-1]))
    step = np.diff(levels, prepend=0.0)
    before[begins], step[begins] = at_zero, levels[begins]
    # The slots shared out above the low shares when the level reaches each bend.
    reached = _sums_along(before * step, begins)
    wanted = slots - np.bincount(group, low, count)
    passed = np.bincount(of_bend, reached < wanted[of_bend], count).astype(np.intp)
    ends = np.append(begins[1:], len(levels))
    last = np.minimum(begins + passed, ends - 1)  # The level lies at this bend or before it.
    first = np.where(passed > 0, levels[np.maximum(begins + passed - 1, 0)], 0.0)
    level = _level_between(slots, group, w, low, high, first, levels[last])
    above = np.clip(level[group] * w, low, high) - low
    # Very different weights cause rounding errors in the level; the shares are cut to fit.
    kept, total = np.ones(count), np.bincount(group, above, count)
    np.divide(wanted, total, out=kept, where=total > wanted)
    return low + above * kept[group]


def _sorted(of_bend: Ints, bends: Floats, change: Floats) -> tuple[Ints, Floats, Floats]:
    """Bends by group and then by level, equal ones merged, and the changes of slope there."""
    order = np.argsort(bends)
    # Small integers are sorted faster.
    small = of_bend.astype(np.min_scalar_type(of_bend.max()))
    order = order[np.argsort(small[order], kind="stable")]
    of_bend, levels = of_bend[order], bends[order]
    is_new = (np.diff(of_bend, prepend=-1) != 0) | (np.diff(levels, prepend=-1.0) != 0)
    # The order of equal bends depends on the machine; their sum must not depend on it.
    number = np.empty(len(order), dtype=np.intp)
    number[order] = np.cumsum(is_new) - 1
    return of_bend[is_new], levels[is_new], np.bincount(number, change).astype(float)


def _level_between(
    slots: Floats,
    group: Ints,
    w: Floats,
    low: Floats,
    high: Floats,
    first: Floats,
    last: Floats,
) -> Floats:
    """The level of each group, given that no share bends between `first` and `last`.

    It uses sums of the group only, so it is as exact as for a single group.
    """
    count = len(slots)
    is_low, is_high = low / w >= last[group], high / w <= first[group]
    stays = np.where(is_high, high, np.where(is_low, low, 0.0))
    grows = np.bincount(group, np.where(is_low | is_high, 0.0, w), count)
    level = last.copy()
    np.divide(slots - np.bincount(group, stays, count), grows, out=level, where=grows > 0)
    return np.clip(level, first, last)


def _begins(group: Ints) -> Ints:
    """The index where each group begins, in an array of non-decreasing groups."""
    begins: Ints = np.flatnonzero(np.diff(group, prepend=-1))
    return begins


def _sums_along(values: Floats, begins: Ints) -> Floats:
    """Running sums that restart at each of `begins`."""
    sums = np.cumsum(values)
    lengths = np.diff(begins, append=len(values))
    return sums - np.repeat(sums[begins] - values[begins], lengths)
