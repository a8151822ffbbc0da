"""Results of a run: metrics, the value of the objective, its lower bound and the gap."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from slotwise.core.decisions import (
    AcceptPromise,
    BreakPromise,
    Launch,
    Locality,
    RefusePromise,
)
from slotwise.core.dependencies import was_cancelled
from slotwise.core.events import (
    JobArrived,
    JobsClosed,
    ObjectiveChanged,
    OutputLost,
    TaskFinished,
)
from slotwise.core.job import Job, PhaseId
from slotwise.core.log import Header, Log
from slotwise.core.objective import Objective, Steps, gap_of, is_met
from slotwise.insight.bound import Work, objective_bound, sizes_of
from slotwise.insight.memory_use import MemoryMeter, MemoryUse
from slotwise.insight.reducer import Attempt, JobSpan, RunReducer
from slotwise.insight.timeline import StepFunction


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run, in the structure of the `--json` output. Times are in seconds.

    Metrics over completed jobs are None without completed jobs: value and gap, means and maxima
    of response, stretch and slowdown, and the makespan, which is the last completion. Metrics
    over jobs with deadlines or steps are None without such jobs. `stated` has the jobs as they
    arrived; of finished jobs, only the totals of their tasks. `is_over` is False if the record
    ends before all expected jobs have arrived and are done or failed. `memory` has the phases
    whose tasks requested some.
    """

    jobs: dict[str, dict[str, float | None]]
    metrics: dict[str, Any]
    bound: float
    failed: dict[str, str]
    stated: dict[str, Job] = field(default_factory=dict, repr=False)
    is_over: bool = True
    memory: tuple[MemoryUse, ...] = ()

    @property
    def states(self) -> dict[str, str]:
        """How each job has ended: done, failed or cancelled; else unfinished."""
        return {name: self._state(name) for name in self.jobs}

    def _state(self, job: str) -> str:
        reason = self.failed.get(job)
        if reason is None:
            return "unfinished" if self.jobs[job]["completion"] is None else "done"
        is_known = job in self.stated
        return "cancelled" if is_known and was_cancelled(self.stated[job], reason) else "failed"


class MetricsCollector(RunReducer):
    """Measures a run turn by turn, as a record for the loop or from a log.

    Its memory is bounded by the tasks of unfinished jobs, plus a small record of each phase,
    which the outcome needs.
    """

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self.handlers |= {
            JobsClosed: self._jobs_closed,
            ObjectiveChanged: self._objective_changed,
            **dict.fromkeys((AcceptPromise, RefusePromise, BreakPromise), self._on_promise),
        }
        self._promises: dict[str, AcceptPromise | RefusePromise | BreakPromise] = {}
        self._jobs_expected = inf if header.jobs_expected is None else header.jobs_expected
        self._is_closed = False
        self._objective = Objective(**header.objective)
        self._slowdown = {
            Locality(number): factor
            for number, factor in enumerate(header.parameters.get("slowdown", (1.0, 1.0, 1.0)))
        }
        self._locality: Counter[Locality] = Counter()
        self._endings: Counter[str] = Counter()
        self._read: Counter[Locality] = Counter()
        self._busy = self._wasted = 0.0
        self._stops = self._taken = 0
        self._lost = self._kept = 0.0
        self._work: defaultdict[PhaseId, float] = defaultdict(float)
        self._longest: defaultdict[PhaseId, float] = defaultdict(float)
        self._kept_before: defaultdict[PhaseId, float] = defaultdict(float)
        self._widths: dict[PhaseId, int] = {}  # if a task occupies several slots
        self._memory = MemoryMeter()

    @classmethod
    def of_log(cls, log: Log) -> MetricsCollector:
        """Return a collector with all turns of a log. O(entries)."""
        return cls(log.header).follow(log)

    def outcome(self) -> Outcome:
        """The results so far."""
        spans = self.jobs
        done = {name: span for name, span in spans.items() if span.completion is not None}
        jobs = [self.hosts.on_slots(span.job) for span in done.values()]
        work = Work(dict(self._work), dict(self._longest))
        metrics = self._metrics(spans, done)
        value = metrics["value"]
        known = inf if value is None else value
        widest, missing = self.hosts.widest(), self.hosts.missing(self.now)
        bound = objective_bound(
            self._objective, jobs, widest, work, None, known, missing, self.hosts.has_changed
        )
        metrics["gap"] = None if value is None else gap_of(value, bound)
        return Outcome(
            jobs={name: _times(span) for name, span in spans.items()},
            metrics=metrics,
            bound=bound,
            failed={name: s.failed for name, s in spans.items() if s.failed is not None},
            stated={name: span.job for name, span in spans.items()},
            is_over=self._is_over(spans),
            memory=self._memory.rows(),
        )

    def _is_over(self, spans: dict[str, JobSpan]) -> bool:
        over = [s for s in spans.values() if s.completion is not None or s.failed is not None]
        return len(over) >= (len(spans) if self._is_closed else self._jobs_expected)

    def _jobs_closed(self, event: JobsClosed) -> None:
        self._is_closed = True

    def _objective_changed(self, event: ObjectiveChanged) -> None:
        self._objective = Objective(event.penalty, event.aggregate)

    def _on_promise(self, decision: AcceptPromise | RefusePromise | BreakPromise) -> None:
        self._promises[decision.job] = decision

    def job_arrived(self, event: JobArrived) -> None:
        """Add a job, with the widths of its phases and the memory that they request."""
        super().job_arrived(event)
        for phase in event.job.phases:
            if phase.slots > 1:
                self._widths[PhaseId(event.job.id, phase.name)] = phase.slots
        self._memory.arrived(event.job)

    def on_attempt(self, attempt: Attempt) -> None:
        """Count an attempt that did not succeed or was asked to stop."""
        held = attempt.end - attempt.start
        if attempt.memory or attempt.peak:
            self._memory.ended(
                self.jobs[attempt.phase.job].job,
                attempt.phase,
                attempt.memory,
                held,
                attempt.peak,
                attempt.ending == "done",
            )
        if attempt.stop_requested:
            self._stops += 1
        if attempt.ending == "done":
            self._count_done(attempt, held, attempt.seconds)
            return
        width = self._widths.get(attempt.phase, 1)
        self._endings[attempt.ending] += 1
        self._busy += held * width
        self._count_read(attempt, self._read)
        speed, slowdown = self.hosts.speeds[attempt.host], self._slowdown[attempt.locality]
        lost = max(0.0, held - attempt.kept * slowdown / speed) * width
        self._wasted += lost
        self._work[attempt.phase] += attempt.kept * width
        self._kept_before[attempt.phase] += attempt.kept * width
        if attempt.stop_requested:
            self._taken += 1
            self._lost += lost
            self._kept += attempt.kept * width

    def on_done(self, launch: Launch, start: float, event: TaskFinished) -> None:
        """Count a successful attempt."""
        self._count_done(launch, event.at - start, event.seconds)
        if launch.memory or event.peak:
            job, held = self.jobs[launch.phase.job].job, event.at - start
            self._memory.ended(job, launch.phase, launch.memory, held, event.peak or 0, True)

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
        work = seconds * self.hosts.speeds[ran.host] / self._slowdown[locality]
        self._work[phase] += work * width
        if work > self._longest[phase]:
            self._longest[phase] = work

    def output_lost(self, event: OutputLost) -> None:
        """Subtract the work that has to be repeated.

        The work of single tasks is not stored. It is at most that of the longest last attempt
        plus all that earlier attempts kept, and a lower bound stays valid for less work. A gang
        is repeated as a whole.
        """
        super().output_lost(event)
        phase = event.phase
        lost = len(event.tasks) * self._longest[phase] * self._widths.get(phase, 1)
        is_gang = self.jobs[phase.job].job.by_name[phase.phase].is_gang
        lost = inf if is_gang else lost + self._kept_before[phase]
        self._work[phase] = max(0.0, self._work[phase] - lost)

    def _count_read(self, attempt: Attempt | Launch, read: Counter[Locality]) -> None:
        if attempt.locality is not Locality.NODE:
            job = self.jobs[attempt.phase.job].job
            read[attempt.locality] += bytes_read(job, attempt)

    def _metrics(self, spans: dict[str, JobSpan], done: dict[str, JobSpan]) -> dict[str, Any]:
        jobs = {name: self.hosts.on_slots(span.job) for name, span in done.items()}
        completion = {name: span.completion or 0.0 for name, span in done.items()}
        measured = Work(dict(self._work), dict(self._longest))
        hosts = self.hosts
        sizes = sizes_of(list(jobs.values()), hosts.widest(), measured, hosts.has_changed)
        value = self._objective.value(jobs, completion, sizes)
        response = {name: completion[name] - span.arrival for name, span in done.items()}
        stretch = {name: response[name] / sizes[name].work for name in done}
        slowdown = {name: response[name] / sizes[name].alone for name in done}
        weights = {name: job.weight for name, job in jobs.items()}
        ends = [(span.job, span.failed) for span in spans.values() if span.failed is not None]
        cancelled = sum(was_cancelled(job, reason) for job, reason in ends)
        return {
            "value": value if done else None,
            "gap": None,
            "jobs_done": len(done),
            "jobs_failed": len(ends) - cancelled,
            "jobs_cancelled": cancelled,
            **_spread("response", response, weights),
            **_spread("stretch", stretch, weights),
            **_spread("slowdown", slowdown, weights),
            **deadline_metrics(jobs, completion),
            "makespan": max(completion.values(), default=None),
            **self._use_of_slots(spans),
            "work_seconds": sum((size.work for size in sizes.values()), 0.0),
            **self._use_of_memory(),
            **self._kept_promises(spans),
        }

    def _kept_promises(self, spans: dict[str, JobSpan]) -> dict[str, Any]:
        """What became of the jobs that asked for promises, and why promises were broken."""
        asked = sum(span.job.promise is not None for span in spans.values())
        if not asked:
            return {}
        last = self._promises.values()
        accepted = [one for one in last if not isinstance(one, RefusePromise)]
        kept = [one for one in accepted if isinstance(one, AcceptPromise)]
        causes = Counter(one.cause for one in accepted if isinstance(one, BreakPromise))
        counts = {
            "asked": asked,
            "accepted": len(accepted),
            "refused": asked - len(accepted),
            "kept": sum(spans[one.job].completion is not None for one in kept),
            "broken": sum(causes.values()),
            "causes": dict(sorted(causes.items())),
        }
        return {"promises": counts}

    def _use_of_memory(self) -> dict[str, Any]:
        """The part of the requested memory that no successful attempt used, if it is known."""
        unused = self._memory.unused()
        return {} if unused is None else {"memory": {"unused": unused}}

    def _use_of_slots(self, spans: dict[str, JobSpan]) -> dict[str, Any]:
        first = min((span.arrival for span in spans.values()), default=0.0)
        unfinished = sum(
            (a.end - a.start) * self._widths.get(a.phase, 1) for a in self.unfinished()
        )
        # Failed jobs may hold slots to the end.
        present = self.hosts.slots().seconds(first, self.now)
        tasks = sum(self._locality.values())
        read = self._read.copy()
        for attempt in self.unfinished():
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
                "told": self._stops,
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
    traffic = _Traffic(log.header).follow(log)
    for attempt in traffic.unfinished():
        traffic.on_attempt(attempt)
    rack, core = (
        StepFunction.of_changes(traffic.changes[level])
        for level in (Locality.RACK, Locality.ANY)
    )
    return TrafficSteps(rack, core)


class _Traffic(RunReducer):
    """Collects the changes of the rates at which attempts read."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self.changes: defaultdict[Locality, list[tuple[float, float]]] = defaultdict(list)

    def on_attempt(self, attempt: Attempt) -> None:
        """Add the reading of an attempt."""
        size = bytes_read(self.jobs[attempt.phase.job].job, attempt)
        until = _read_until(attempt)
        if size and until > attempt.start:
            rate = size / (until - attempt.start)
            self.changes[attempt.locality] += [(attempt.start, rate), (until, -rate)]


def _read_until(attempt: Attempt) -> float:
    if attempt.ending != "done":
        return attempt.end
    begins = attempt.end - attempt.seconds
    took_time = begins - attempt.start > ROUNDING * attempt.end
    return begins if took_time else attempt.end
