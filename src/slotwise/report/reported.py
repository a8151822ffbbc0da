"""What is reported: runs, each with its log and outcome, under names that tell them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slotwise.analysis.metrics import Outcome
from slotwise.objective.objective import Objective, in_words
from slotwise.record.log import Log

WORK_TOLERANCE = 0.1
"""Live runs of the same jobs whose work differs by more were on a differently busy machine."""

BOUND_TOLERANCE = 1e-8
"""Relative: bounds that differ by no more differ by rounding."""


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run to show: its scheduler's label, the world it ran in, its log and outcome."""

    label: str
    backend: Literal["live", "simulated"]
    log: Log
    outcome: Outcome

    @property
    def penalties(self) -> list[str]:
        """The penalties by which its jobs are measured, that of the objective first."""
        return list(self._aim.penalties(self.outcome.stated.values()))

    @property
    def objective(self) -> str:
        """The objective in words, such as "sum of response"."""
        kind = "greatest" if self._aim.aggregate == "max" else "sum of"
        return f"{kind} {in_words(self.penalties)}"

    @property
    def _aim(self) -> Objective:
        return Objective(**self.log.header.objective)

    @property
    def called(self) -> str:
        """Its label, and that it was interrupted if it was."""
        return f"{self.label} (interrupted)" if self.is_interrupted else self.label

    @property
    def is_interrupted(self) -> bool:
        """Whether its record ends before all jobs were over."""
        return not self.outcome.is_over

    @property
    def is_whole(self) -> bool:
        """Whether all of its jobs are done: only then can it be better than another run."""
        return self.outcome.is_over and all(
            times["completion"] is not None for times in self.outcome.jobs.values()
        )


def run_names(runs: Sequence[ReportedRun]) -> list[str]:
    """A name for each run: as it is called, with its world where the runs come from several."""
    if len({run.backend for run in runs}) > 1:
        return distinct(f"{run.called} ({run.backend})" for run in runs)
    return distinct(run.called for run in runs)


def has_differing_work(runs: Sequence[ReportedRun]) -> bool:
    """Whether live runs measured the work of the same jobs more than WORK_TOLERANCE apart."""
    measured: defaultdict[frozenset[str], list[float]] = defaultdict(list)
    for run in runs:
        if run.backend == "live" and run.is_whole:
            measured[frozenset(run.outcome.jobs)].append(run.outcome.metrics["work_seconds"])
    return any(max(works) > (1 + WORK_TOLERANCE) * min(works) for works in measured.values())


def has_bounds_apart(runs: Sequence[ReportedRun]) -> bool:
    """Whether runs have different bounds, each of the work that was done in that run."""
    bounds = [run.outcome.bound for run in runs]
    return max(bounds) - min(bounds) > BOUND_TOLERANCE * max(map(abs, bounds))


def distinct(names: Iterable[str]) -> list[str]:
    """The same names, numbered where one comes again."""
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
