"""The runs of a report, each with its log and outcome, under distinct names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Literal

from slotwise.core.log import Log
from slotwise.core.objective import Objective, in_words
from slotwise.insight.metrics import Outcome
from slotwise.insight.report.text import POOLS, TimeUnit, cycle, job_colours, unit_for
from slotwise.insight.timeline import Timeline, timeline_of

WORK_TOLERANCE = 0.1
"""Relative; if the work of live runs of the same jobs differs by more, the load differed."""

BOUND_TOLERANCE = 1e-8
"""Relative; smaller differences of lower bounds are rounding errors."""


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run to show: the label of its scheduler, its backend, its log and its outcome."""

    label: str
    backend: Literal["live", "simulated"]
    log: Log
    outcome: Outcome

    @property
    def penalties(self) -> list[str]:
        """The penalties of its jobs, that of the objective first."""
        return list(self._objective.penalties(self.outcome.stated.values()))

    @property
    def objective(self) -> str:
        """The objective in words, such as "sum of response"."""
        kind = "max" if self._objective.aggregate == "max" else "sum of"
        return f"{kind} {in_words(self.penalties)}"

    @property
    def _objective(self) -> Objective:
        return Objective(**self.log.header.objective)

    @property
    def called(self) -> str:
        """Its label, with "(interrupted)" if it was interrupted."""
        return f"{self.label} (interrupted)" if self.is_interrupted else self.label

    @property
    def conditions(self) -> str:
        """Its backend, and whether the work of tasks was hidden from the scheduler."""
        is_hidden = self.log.header.parameters.get("hide_work")
        return f"{self.backend} with hidden work" if is_hidden else self.backend

    @property
    def is_interrupted(self) -> bool:
        """Whether its record ends before all jobs had ended."""
        return not self.outcome.is_over

    @property
    def is_whole(self) -> bool:
        """Whether all of its jobs are done; only such a run can be the best."""
        return self.outcome.is_over and all(
            times["completion"] is not None for times in self.outcome.jobs.values()
        )


def run_names(runs: Sequence[ReportedRun]) -> list[str]:
    """A distinct name for each run, with the conditions if the runs have several."""
    if len({run.conditions for run in runs}) > 1:
        return distinct(f"{run.called} ({run.conditions})" for run in runs)
    return distinct(run.called for run in runs)


def conditions_of(runs: Sequence[ReportedRun]) -> str:
    """The conditions of all runs in words, such as "live and simulated"."""
    return " and ".join(dict.fromkeys(run.conditions for run in runs))


def among(runs: Sequence[ReportedRun]) -> str:
    """The runs of which one is the best, in words after "best"; empty for all runs."""
    return " of live and of simulated runs" if len({run.backend for run in runs}) > 1 else ""


def has_differing_work(runs: Sequence[ReportedRun]) -> bool:
    """Whether the work of the same jobs in live runs differs by more than WORK_TOLERANCE."""
    measured: defaultdict[frozenset[str], list[float]] = defaultdict(list)
    for run in runs:
        if run.backend == "live" and run.is_whole:
            measured[frozenset(run.outcome.jobs)].append(run.outcome.metrics["work_seconds"])
    return any(max(works) > (1 + WORK_TOLERANCE) * min(works) for works in measured.values())


def has_differing_bounds(runs: Sequence[ReportedRun]) -> bool:
    """Whether the lower bounds of the runs differ. Each is for the work of its own run."""
    bounds = [run.outcome.bound for run in runs]
    return max(bounds) - min(bounds) > BOUND_TOLERANCE * max(map(abs, bounds))


def distinct(names: Iterable[str]) -> list[str]:
    """Return the names, with numbers added to repeated ones."""
    taken: set[str] = set()
    result = []
    for name in names:
        chosen, number = name, 1
        while chosen in taken:
            number += 1
            chosen = f"{name} #{number}"
        taken.add(chosen)
        result.append(chosen)
    return result


# The scene that all pictures of a report share.

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


def empty_scene(jobs: Sequence[str], end: float) -> Scene:
    """A scene of jobs without runs, for plans."""
    return Scene((), (), (), tuple(jobs), job_colours(jobs), {}, 0.0, end, unit_for(end))
