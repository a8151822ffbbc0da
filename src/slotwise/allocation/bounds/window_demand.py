"""The work of a job of several parts that must be done in windows of time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.parts import Ints, Parts
from slotwise.allocation.bounds.profiles import latest_parts
from slotwise.allocation.bounds.windows import Windows
from slotwise.objective.costs import Floats


@dataclass(frozen=True, slots=True)
class Falls:
    """The work of jobs that must be done in windows, as a sum of M falls in parallel arrays.

    A window needs rate * span of a job that completes at `since` or earlier, nothing if it
    completes at since + span or later, and a linear interpolation in between. `span` is stored
    because the difference of two late instants has fewer digits.
    """

    job: Ints
    window: Ints
    rate: Floats
    since: Floats
    span: Floats

    @classmethod
    def of(cls, jobs: BoundJobs, windows: Windows, capacity: float) -> Falls:
        """One fall for each part of a job and each window, except where nothing is needed.

        In windows from the first arrival on, the parts of a job are as late as possible for the
        job alone. Windows that begin later need what cannot be done before, part by part.
        """
        first = jobs.arrival.min()
        early = np.flatnonzero(windows.start == first)
        later = np.flatnonzero(windows.start > first)
        groups = [
            _falls(jobs, latest_parts(jobs.parts, capacity), windows, early),
            _falls(jobs, jobs.parts, windows, later),
        ]
        return cls(*(np.concatenate(columns) for columns in zip(*groups, strict=True)))

    def per(self, capacity: float) -> Falls:
        """The same in seconds of the whole capacity."""
        return replace(self, rate=self.rate / capacity)

    @property
    def until(self) -> Floats:
        """The completion from which on nothing is needed, seconds."""
        return self.since + self.span

    def at(self, completion: Floats, count: int) -> Floats:
        """J x N x K: the needs of `count` windows, for N completions of each job."""
        needs, until = np.zeros((*completion.shape, count)), self.until
        for n, ends in enumerate(completion.T):
            left = np.clip(until - ends[self.job], 0.0, self.span)
            place = self.job * count + self.window
            needs[:, n] = np.bincount(
                place, self.rate * left, minlength=len(completion) * count
            ).reshape(-1, count)
        return needs


def _falls(
    jobs: BoundJobs, parts: Parts, windows: Windows, chosen: Ints
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    begin = jobs.arrival[parts.job] + parts.head
    before = np.maximum(windows.start[chosen] - begin[:, None], 0.0)
    span = np.maximum(parts.work / parts.rate - before.T, 0.0).T
    part, place = np.nonzero(span > 0)
    since = windows.end[chosen[place]] + parts.tail[part]
    return parts.job[part], chosen[place], parts.rate[part], since, span[part, place]
