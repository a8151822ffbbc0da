"""Lower bounds on objectives for jobs with known work, estimated or measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, inf
from typing import NamedTuple

from slotwise.core.cluster import Cluster
from slotwise.core.dependencies import in_order
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.objective import Objective, Size, Steps
from slotwise.policy.bounds import BoundJobs, Parts, lower_bound
from slotwise.policy.bounds.height import CriticalPathTimes, DagPhase, critical_path, stand

ROUNDED = 1e-6
"""Relative; above the rounding errors of instants and work."""

MIN_WORK = 1e-9
"""The smallest divisor of stretch and slowdown, in seconds."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work at speed 1: slot-seconds of each phase, and seconds of its longest task.

    `longest` is empty if the work of a phase can be divided anywhere, as in a plan.
    """

    total: Mapping[PhaseId, float]
    longest: Mapping[PhaseId, float] = field(default_factory=dict)

    @classmethod
    def estimated(cls, jobs: Sequence[Job]) -> Work:
        """The stated work of the jobs, freely divisible."""
        return cls(
            {
                PhaseId(job.id, phase.name): phase.work_total() or 0.0
                for job in jobs
                for phase in job.phases
            }
        )

    def of_job(self, job: Job) -> float:
        """The work of all phases of a job, at least MIN_WORK."""
        total = sum(self.total.get(PhaseId(job.id, phase.name), 0.0) for phase in job.phases)
        return max(total, MIN_WORK)


def sizes_of(jobs: Sequence[Job], cluster: Cluster, work: Work) -> dict[str, Size]:
    """The size of each job on this cluster: its work, and its minimum time, in seconds."""
    return _Limits(cluster, work).sizes(jobs)


@dataclass(frozen=True, slots=True)
class Missing:
    """Slots of a kind, with the rate `power` together, that are absent from start to end.

    The cluster of a bound has all slots that are present at any time.
    """

    kind: str
    start: float
    end: float
    power: float


def objective_bound(
    objective: Objective,
    jobs: Sequence[Job],
    cluster: Cluster,
    work: Work,
    least: Mapping[str, float] | None = None,
    value: float = inf,
    missing: Sequence[Missing] = (),
) -> float:
    """A lower bound on the value of any schedule of these jobs on this cluster; 0 without jobs.

    least    slots that each job holds at every instant from its arrival to its completion, by
             job id, in sum at most the capacity; for jobs of one phase on one kind of slot.
             Without it, the bound covers schedules without guarantees
    value    value of a known schedule: if a cheap bound is close to it, expensive bounds are
             skipped
    missing  slots of the cluster that are absent at times; used only with a value

    The result is the best bound over the whole cluster and over each kind of slot alone. With
    one kind, the work of all other phases is left out, which only makes the problem easier.
    """
    if not jobs:
        return 0.0
    limits = _Limits(cluster, work)
    kinds = list(limits.rates)
    choices = [kinds] if len(kinds) == 1 else [kinds, *([kind] for kind in kinds)]
    bounds = []
    for chosen in choices:
        problem = limits.bound_jobs(objective, jobs, chosen, least or {})
        power = sum(limits.rates[kind][-1] for kind in chosen)
        bounds.append(lower_bound(problem, power, objective.aggregate, value))
        absent = [one for one in missing if one.kind in chosen]
        if absent and max(bounds) < value < inf:
            problem = _with_missing(problem, absent, value)
            bounds.append(lower_bound(problem, power, objective.aggregate, value))
    return max(bounds)


def _with_missing(jobs: BoundJobs, missing: Sequence[Missing], value: float) -> BoundJobs:
    """The jobs, and one more for each time in which slots are absent.

    This job arrives at the start, with the work that the slots would have done. It costs
    nothing if it is complete by the end, and otherwise more than any schedule that is better
    than the known one. Its work is slightly reduced and its end slightly delayed, so that
    rounding cannot make it late.
    """
    late = ceil(2 * abs(value)) + 1.0
    ends = [one.end + ROUNDED * (one.end + 1.0) for one in missing]
    work = [(1 - ROUNDED) * one.power * (one.end - one.start) for one in missing]
    rate = [one.power for one in missing]
    old, count = jobs.parts, len(jobs)
    rows = zip(old.job, old.work, old.rate, old.head, old.tail, strict=True)
    more = [
        (count + place, amount, pace, 0.0, 0.0)
        for place, (amount, pace) in enumerate(zip(work, rate, strict=True))
    ]
    return BoundJobs.of(
        costs=[*jobs.costs, *(Steps(((end, late),)) for end in ends)],
        arrival=[*jobs.arrival, *(one.start for one in missing)],
        work=[*jobs.work, *work],
        rate=[*jobs.rate, *rate],
        height=[*jobs.height, *([0.0] * len(missing))],
        min_share=[*jobs.min_share, *([0.0] * len(missing))],
        parts=Parts.of([*rows, *more]),
    )


class _Span(NamedTuple):
    """The earliest instants at which a job can start and be complete."""

    start: float
    end: float


def _spans(jobs: Sequence[Job], least: Callable[[Job], float]) -> dict[str, _Span]:
    """The spans of jobs that share the slots with none but the jobs that they wait for.

    least  the minimum time from the start of a job to its completion

    The jobs that a job waits for are complete before it starts. Those of `after_each` have
    started before, and are complete before it is. O(jobs + arcs).
    """
    spans: dict[str, _Span] = {}
    for job in in_order(jobs):
        before = [spans[name] for name in job.after & spans.keys()]
        beside = [spans[name] for name in job.after_each & spans.keys()]
        start = max([job.arrival, *(s.end for s in before), *(s.start for s in beside)])
        spans[job.id] = _Span(start, max([start + least(job), *(s.end for s in beside)]))
    return spans


class _Limits:
    """The highest speeds of phases on a cluster, and the bounds on times that follow."""

    def __init__(self, cluster: Cluster, work: Work) -> None:
        self._cluster = cluster
        self._work = work
        self.rates = {
            kind: rates_of(cluster, kind) for kind, n in cluster.capacity.items() if n
        }
        self._wide_rates: dict[tuple[str, int], list[float]] = {}
        self._kinds = {kind: place for place, kind in enumerate(self.rates)}
        self._ordered: dict[str, list[DagPhase]] = {}
        self._stands: dict[str, CriticalPathTimes] = {}
        self._spans: dict[str, float] = {}

    def bound_jobs(
        self,
        objective: Objective,
        jobs: Sequence[Job],
        kinds: Sequence[str],
        least: Mapping[str, float],
    ) -> BoundJobs:
        """The numeric problem, with the work on these kinds of slots only."""
        sizes = self.sizes(jobs)
        spans = _spans(jobs, self._height)
        inside = [[p for p in job.phases if self._kind(p) in kinds] for job in jobs]
        return BoundJobs.of(
            costs=[objective.cost(job, sizes[job.id]) for job in jobs],
            arrival=[job.arrival for job in jobs],
            work=[
                sum(self._total(job, p) for p in phases)
                for job, phases in zip(jobs, inside, strict=True)
            ],
            # Phases of a job may run in parallel, so their rates add up.
            rate=[sum(map(self._rate, phases)) or 1.0 for phases in inside],
            height=[spans[job.id].end - job.arrival for job in jobs],
            min_share=[least.get(job.id, 0.0) for job in jobs],
            parts=self._parts(jobs, kinds, spans),
        )

    def _parts(
        self, jobs: Sequence[Job], kinds: Sequence[str], spans: Mapping[str, _Span]
    ) -> Parts | None:
        """The phases with work on these kinds of slots; None if each job is one phase."""
        if all(len(job.phases) == 1 and not job.predecessors for job in jobs):
            return None
        rows = [
            (place, work, self._rate(phase), spans[job.id].start - job.arrival + head, tail)
            for place, job in enumerate(jobs)
            for phase, head, tail in zip(
                job.topological, self._stand(job).head, self._stand(job).tail, strict=True
            )
            if (work := self._total(job, phase)) > 0 and self._kind(phase) in kinds
        ]
        return Parts.of(rows)

    def _total(self, job: Job, phase: Phase) -> float:
        return self._work.total.get(PhaseId(job.id, phase.name), 0.0)

    def _kind(self, phase: Phase) -> str:
        return self._cluster.slot_kind(phase.kind)

    def _rate(self, phase: Phase) -> float:
        rates = self._rates_of(phase)
        return rates[min(phase.slots_most, len(rates)) - 1]

    def _rates_of(self, phase: Phase) -> list[float]:
        """The rates of the slots that a phase can use: on each host, those of whole tasks."""
        kind = self._kind(phase)
        if phase.slots == 1 or not self._work.longest:
            return self.rates[kind]
        key = (kind, phase.slots)
        if key not in self._wide_rates:
            # If no host fits a task, none has run, so any rate is correct for work 0.
            self._wide_rates[key] = rates_of(self._cluster, *key) or self.rates[kind]
        return self._wide_rates[key]

    def sizes(self, jobs: Sequence[Job]) -> dict[str, Size]:
        """The work of each job, and its minimum time with the jobs that it waits for."""
        spans = _spans(jobs, self._alone)
        return {
            job.id: Size(self._work.of_job(job), max(spans[job.id].end - job.arrival, MIN_WORK))
            for job in jobs
        }

    def _alone(self, job: Job) -> float:
        """The minimum time from the start of a job to its completion.

        It is its critical path, or its work on all slots. On the path each phase has its
        maximum of slots, and takes at least as long as its longest task.
        """
        if job.id not in self._spans:
            self._spans[job.id] = self._span(job)
        return self._spans[job.id]

    def _span(self, job: Job) -> float:
        if len(job.phases) == 1:
            return self._length(job, job.phases[0])
        area = dict.fromkeys(self.rates, 0.0)
        for phase in job.phases:
            area[self._kind(phase)] += self._total(job, phase)
        spans = [work / self.rates[kind][-1] for kind, work in area.items() if work]
        return max(critical_path(self._nodes(job)), *spans, 0.0)

    def _height(self, job: Job) -> float:
        """The best proven lower bound on the time of a job alone."""
        return self._alone(job) if len(job.phases) == 1 else self._stand(job).height

    def _length(self, job: Job, phase: Phase) -> float:
        """The minimum time of a phase."""
        longest = self._work.longest.get(PhaseId(job.id, phase.name), 0.0)
        fastest = self._rates_of(phase)[0]
        return max(self._total(job, phase) / self._rate(phase), longest / fastest)

    def _stand(self, job: Job) -> CriticalPathTimes:
        """Earliest starts and shortest tails of the phases of a job alone on the cluster."""
        if job.id not in self._stands:
            capacity = [rates[-1] for rates in self.rates.values()]
            self._stands[job.id] = stand(self._nodes(job), capacity)
        return self._stands[job.id]

    def _nodes(self, job: Job) -> list[DagPhase]:
        if job.id not in self._ordered:
            self._ordered[job.id] = self._in_order(job)
        return self._ordered[job.id]

    def _in_order(self, job: Job) -> list[DagPhase]:
        places: dict[str, int] = {}
        nodes = []
        for phase in job.topological:
            nodes.append(
                DagPhase(
                    self._total(job, phase),
                    self._length(job, phase),
                    self._kinds[self._kind(phase)],
                    [places[other] for other in phase.after],
                    None if phase.continues is None else places[phase.continues],
                )
            )
            places[phase.name] = len(places)
        return nodes


def rates_of(cluster: Cluster, kind: str, width: int = 1) -> list[float]:
    """Return in entry n - 1 the work that the n fastest slots of a kind do in a second.

    Only slots for whole tasks of `width` slots of one host count.
    """
    speeds = [
        host.speed
        for host in cluster.hosts
        for _ in range(host.slots.get(kind, 0) // width * width)
    ]
    return list(accumulate(sorted(speeds, reverse=True)))
