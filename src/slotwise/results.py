"""Results of plans, simulations and runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from slotwise.core.errors import SlotwiseError
from slotwise.core.job import PhaseId
from slotwise.core.log import Log
from slotwise.core.objective import Objective, gap_of, in_words
from slotwise.core.schedule import Schedule
from slotwise.insight.memory_use import MemoryUse
from slotwise.insight.metrics import MetricsCollector, Outcome
from slotwise.insight.report.page import write_report
from slotwise.insight.report.reported import ReportedRun

EXACT = 1e-8
"""A relative gap up to this is rounding, and the value is proven optimal. Lower bounds are
reduced by about 1e-9, since a deadline missed by no more than that counts as met."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A malleable schedule, its value and its lower bound.

    No schedule that keeps the min shares has a lower value than `bound`; under FIFO, which
    keeps none, no schedule at all. `penalties` names the penalties of the jobs if some have
    their own. `short_of` is the number of steps of the budget that stopped the search: inf if a
    clock did, None if the search ended by itself. `is_whole` is False if the allocator decided
    again at each end of a phase, so that no search covered the whole plan. `widths` are the
    slots as which a task of a phase counts in the pieces, where these are more than it occupies
    because other resources than slots run out first.
    """

    allocator: str
    objective: Objective
    value: float
    bound: float
    seconds: float
    schedule: Schedule = field(repr=False)
    penalties: tuple[str, ...] = field(default=(), repr=False)
    short_of: float | None = None
    is_whole: bool = field(default=True, repr=False)
    widths: Mapping[PhaseId, int] = field(default_factory=dict, repr=False)

    @property
    def gap(self) -> float | None:
        """value / bound - 1; 0 if both are equal, else None if the bound is not positive."""
        return gap_of(self.value, self.bound)

    @property
    def is_exact(self) -> bool:
        """Whether the value is proven optimal: it equals the lower bound."""
        return self.value - self.bound <= EXACT * max(abs(self.value), abs(self.bound))

    @property
    def may_improve(self) -> bool:
        """Whether a larger budget could help: the budget is spent, and the gap is open.

        If not, a larger budget gives the same plan, which is proven optimal only if `is_exact`.
        """
        return self.short_of is not None and not self.is_exact

    def to_plain(self) -> dict[str, Any]:
        """The object that `plan --json` prints."""
        widths = [[*phase, slots] for phase, slots in self.widths.items()]
        return {
            "allocator": self.allocator,
            "objective": asdict(self.objective),
            "value": self.value,
            "bound": self.bound,
            "gap": self.gap,
            "exact": self.is_exact,
            "may_improve": self.may_improve,
            "seconds": self.seconds,
            "completion": self.schedule.completion(),
            "pieces": [[*p.phase, p.start, p.end, p.slots] for p in self.schedule.pieces],
            **({"widths": widths} if widths else {}),
        }

    def summary(self) -> str:
        """The value, the lower bound and the gap in one line."""
        gap = "-" if self.gap is None else "0 %" if self.is_exact else f"{100 * self.gap:.3g} %"
        names = in_words(self.penalties or (self.objective.penalty,))
        widest = max(self.widths.values(), default=0)
        text = (
            f"{self.allocator}: {self.objective.aggregate} of {names} {self.value:.6g}, bound"
            f" {self.bound:.6g}, gap {gap}{' (proven optimal)' if self.is_exact else ''}"
        )
        if widest:
            text += f"; a task counts as up to {widest} slots for what it requests"
        return text

    def _repr_html_(self) -> str:
        """HTML for notebooks: a table of the jobs, and the picture of the plan."""
        held = ((p.phase.job, p.start, p.end, p.slots) for p in self.schedule.pieces)
        return _plan_html(self.summary(), self.schedule.completion(), held)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A schedule of whole tasks on the hosts, and a lower bound of the objective.

    value       the sum of weight times completion
    bound       no schedule has a lower value
    guarantee   the proven upper limit of value / bound for DMRS; None for other schedulers
    skewness    the task-skewness product D, on which the guarantee depends
    completion  of each job, seconds
    assignment  (job, phase, task, host, start, end) of each task, seconds
    """

    scheduler: str
    value: float
    bound: float
    guarantee: float | None
    skewness: float
    seconds: float
    completion: Mapping[str, float]
    assignment: Sequence[tuple[str, str, int, str, float, float]] = field(repr=False)

    @property
    def ratio(self) -> float:
        """value / bound; 1 means proven optimal."""
        return self.value / self.bound

    def to_plain(self) -> dict[str, Any]:
        """The object that `plan --scheduler --json` prints."""
        return {
            "scheduler": self.scheduler,
            "value": self.value,
            "bound": self.bound,
            "ratio": self.ratio,
            "guarantee": self.guarantee,
            "D": self.skewness,
            "seconds": self.seconds,
            "completion": dict(self.completion),
            "assignment": [list(run) for run in self.assignment],
        }

    def summary(self) -> str:
        """The value, the lower bound and the gap in one line."""
        proven = "" if self.guarantee is None else f", at most {self.guarantee:.4g} by theorem"
        return (
            f"{self.scheduler}: sum of weighted completion {self.value:.6g},"
            f" bound {self.bound:.6g}, ratio {self.ratio:.4g}{proven}"
        )

    def _repr_html_(self) -> str:
        """HTML for notebooks: a table of the jobs, and the picture of the plan."""
        held = ((job, start, end, 1.0) for job, _, _, _, start, end in self.assignment)
        return _plan_html(self.summary(), self.completion, held)


def _plan_html(
    summary: str,
    completion: Mapping[str, float],
    held: Iterable[tuple[str, float, float, float]],
) -> str:
    """HTML of a plan, of which `held` has job, start, end and slots of each piece."""
    from slotwise.insight.report.notebook import plan_html
    from slotwise.insight.timeline import StepFunction

    changes: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for job, start, end, slots in held:
        changes[job] += [(start, slots), (end, -slots)]
    steps = {job: StepFunction.of_changes(of_job) for job, of_job in changes.items()}
    return plan_html(summary, completion, steps)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a workload under one scheduler on one backend.

    `log` has the turns of the run: in memory, or, if the run wrote a log file, read from that
    file each time they are iterated. `folder` has what its tasks printed, if the run was kept.
    """

    scheduler: str
    backend: Literal["live", "simulated"]
    outcome: Outcome = field(repr=False)
    log: Log = field(repr=False)
    folder: Path | None = field(default=None, repr=False)

    @property
    def jobs(self) -> dict[str, dict[str, float | None]]:
        """Arrival, start, completion and response of each job, in seconds."""
        return self.outcome.jobs

    @property
    def metrics(self) -> dict[str, Any]:
        """Mean response, stretch, makespan and so on; value and gap of the objective."""
        return self.outcome.metrics

    @property
    def bound(self) -> float:
        """The lower bound of the value over all schedules of this work."""
        return self.outcome.bound

    @property
    def failed(self) -> dict[str, str]:
        """The jobs that failed, with their reasons."""
        return self.outcome.failed

    @property
    def memory(self) -> tuple[MemoryUse, ...]:
        """What tasks requested and used of memory, for each phase that requested some."""
        return self.outcome.memory

    @property
    def is_interrupted(self) -> bool:
        """Whether the run ended, or its log was read, before all its jobs had ended."""
        return not self.outcome.is_over

    def to_plain(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return (
            {
                "scheduler": self.scheduler,
                "world": self.backend,
                "jobs": self.jobs,
                "metrics": self.metrics,
                "bound": self.bound,
            }
            | ({"failed": self.failed} if self.failed else {})
            | ({"memory": [one.to_plain() for one in self.memory]} if self.memory else {})
            | ({"interrupted": True} if self.is_interrupted else {})
        )

    @property
    def reported(self) -> ReportedRun:
        """The run in the form that reports accept."""
        return ReportedRun(self.scheduler, self.backend, self.log, self.outcome)

    def _repr_html_(self) -> str:
        """HTML for notebooks: tables of metrics and jobs, and the picture of the jobs."""
        from slotwise.insight.report.notebook import runs_html

        return runs_html([self.reported])

    @classmethod
    def of_log(cls, log: Log) -> Result:
        """The result of the run in a log."""
        return cls.measured(MetricsCollector.of_log(log), log)

    @classmethod
    def measured(cls, meter: MetricsCollector, log: Log) -> Result:
        """The result of a run that was measured during the run."""
        return cls(log.header.scheduler["name"], log.header.backend, meter.outcome(), log)

    def report(self, path: str | Path, *, pictures: bool = False) -> list[Path]:
        """Write a page with this result; with `pictures` also the pictures as PNG and SVG."""
        return write_report([self.reported], path, pictures=pictures)


class Results(list[Result]):
    """Results of one workload under several schedulers: a list that notebooks display."""

    def _repr_html_(self) -> str:
        """HTML for notebooks: the runs side by side, as a table and in pictures."""
        from slotwise.insight.report.notebook import runs_html

        return runs_html([result.reported for result in self]) if self else "[]"


MAX_DONE = 10
"""The number of finished jobs named when a run is interrupted."""


class RunStopped(BaseException):
    """What the exceptions of a run have in common: `result` has what was done until then.

    In a comparison, `earlier` has the results of the runs before it.
    """

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result
        self.earlier: tuple[Result, ...] = ()


class RunInterrupted(RunStopped, KeyboardInterrupt):
    """A run was interrupted. The command line says how to continue (`remedy`)."""

    def __init__(self, result: Result) -> None:
        super().__init__("interrupted", result)
        self.remedy = ""

    def __str__(self) -> str:
        """What is done, what happened to the rest, and the remedy."""
        result = self.result
        done = [name for name, times in result.jobs.items() if times["completion"] is not None]
        if len(done) > MAX_DONE:
            done[MAX_DONE:] = [f"{len(done) - MAX_DONE} more jobs"]
        count = result.metrics["tasks_done"]
        return (
            f"{f'{result.scheduler}: ' if self.earlier else ''}interrupted after"
            f" {count} task{'' if count == 1 else 's'}; done: {', '.join(done) or 'no job'}"
            + ("; the output of unfinished jobs is removed" if result.backend == "live" else "")
            + (f"; {self.remedy}" if self.remedy else "")
        )


class RunLost(RunStopped, SlotwiseError):
    """A run has lost all its hosts, and no others can join.

    The output of the jobs that are done is complete.
    """

    exit_code = 1

    def __init__(self, reason: SlotwiseError, result: Result) -> None:
        super().__init__(str(reason), result)


class RunUnrecorded(RunStopped, SlotwiseError):
    """A run has ended, but its log or history could not be written completely.

    Its jobs are done, or have failed, as usual.
    """

    def __init__(self, reason: SlotwiseError, result: Result) -> None:
        super().__init__(f"the run is over, but not all of it is recorded: {reason}", result)
