"""Adds windows where jobs would exceed the possible work at the current prices."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.choices import Choices
from slotwise.allocation.bounds.interior import Mixture
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import Room, latest_parts
from slotwise.allocation.bounds.windows import Windows
from slotwise.objective.costs import Floats

ADDED_MOST = 8
"""The maximum number of windows that are added at once."""

APART = 0.01
"""Part of the time that all windows cover; new windows end at least this far apart."""

LITTLE = 1e-6
"""Part of all the work that can be done in that time; a smaller excess counts as 0."""

RARE = 1e-5
"""Smaller parts of a mixture are ignored."""


def refined(
    jobs: BoundJobs, capacity: float, windows: Windows, choices: Choices, mixture: Mixture
) -> Windows:
    """The windows, and some more that start at the first arrival.

    If jobs complete in the mixtures that they choose at these prices, more work must be done by
    some instants than is possible. The new windows end at the worst of these.
    """
    instants, excess = _excess(jobs, capacity, choices, mixture)
    first, last = float(jobs.arrival.min()), float(windows.end.max())
    span = last - first
    free = (excess > LITTLE * capacity * span) & (first < instants) & (instants < last)
    for end in windows.end:
        free &= np.abs(instants - end) > APART / 4 * span
    added: list[float] = []
    while free.any() and len(added) < ADDED_MOST:
        added.append(float(instants[np.argmax(np.where(free, excess, -np.inf))]))
        free &= np.abs(instants - added[-1]) > APART * span
    start = np.concatenate([windows.start, np.full(len(added), first)])
    return Windows(start, np.concatenate([windows.end, added]))


def _excess(
    jobs: BoundJobs, capacity: float, choices: Choices, mixture: Mixture
) -> tuple[Floats, Floats]:
    """Instants, and the excess of the work that must be done by each over the possible work."""
    parts = latest_parts(jobs.parts, capacity)
    share = mixture.parts / mixture.parts.sum(axis=1, keepdims=True)
    part, option = np.nonzero(share[parts.job] > RARE)
    end = choices.completion[parts.job[part], option] - parts.tail[part]
    rate = share[parts.job[part], option] * parts.rate[part]
    instants = np.concatenate([end - parts.work[part] / parts.rate[part], end])
    order = np.argsort(instants, kind="stable")
    instants = instants[order]
    running = np.cumsum(np.concatenate([rate, -rate])[order])
    done = np.concatenate([[0.0], np.cumsum(running[:-1] * np.diff(instants))])
    return instants, done - Room.of(jobs, capacity).after(instants - jobs.arrival.min())
