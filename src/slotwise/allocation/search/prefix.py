"""Prefixes of priority orders: what the jobs placed so far leave to the next one.

In the packing scheme the completion of a job depends only on the jobs before it and on the
min shares of all, so it is known as soon as the job is placed (docs/algorithms/packing.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from slotwise.allocation.malleable import Malleable


class JobNumbers(NamedTuple):
    """The numbers of one job; `end` is when its min share alone would have done it."""

    work: float
    min_share: float
    max_share: float
    end: float


class Placement(NamedTuple):
    """From when a job holds its max share, and when it is done; equal if it never does."""

    full: float
    completion: float


@dataclass(frozen=True, slots=True)
class Prefix:
    """`slack[i]` slots are free from `times[i]` until `times[i + 1]`, the last ones for ever.

    They are free beyond the min shares of the jobs not placed yet. Before `times[0]` none
    are: the jobs placed hold them. From then on each of these is at its max share or done, so
    slack only grows, and at last it is the capacity.
    """

    times: tuple[float, ...]
    slack: tuple[float, ...]

    def earliest(self, job: JobNumbers) -> Placement:
        """How the job fares if it is placed next. O(J)."""
        begin = self.times[0]
        if job.end <= begin:
            return Placement(begin, job.end)
        left = max(0.0, job.work - job.min_share * begin)
        start = begin
        for slack, stop in zip(self.slack, (*self.times[1:], inf), strict=True):
            share = job.min_share + slack
            if share >= job.max_share:
                return Placement(start, start + left / job.max_share)
            if share * (stop - start) >= left:
                end = start + left / share
                return Placement(end, end)
            left -= share * (stop - start)
            start = stop
        raise AssertionError("at last every slot is free")

    def after(self, job: JobNumbers, placement: Placement) -> Prefix:
        """What is left once the job is placed so. O(J)."""
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
            else:  # Its min share is free too, until it would have been anyway.
                change = job.min_share if cut < job.end else 0.0
            slack.append(max(0.0, self.slack[place] + change))
        return Prefix(tuple(cuts), tuple(slack))


def jobs_of(problem: Malleable) -> list[JobNumbers]:
    """The jobs of a problem, as plain numbers."""
    columns = (problem.work, problem.min_share, problem.max_share, problem.ends)
    return [JobNumbers(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def empty_prefix(problem: Malleable) -> Prefix:
    """Nobody is placed: all hold their min shares, until these have done them."""
    jobs = jobs_of(problem)
    times = sorted({0.0, *(job.end for job in jobs if job.end < inf)})
    slack = [
        max(0.0, problem.capacity - sum(job.min_share for job in jobs if job.end > at))
        for at in times
    ]
    return Prefix(tuple(times), tuple(slack))
