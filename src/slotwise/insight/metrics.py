"""Results of a run: metrics, the value of the objective, its lower bound and the gap."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from slotwise.core.decisions import Decision, Launch, Locality
from slotwise.core.events import (
    Event,
    JobArrived,
    JobsClosed,
    ObjectiveChanged,
    OutputLost,
    TaskFinished,
)
from slotwise.core.job import Job, PhaseId
from slotwise.core.log import Header, Log
from slotwise.core.objective import Objective, Steps, gap_of, is_met
from slotwise.insight.attempts import Attempt, AttemptTracker, JobSpan
from slotwise.insight.bound import Work, objective_bound, sizes_of
from slotwise.insight.present_hosts import PresentHosts
from slotwise.insight.timeline import StepFunction


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run, in the structure of the `--json` output. Times are in seconds.

    Metrics over completed jobs are None without completed jobs: value and gap, means and maxima
    of response, stretch and slowdown, and the makespan, which is the last completion. Metrics
    over jobs with deadlines or steps are None without such jobs. `stated` has the jobs as they
    arrived; of finished jobs, only the totals of their tasks. `is_over` is False if the record
    ends before all expected jobs have arrived and are done or failed.
    """

    jobs: dict[str, dict[str, float | None]]
    metrics: dict[str, Any]
    bound: float
    failed: dict[str, str]
    stated: dict[str, Job] = field(default_factory=dict, repr=False)
    is_over: bool = True


class MetricsCollector:
    """Measures a run turn by turn, as a record for the loop or from a log.

    Its memory is bounded by the tasks of unfinished jobs, plus a small record of each phase,
    which the outcome needs.
    """

    def __init__(self, header: Header) -> None:
        self._jobs_expected = inf if header.jobs_expected is None else header.jobs_expected
        self._is_closed = False
        self._objective = Objective(**header.objective)
        self._slowdown = {
            Locality(number): factor
            for number, factor in enumerate(header.parameters.get("slowdown", (1.0, 1.0, 1.0)))
        }
        self._hosts = PresentHosts(header)
        self._speeds = self._hosts.speeds
        self._tracker = AttemptTracker(self._attempt, self._done, self._hosts, is_brief=True)
        self._locality: Counter[Locality] = Counter()
        self._endings: Counter[str] = Counter()
        self._read: Counter[Locality] = Counter()
        self._busy = self._wasted = 0.0
        self._stop_requested = self._taken = 0
        self._lost = self._kept = 0.0
        self._work: defaultdict[PhaseId, float] = defaultdict(float)
        self._longest: defaultdict[PhaseId, float] = defaultdict(float)
        self._kept_before: defaultdict[PhaseId, float] = defaultdict(float)
        self._widths: dict[PhaseId, int] = {}  # if a task occupies several slots
        self._gangs: set[PhaseId] = set()

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Measure one turn."""
        for event in events:
            if isinstance(event, JobsClosed):
                self._is_closed = True
            elif isinstance(event, ObjectiveChanged):
                self._objective = Objective(event.penalty, event.aggregate)
            elif isinstance(event, JobArrived):
                for phase in event.job.phases:
                    if phase.slots > 1:
                        self._widths[PhaseId(event.job.id, phase.name)] = phase.slots
                    if phase.is_gang:
                        self._gangs.add(PhaseId(event.job.id, phase.name))
        self._tracker(now, events, decisions)
        for event in events:
            if isinstance(event, OutputLost):  # Last: the task may have ended in this turn.
                self._undo(event)

    @classmethod
    def of_log(cls, log: Log) -> MetricsCollector:
        """Return a collector with all turns of a log. O(entries)."""
        collector = cls(log.header)
        for turn in log.turns:
            collector(turn.now, turn.events, turn.decisions)
        return collector

    def outcome(self) -> Outcome:
        """The results so far."""
        spans = self._tracker.jobs
        done = {name: span for name, span in spans.items() if span.completion is not None}
        jobs = [self._hosts.on_slots(span.job) for span in done.values()]
        work = Work(dict(self._work), dict(self._longest))
        metrics = self._metrics(spans, done)
        value = metrics["value"]
        known = inf if value is None else value
        widest, missing = self._hosts.widest(), self._hosts.missing(self._tracker.now)
        bound = objective_bound(self._objective, jobs, widest, work, None, known, missing)
        metrics["gap"] = None if value is None else gap_of(value, bound)
        return Outcome(
            jobs={name: _times(span) for name, span in spans.items()},
            metrics=metrics,
            bound=bound,
            failed={name: s.failed for name, s in spans.items() if s.failed is not None},
            stated={name: span.job for name, span in spans.items()},
            is_over=self._is_over(spans),
        )

    def _is_over(self, spans: dict[str, JobSpan]) -> bool:
        over = [s for s in spans.values() if s.completion is not None or s.failed is not None]
        return len(over) >= (len(spans) if self._is_closed else self._jobs_expected)

    def _attempt(self, attempt: Attempt) -> None:
        """Count an attempt that did not succeed or was asked to stop."""
        held = attempt.end - attempt.start
        if attempt.stop_requested:
            self._stop_requested += 1
        if attempt.ending == "done":
            self._count_done(attempt, held, attempt.seconds)
            return
        width = self._widths.get(attempt.phase, 1)
        self._endings[attempt.ending] += 1
        self._busy += held * width
        self._count_read(attempt, self._read)
        speed, slowdown = self._speeds[attempt.host], self._slowdown[attempt.locality]
        lost = max(0.0, held - attempt.kept * slowdown / speed) * width
        self._wasted += lost
        self._work[attempt.phase] += attempt.kept * width
        self._kept_before[attempt.phase] += attempt.kept * width
        if attempt.stop_requested:
            self._taken += 1
            self._lost += lost
            self._kept += attempt.kept * width

    def _done(self, launch: Launch, start: float, event: TaskFinished) -> None:
        self._count_done(launch, event.at - start, event.seconds)

    def _count_done(self, ran: Launch | Attempt, held: float, seconds: float) -> None:
        """Count a done task that held its slots for `held` and computed for `seconds`."""
        phase, locality = ran.phase, ran.locality
        width = self._widths.get(phase, 1)
        self._endings["done"] += 1
        self._busy += held * width
        self._locality[locality] += 1
        if locality is not Locality.NODE:
            self._count_read(ran, self._read)
        # Work is the time at speed 1 on a host with the input, which no scheduler can reduce.
        work = seconds * self._speeds[ran.host] / self._slowdown[locality]
        self._work[phase] += work * width
        if work > self._longest[phase]:
            self._longest[phase] = work

    def _undo(self, event: OutputLost) -> None:
        """Subtract the work that has to be repeated.

        The work of single tasks is not stored. It is at most that of the longest last attempt
        plus all that earlier attempts kept, and a lower bound stays valid for less work. A gang
        is repeated as a whole.
        """
        phase = event.phase
        longest = len(event.tasks) * self._longest[phase] * self._widths.get(phase, 1)
        lost = inf if phase in self._gangs else longest + self._kept_before[phase]
        self._work[phase] = max(0.0, self._work[phase] - lost)

    def _count_read(self, attempt: Attempt | Launch, read: Counter[Locality]) -> None:
        if attempt.locality is not Locality.NODE:
            job = self._tracker.jobs[attempt.phase.job].job
            read[attempt.locality] += bytes_read(job, attempt)

    def _metrics(self, spans: dict[str, JobSpan], done: dict[str, JobSpan]) -> dict[str, Any]:
        jobs = {name: self._hosts.on_slots(span.job) for name, span in done.items()}
        completion = {name: span.completion or 0.0 for name, span in done.items()}
        measured = Work(dict(self._work), dict(self._longest))
        sizes = sizes_of(list(jobs.values()), self._hosts.widest(), measured)
        value = self._objective.value(jobs, completion, sizes)
        response = {name: completion[name] - span.arrival for name, span in done.items()}
        stretch = {name: response[name] / sizes[name].work for name in done}
        slowdown = {name: response[name] / sizes[name].alone for name in done}
        weights = {name: job.weight for name, job in jobs.items()}
        return {
            "value": value if done else None,
            "gap": None,
            "jobs_done": len(done),
            "jobs_failed": sum(span.failed is not None for span in spans.values()),
            **_spread("response", response, weights),
            **_spread("stretch", stretch, weights),
            **_spread("slowdown", slowdown, weights),
            **deadline_metrics(jobs, completion),
            "makespan": max(completion.values(), default=None),
            **self._use_of_slots(spans),
            "work_seconds": sum((size.work for size in sizes.values()), 0.0),
        }

    def _use_of_slots(self, spans: dict[str, JobSpan]) -> dict[str, Any]:
        first = min((span.arrival for span in spans.values()), default=0.0)
        unfinished = sum(
            (a.end - a.start) * self._widths.get(a.phase, 1) for a in self._tracker.unfinished()
        )
        # Failed jobs may hold slots to the end.
        present = self._hosts.slots().seconds(first, self._tracker.now)
        tasks = sum(self._locality.values())
        read = self._read.copy()
        for attempt in self._tracker.unfinished():
            self._count_read(attempt, read)
        return {
            "utilisation": (self._busy + unfinished) / present if present > 0 else 0.0,
            "tasks_done": tasks,
            "attempts": dict(sorted(self._endings.items())),
            "locality": {
                level.name.lower(): self._locality[level] / tasks if tasks else 0.0
                for level in Locality
            },
            "traffic_bytes": {
                "rack": float(read[Locality.RACK]),
                "core": float(read[Locality.ANY]),
            },
            "wasted_slot_seconds": self._wasted + unfinished,
            "preemption": {
                "told": self._stop_requested,
                "stopped": self._taken,
                "lost_slot_seconds": self._lost,
                "kept_seconds": self._kept,
            },
        }


def _times(span: JobSpan) -> dict[str, float | None]:
    response = None if span.completion is None else span.completion - span.arrival
    return {
        "arrival": span.arrival,
        "start": span.start,
        "completion": span.completion,
        "response": response,
    }


def _spread(
    name: str, of_job: dict[str, float], weights: dict[str, float]
) -> dict[str, float | None]:
    """Mean, weighted mean and maximum of a number per job; None without jobs."""
    if not of_job:
        return {f"{name}_{what}": None for what in ("mean", "weighted_mean", "max")}
    weighted = sum(of_job[job] * weights[job] for job in of_job) / sum(weights.values())
    return {
        f"{name}_mean": sum(of_job.values()) / len(of_job),
        f"{name}_weighted_mean": weighted,
        f"{name}_max": max(of_job.values()),
    }


# Metrics of deadlines and service-level agreements.


def deadline_metrics(
    jobs: Mapping[str, Job], completion: Mapping[str, float]
) -> dict[str, float | None]:
    """Tardy jobs, tardiness and lateness in seconds, and the cost of agreements, by metric.

    The metrics cover completed jobs. Those of deadlines are None if no such job has a deadline,
    and that of agreements is None if no such job has steps.
    """
    due = {name: at for name in completion if (at := jobs[name].deadline) is not None}
    # A deadline that is missed only by rounding counts as met in all metrics.
    tardy = {
        name: completion[name] - at
        for name, at in due.items()
        if not is_met(at, completion[name])
    }
    late = [completion[name] - at for name, at in due.items()]
    agreed = [name for name in completion if jobs[name].steps]
    costs = [Steps(jobs[name].steps).at(completion[name]) for name in agreed]
    return {
        "jobs_tardy": len(tardy) if due else None,
        "jobs_tardy_weighted": sum(jobs[name].weight for name in tardy) if due else None,
        "tardiness_mean": sum(tardy.values()) / len(due) if due else None,
        "tardiness_max": max(tardy.values(), default=0.0) if due else None,
        "lateness_max": max(late, default=None),
        "sla_cost": sum(costs) if costs else None,
    }


# Traffic: the bytes that tasks read from other hosts.

ROUNDING = 1e-9
"""Reading times below this part of the instant are rounding errors."""


def bytes_read(job: Job, attempt: Attempt | Launch) -> int:
    """The bytes that an attempt reads from another host: its whole block, or 0.

    They depend only on the launch: an attempt that is killed while it reads counts in full.
    """
    if attempt.locality is Locality.NODE:
        return 0
    blocks = job.by_name[attempt.phase.phase].tasks.blocks
    return blocks[attempt.task].size_bytes if blocks else 0


@dataclass(frozen=True, slots=True)
class TrafficSteps:
    """Bytes per second over time, from other hosts of the same rack and from other racks."""

    rack: StepFunction
    core: StepFunction


def traffic_of(log: Log) -> TrafficSteps:
    """The traffic of a run over time. O(n log n) for n entries of the log.

    An attempt reads before it computes, so its reading time is its time in the slot minus its
    computing time. The rate is assumed constant. If the reading time is unknown (the attempt
    did not succeed, or reading took no separate time), it is the whole run of the attempt. The
    areas are the bytes of the metric `traffic_bytes`, except for attempts of zero length.
    """
    changes: dict[Locality, list[tuple[float, float]]] = {Locality.RACK: [], Locality.ANY: []}

    def read(attempt: Attempt) -> None:
        size = bytes_read(tracker.jobs[attempt.phase.job].job, attempt)
        until = _read_until(attempt)
        if size and until > attempt.start:
            rate = size / (until - attempt.start)
            changes[attempt.locality] += [(attempt.start, rate), (until, -rate)]

    tracker = AttemptTracker(read, is_brief=True)
    for turn in log.turns:
        tracker(turn.now, turn.events, turn.decisions)
    for attempt in tracker.unfinished():
        read(attempt)
    rack, core = (
        StepFunction.of_changes(changes[level]) for level in (Locality.RACK, Locality.ANY)
    )
    return TrafficSteps(rack, core)


def _read_until(attempt: Attempt) -> float:
    if attempt.ending != "done":
        return attempt.end
    begins = attempt.end - attempt.seconds
    took_time = begins - attempt.start > ROUNDING * attempt.end
    return begins if took_time else attempt.end
