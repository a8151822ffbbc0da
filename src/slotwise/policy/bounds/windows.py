"""Windows of time, and the work of each job that must be done in them, given its completion.

Proofs: docs/algorithms/bounds.md, sections 4 and 7 (d).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slotwise.core.costs import Floats, Ints
from slotwise.policy.bounds.jobs import BoundJobs, Parts, Room, latest_parts

MAX_NUMBERS = 500_000
"""The limit of jobs times completions times windows; the number of windows follows from it."""

MIN_WINDOWS = 4
"""With room for fewer windows no bound is computed."""

MAX_WINDOWS = 32
"""More windows hardly improve the prices."""

MAX_BEGINS = 6
"""The maximum number of arrivals at which windows begin."""

SHORTEST = 1e-6
"""Part of the time in which work is done; the needs of shorter windows are lost in rounding."""

ALIKE = 0.1
"""Relative; heights that differ by less count as equal."""

MAX_ADDED = 8
"""The maximum number of windows that are added at once."""

APART = 0.01
"""Part of the time that all windows cover; new windows end at least this far apart."""

LITTLE = 1e-6
"""Part of all the work that can be done in that time; a smaller excess counts as 0."""

RARE = 1e-5
"""Smaller parts of a mixture are ignored."""


@dataclass(frozen=True, slots=True)
class Windows:
    """K intervals of time, from `start` to `end`, in seconds."""

    start: Floats
    end: Floats

    def __len__(self) -> int:
        return len(self.start)

    @property
    def lengths(self) -> Floats:
        """The length of each window, seconds."""
        return self.end - self.start

    def left(self, jobs: BoundJobs) -> Floats:
        """J x K: the minimum remaining work of each job when a window begins."""
        before = np.maximum(self.start - jobs.arrival[:, None], 0.0)
        return np.maximum(jobs.work[:, None] - jobs.rate[:, None] * before, 0.0)

    def kept(self, jobs: BoundJobs) -> Floats:
        """J x K: the work in a window that the min share of an incomplete job implies."""
        begun = np.maximum(self.start, jobs.arrival[:, None])
        kept = jobs.min_share[:, None] * np.maximum(self.end - begun, 0.0)
        return np.minimum(kept, self.left(jobs))

    def needed(self, jobs: BoundJobs, completion: Floats) -> Floats:
        """J x N x K: work that must be done in each window, for N completions of each job."""
        late = np.maximum(completion[:, :, None] - self.end, 0.0)
        left, kept = self.left(jobs)[:, None, :], self.kept(jobs)[:, None, :]
        needed = np.maximum(left - jobs.rate[:, None, None] * late, kept)
        return np.where(late > 0, needed, left)

    def turns(self, jobs: BoundJobs) -> Floats:
        """J x K: from this completion on, the need of a window for a job does not fall."""
        return self.end + (self.left(jobs) - self.kept(jobs)) / jobs.rate[:, None]


def first_windows(jobs: BoundJobs, capacity: float) -> Windows | None:
    """The initial windows; None if there are too many jobs, or no work."""
    count_max = _windows_most(len(jobs), jobs.costs.kinks_most)
    if count_max < MIN_WINDOWS or not jobs.work.sum() > 0:
        return None
    kinks = np.array([kink for cost in jobs.costs for kink in cost.kinks])
    return windows_of(jobs, capacity, kinks, count_max)


def refined(
    jobs: BoundJobs, capacity: float, windows: Windows, completion: Floats, mixed: Floats
) -> Windows:
    """The windows, and some more that start at the first arrival.

    completion, mixed  J x N: some completions of each job, and the part of each that it mixes

    If jobs complete in these mixtures, more work must be done by some instants than is
    possible. The new windows end at the worst of these.
    """
    instants, excess = _excess(jobs, capacity, completion, mixed)
    first, last = float(jobs.arrival.min()), float(windows.end.max())
    span = last - first
    free = (excess > LITTLE * capacity * span) & (first < instants) & (instants < last)
    for end in windows.end:
        free &= np.abs(instants - end) > APART / 4 * span
    added: list[float] = []
    while free.any() and len(added) < MAX_ADDED:
        added.append(float(instants[np.argmax(np.where(free, excess, -np.inf))]))
        free &= np.abs(instants - added[-1]) > APART * span
    start = np.concatenate([windows.start, np.full(len(added), first)])
    return Windows(start, np.concatenate([windows.end, added]))


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


def windows_of(jobs: BoundJobs, capacity: float, kinks: Floats, count_max: int) -> Windows:
    """At most `count_max` windows, from arrivals to instants before all work can be done."""
    starts = np.unique(jobs.arrival)
    if len(starts) > 1:
        count = min(len(starts), MAX_BEGINS, max(count_max // 4, 1))
        starts = starts[np.linspace(0, len(starts) - 1, count + 1).astype(int)[:-1]]
    share = count_max // len(starts)
    begins, ends = [], []
    for start in starts:
        before = np.maximum(start - jobs.arrival, 0.0)
        left = np.maximum(jobs.work - jobs.rate * before, 0.0).sum()
        until = float(left / capacity)
        if start == starts[0] and not jobs.parts.are_whole:
            until = Room.of(jobs, capacity).full
        chosen = _instants(until, kinks - start, jobs.height, share)
        begins.append(np.full(len(chosen), start))
        ends.append(start + chosen)
    return Windows(np.concatenate(begins), np.concatenate(ends))


def _windows_most(jobs: int, kinks: int) -> int:
    """The largest K such that J (K + 3 + kinks) K is at most `MAX_NUMBERS`."""
    other = (3 + kinks) / 2
    return int(min(MAX_WINDOWS, np.sqrt(MAX_NUMBERS / jobs + other**2) - other))


def _instants(until: float, kinks: Floats, heights: Floats, count_max: int) -> Floats:
    """Instants evenly spread before `until`, and as many kinks of costs as fit."""
    if until <= 0:
        return np.zeros(0)
    inside = np.unique(kinks[(kinks > SHORTEST * until) & (kinks < until)])
    room = count_max // 2
    if len(inside) > room:
        inside = inside[np.linspace(0, len(inside) - 1, room).astype(int)]
    step = _step(until / (count_max - len(inside) + 1), heights)
    even = np.arange(step, until - step / 2, step)
    return np.unique(np.concatenate([even, inside]))


def _step(step: float, heights: Floats) -> float:
    """The distance of instants, about `step` seconds; it divides the height of most jobs.

    The need of a window for a job begins to fall when the job completes at the end of the
    window and stops falling one height later. Prices are better if another window ends there.
    """
    height = float(np.median(heights))
    alike = np.abs(heights - height) <= ALIKE * height
    if height < 2 * step or alike.mean() < 0.5:
        return step
    return height / int(height / step)


def _excess(
    jobs: BoundJobs, capacity: float, completion: Floats, mixed: Floats
) -> tuple[Floats, Floats]:
    """Instants, and the excess of the work that must be done by each over the possible work."""
    parts = latest_parts(jobs.parts, capacity)
    share = mixed / mixed.sum(axis=1, keepdims=True)
    part, option = np.nonzero(share[parts.job] > RARE)
    end = completion[parts.job[part], option] - parts.tail[part]
    rate = share[parts.job[part], option] * parts.rate[part]
    instants = np.concatenate([end - parts.work[part] / parts.rate[part], end])
    order = np.argsort(instants, kind="stable")
    instants = instants[order]
    running = np.cumsum(np.concatenate([rate, -rate])[order])
    done = np.concatenate([[0.0], np.cumsum(running[:-1] * np.diff(instants))])
    return instants, done - Room.of(jobs, capacity).after(instants - jobs.arrival.min())


def _falls(
    jobs: BoundJobs, parts: Parts, windows: Windows, chosen: Ints
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    begin = jobs.arrival[parts.job] + parts.head
    before = np.maximum(windows.start[chosen] - begin[:, None], 0.0)
    span = np.maximum(parts.work / parts.rate - before.T, 0.0).T
    part, place = np.nonzero(span > 0)
    since = windows.end[chosen[place]] + parts.tail[part]
    return parts.job[part], chosen[place], parts.rate[part], since, span[part, place]
