"""The runs of a report, each with its log and outcome, under distinct names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slotwise.analysis.metrics import Outcome
from slotwise.objective.objective import Objective, in_words
from slotwise.record.log import Log

WORK_TOLERANCE = 0.1
"""If the work of live runs of the same jobs differs by more, the machine load differed."""

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
        return list(self._aim.penalties(self.outcome.stated.values()))

    @property
    def objective(self) -> str:
        """The objective in words, such as "sum of response"."""
        kind = "max" if self._aim.aggregate == "max" else "sum of"
        return f"{kind} {in_words(self.penalties)}"

    @property
    def _aim(self) -> Objective:
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


def has_differing_work(runs: Sequence[ReportedRun]) -> bool:
    """Whether the work of the same jobs in live runs differs by more than WORK_TOLERANCE."""
    measured: defaultdict[frozenset[str], list[float]] = defaultdict(list)
    for run in runs:
        if run.backend == "live" and run.is_whole:
            measured[frozenset(run.outcome.jobs)].append(run.outcome.metrics["work_seconds"])
    return any(max(works) > (1 + WORK_TOLERANCE) * min(works) for works in measured.values())


def has_bounds_apart(runs: Sequence[ReportedRun]) -> bool:
    """Whether the lower bounds of the runs differ, each being for the work of its own run."""
    bounds = [run.outcome.bound for run in runs]
    return max(bounds) - min(bounds) > BOUND_TOLERANCE * max(map(abs, bounds))


def distinct(names: Iterable[str]) -> list[str]:
    """The names, with a number added to repeated ones."""
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
