"""The scene that all pictures of a report share: runs, their timelines, axis and colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from slotwise.analysis.timeline import Timeline, timeline_of
from slotwise.report.numbers import TimeUnit, unit_for
from slotwise.report.palette import POOLS, cycle, job_colours
from slotwise.report.reported import ReportedRun, run_names

JOBS_LISTED = 60
"""The maximum number of jobs in pictures with a row per job: those with longest responses."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The data that all pictures share. Times `begin` and `end` are in seconds."""

    runs: tuple[ReportedRun, ...]
    names: tuple[str, ...]
    timelines: tuple[Timeline, ...]
    jobs: tuple[str, ...]
    job_colours: dict[str, str]
    pool_colours: dict[str, str]
    begin: float
    end: float
    unit: TimeUnit

    def at(self, time: float) -> float:
        """A time on the axis, rounded to 1/100,000 of its length, which is invisible."""
        span = (self.end - self.begin) / self.unit.seconds
        return round(time / self.unit.seconds, 5 - floor(log10(span)))

    @property
    def domain(self) -> list[float]:
        """The ends of the common time axis."""
        return [self.at(self.begin), self.at(self.end)]

    @property
    def jobs_listed(self) -> list[str]:
        """The jobs with their own row, in order of arrival."""
        if len(self.jobs) <= JOBS_LISTED:
            return list(self.jobs)
        longest = sorted(self.jobs, key=self._longest_response, reverse=True)
        chosen = set(longest[:JOBS_LISTED])
        return [job for job in self.jobs if job in chosen]

    def _longest_response(self, job: str) -> float:
        lines = [line for line in self.timelines if job in line.jobs]
        return max(line.end_of(job) - line.jobs[job].arrival for line in lines)


def scene_of(runs: Sequence[ReportedRun]) -> Scene:
    """Build the scene of some runs. O(n log n) for n entries of their logs."""
    timelines = tuple(timeline_of(run.log) for run in runs)
    arrivals: dict[str, float] = {}
    pools: dict[str, None] = {}
    for line in timelines:
        for name, span in line.jobs.items():
            arrivals[name] = min(span.arrival, arrivals.get(name, span.arrival))
            pools[span.job.pool] = None
    jobs = sorted(arrivals, key=lambda job: (arrivals[job], job))
    first, end = min(arrivals.values(), default=0.0), max(line.end for line in timelines)
    begin = 0.0 if first <= end / 10 else first
    end = end if end > begin else begin + 1.0
    return Scene(
        runs=tuple(runs),
        names=tuple(run_names(runs)),
        timelines=timelines,
        jobs=tuple(jobs),
        job_colours=job_colours(jobs),
        pool_colours=cycle(sorted(pools), POOLS),
        begin=begin,
        end=end,
        unit=unit_for(end - begin),
    )
