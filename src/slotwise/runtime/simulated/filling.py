"""Max-min fair rates of flows that share links: exact progressive filling.

No flow can get more without reducing the rate of a flow that has no more than it. These rates
are unique (Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def rates_of_few(paths: Sequence[Sequence[int]], capacity: Sequence[float]) -> list[float]:
    """The rate of each flow, given the links that it passes; inf if it passes none.

    Each pass fills the link with the least capacity per flow, fixes the rates of its flows, and
    subtracts them. A pass scans all links in use, so this is for a few dozen flows.
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
    """Like `rates_of_few`, with numpy; `paths` has a row of links for each flow.

    Rows may be padded with a link of capacity inf. Each round fills all links at once whose
    flows have no smaller level on another link: fixing other flows can only raise the level of
    a link, so none of these would fill earlier. O(paths.size) for each round. The number of
    rounds is the length of the longest chain of dependent links, which is small.
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
        is_tight[at[levels > lowest]] = False  # One of its flows has a smaller level elsewhere.
        done = is_tight[at].any(axis=1)
        given = lowest[done, 0]
        rates[left[done]] = given
        spent = np.bincount(
            at[done].ravel(), np.repeat(given, paths.shape[1]), minlength=len(room)
        )
        room = np.maximum(room - spent, 0.0)
        left = left[~done]
    return rates
