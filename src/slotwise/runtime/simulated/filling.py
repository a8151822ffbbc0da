"""Max-min fair rates of flows that share links: progressive filling, exactly.

No flow can get more without another one getting less that has no more than it. There is one
such set of rates (Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def rates_of_few(paths: Sequence[Sequence[int]], capacity: Sequence[float]) -> list[float]:
    """The rate of each flow, given the links that it passes; inf where it passes none.

    The link with the least room for each of its flows is filled; they are settled; again with
    what is left. Each pass looks at all links in use: for a few dozen flows.
    """
    users: dict[int, list[int]] = {}
    for flow, path in enumerate(paths):
        for link in path:
            users.setdefault(link, []).append(flow)
    room = {link: capacity[link] for link in users}
    count = {link: len(flows) for link, flows in users.items()}
    rates = [inf] * len(paths)
    while count:
        tight = min(count, key=lambda link: room[link] / count[link])
        level = room[tight] / count[tight]
        for flow in users[tight]:
            if rates[flow] == inf:
                rates[flow] = level
                for link in paths[flow]:
                    room[link] = max(0.0, room[link] - level)
                    count[link] -= 1
                    if not count[link]:
                        del count[link]
    return rates


def rates_of_many(paths: npt.NDArray[np.int64], capacity: Numbers) -> Numbers:
    """The same by numpy, for flows that pass equally many links: `paths` is a table of them.

    A link without a limit, of capacity inf, may fill up a row. In each round all links are
    filled at once whose flows have no less room anywhere else: settling the others can only
    raise the level of a link, so none of these can fill before. O(paths.size) a round; rounds
    are few: as many as links wait for each other in a row.
    """
    room, rates = capacity.copy(), np.full(len(paths), inf)
    left = np.flatnonzero(np.isfinite(capacity[paths]).any(axis=1))
    while left.size:
        at = paths[left]
        count = np.bincount(at.ravel(), minlength=len(room))
        level = room / np.maximum(count, 1)
        levels = level[at]
        lowest = levels.min(axis=1, keepdims=True)
        is_tight = np.ones(len(room), dtype=bool)
        is_tight[at[levels > lowest]] = False  # One of its flows has less room elsewhere.
        done = is_tight[at].any(axis=1)
        given = lowest[done, 0]
        rates[left[done]] = given
        spent = np.bincount(
            at[done].ravel(), np.repeat(given, paths.shape[1]), minlength=len(room)
        )
        room = np.maximum(room - spent, 0.0)
        left = left[~done]
    return rates
