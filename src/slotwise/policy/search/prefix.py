"""Prefixes of priority orders: the slots that the placed jobs leave for the next one.

In the packing scheme the completion of a job depends only on the jobs before it and on the min
shares of all. So it is fixed as soon as the job is placed (docs/algorithms/packing.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from slotwise.core.objective import Hinge, Line, Steps
from slotwise.policy.malleable import Malleable


class JobNumbers(NamedTuple):
    """The numbers of one job; `end` is its completion if it only had its min share."""

    work: float
    min_share: float
    max_share: float
    end: float


class Placed(NamedTuple):
    """When a job reaches its max share, and its completion; equal if it never reaches it."""

    full: float
    completion: float


@dataclass(frozen=True, slots=True)
class Prefix:
    """`slack[i]` slots are free from `times[i]` until `times[i + 1]`, the last ones forever.

    Slack is what remains beyond the min shares of the jobs not placed yet. Before `times[0]`
    the placed jobs hold all of it. From then on each of these is at its max share or done, so
    slack only grows, finally to the capacity.
    """

    times: tuple[float, ...]
    slack: tuple[float, ...]

    def earliest(self, job: JobNumbers) -> Placed:
        """The placement of the job if it comes next. O(J)."""
        begin = self.times[0]
        if job.end <= begin:
            return Placed(begin, job.end)
        left = max(0.0, job.work - job.min_share * begin)
        start = begin
        for slack, stop in zip(self.slack, (*self.times[1:], inf), strict=True):
            share = job.min_share + slack
            if share >= job.max_share:
                return Placed(start, start + left / job.max_share)
            if share * (stop - start) >= left:
                end = start + left / share
                return Placed(end, end)
            left -= share * (stop - start)
            start = stop
        raise AssertionError("at last every slot is free")

    def after(self, job: JobNumbers, placement: Placed) -> Prefix:
        """The prefix with this job placed. O(J)."""
        full, completion = placement
        if completion <= self.times[0]:
            return self
        cuts = sorted({full, completion, *(at for at in self.times if at > full)})
        slack, place = [], 0
        for cut in cuts:
            while place + 1 < len(self.times) and self.times[place + 1] <= cut:
                place += 1
            if cut < completion:
                change = job.min_share - job.max_share
            else:  # Its min share is also free; after `job.end` slack already includes it.
                change = job.min_share if cut < job.end else 0.0
            slack.append(max(0.0, self.slack[place] + change))
        return Prefix(tuple(cuts), tuple(slack))


def jobs_of(problem: Malleable) -> list[JobNumbers]:
    """The jobs of a problem, as plain numbers."""
    columns = (problem.work, problem.min_share, problem.max_share, problem.ends)
    return [JobNumbers(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def empty_prefix(problem: Malleable) -> Prefix:
    """The prefix without jobs: all hold their min shares until these complete them."""
    jobs = jobs_of(problem)
    times = sorted({0.0, *(job.end for job in jobs if job.end < inf)})
    slack = [
        max(0.0, problem.capacity - sum(job.min_share for job in jobs if job.end > at))
        for at in times
    ]
    return Prefix(tuple(times), tuple(slack))


def twins(problem: Malleable, order: Sequence[int]) -> dict[int, int]:
    """For each job with an equal one before it in the order, the last such job."""
    seen: dict[object, int] = {}
    found = {}
    jobs, costs = jobs_of(problem), tuple(problem.costs)
    for j in order:
        if isinstance(costs[j], Line | Hinge | Steps):
            key = (jobs[j], costs[j])
            if key in seen:
                found[j] = seen[key]
            seen[key] = j
    return found
