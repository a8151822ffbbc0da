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
from slotwise.core.resources import NOTHING, Resources
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


def sizes_of(
    jobs: Sequence[Job], cluster: Cluster, work: Work, has_changed: bool = False
) -> dict[str, Size]:
    """The size of each job on this cluster: its work, and its minimum time, in seconds.

    `has_changed` is as for `objective_bound`.
    """
    return _Limits(jobs, cluster, work, has_changed).sizes(jobs)


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
    has_changed: bool = False,
) -> float:
    """A lower bound on the value of any schedule of these jobs on this cluster; 0 without jobs.

    least    slots that each job holds at every instant from its arrival to its completion, by
             job id, in sum at most the capacity; for jobs of one phase on one kind of slot.
             Without it, the bound covers schedules without guarantees
    value    value of a known schedule: if a cheap bound is close to it, expensive bounds are
             skipped
    missing  slots of the cluster that are absent at times; used only with a value
    has_changed  whether the cluster stands for hosts that came, went or were resized: then its
             hosts do not limit how many tasks fit on one host

    The result is the best bound over the views of the problem: the whole cluster, each kind of
    slot alone, and each other resource alone. A view leaves out the work of all other phases
    and all other limits, which only makes the problem easier.
    """
    if not jobs:
        return 0.0
    limits = _Limits(jobs, cluster, work, has_changed)
    bounds = []
    for view in limits.views:
        problem = limits.bound_jobs(objective, jobs, view, least or {})
        bounds.append(lower_bound(problem, view.power, objective.aggregate, value))
        absent = [one for one in missing if one.kind in view.kinds]
        if absent and max(bounds) < value < inf:
            problem = _with_missing(problem, absent, value)
            bounds.append(lower_bound(problem, view.power, objective.aggregate, value))
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


class _View(NamedTuple):
    """What alone limits a relaxed problem: some kinds of slots, or one other resource.

    power     the amount that exists, each host's times its speed
    kinds     the kinds of slots; empty for a view of a resource
    resource  its name; empty for a view of slots
    """

    power: float
    kinds: Sequence[str] = ()
    resource: str = ""


class _Limits:
    """The highest speeds of phases on a cluster, and the bounds on times that follow.

    views  the problems of which the best bound is taken
    """

    def __init__(
        self, jobs: Sequence[Job], cluster: Cluster, work: Work, has_changed: bool
    ) -> None:
        self._cluster = cluster
        self._work = work
        self._are_hosts_whole = not has_changed and bool(work.longest)
        self.rates = {
            kind: rates_of(cluster, kind) for kind, n in cluster.capacity.items() if n
        }
        self._own_rates: dict[tuple[str, int, Resources], list[float]] = {}
        self._kinds = {kind: place for place, kind in enumerate(self.rates)}
        self.views = self._views(jobs)
        self._scarce = [view for view in self.views if view.resource]
        self._ordered: dict[str, list[DagPhase]] = {}
        self._stands: dict[str, CriticalPathTimes] = {}
        self._spans: dict[str, float] = {}

    def _views(self, jobs: Sequence[Job]) -> list[_View]:
        """Of all slots, of each kind, and of each resource that may limit more than all slots.

        One that does not is left out: no phase requests a larger part of it than of all slots.
        """
        power = {kind: rates[-1] for kind, rates in self.rates.items()}
        views = [_View(sum(power.values()), list(power))]
        if len(power) > 1:
            views += [_View(power[kind], [kind]) for kind in power]
        phases = [phase for job in jobs for phase in job.phases if phase.needs]
        for name in sorted({name for phase in phases for name in phase.needs}):
            hosts = self._cluster.hosts
            view = _View(sum(h.speed * h.resources.get(name, 0) for h in hosts), (), name)
            if view.power and any(
                _part(view, phase) * views[0].power > view.power for phase in phases
            ):
                views.append(view)
        return views

    def bound_jobs(
        self,
        objective: Objective,
        jobs: Sequence[Job],
        view: _View,
        least: Mapping[str, float],
    ) -> BoundJobs:
        """The numeric problem of a view: work and rates are those of what it limits."""
        sizes = self.sizes(jobs)
        spans = _spans(jobs, self._height)
        inside = [
            [(p, part) for p in job.phases if (part := self._held(view, p))] for job in jobs
        ]
        least = least if view.kinds else {}
        return BoundJobs.of(
            costs=[objective.cost(job, sizes[job.id]) for job in jobs],
            arrival=[job.arrival for job in jobs],
            work=[
                sum(self._total(job, p) * part for p, part in phases)
                for job, phases in zip(jobs, inside, strict=True)
            ],
            # Phases of a job may run in parallel, so their rates add up.
            rate=[sum(self._rate(p) * part for p, part in phases) or 1.0 for phases in inside],
            height=[spans[job.id].end - job.arrival for job in jobs],
            min_share=[least.get(job.id, 0.0) for job in jobs],
            parts=self._parts(jobs, view, spans),
        )

    def _parts(
        self, jobs: Sequence[Job], view: _View, spans: Mapping[str, _Span]
    ) -> Parts | None:
        """The phases with work in a view; None if each job is one phase."""
        if all(len(job.phases) == 1 and not job.predecessors for job in jobs):
            return None
        rows = [
            (
                place,
                work * part,
                self._rate(phase) * part,
                spans[job.id].start - job.arrival + head,
                tail,
            )
            for place, job in enumerate(jobs)
            for phase, head, tail in zip(
                job.topological, self._stand(job).head, self._stand(job).tail, strict=True
            )
            if (work := self._total(job, phase)) > 0 and (part := self._held(view, phase))
        ]
        return Parts.of(rows)

    def _held(self, view: _View, phase: Phase) -> float:
        """What a phase holds of a view with each of its slots."""
        return _part(view, phase) if view.resource else float(self._kind(phase) in view.kinds)

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
        if kind not in self.rates:
            return [inf]  # Hosts of this kind come later, with slots of any speed.
        if (phase.slots == 1 and not phase.needs) or not self._are_hosts_whole:
            return self.rates[kind]
        key = (kind, phase.slots, phase.needs)
        if key not in self._own_rates:
            # If no host fits a task, none has run, so any rate is correct for work 0.
            self._own_rates[key] = rates_of(self._cluster, *key) or self.rates[kind]
        return self._own_rates[key]

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
            path, views = self._length(job, job.phases[0]), self._scarce
        else:
            path = critical_path(self._nodes(job))
            views = [view for view in self.views if len(view.kinds) <= 1]
        return max(path, self._area(job, views))

    def _area(self, job: Job, views: Sequence[_View]) -> float:
        """The time that the work of a job takes with all of a view, the maximum over views."""
        areas = [
            sum(self._total(job, phase) * self._held(view, phase) for phase in job.phases)
            / view.power
            for view in views
        ]
        return max(areas, default=0.0)

    def _height(self, job: Job) -> float:
        """The best proven lower bound on the time of a job alone."""
        if len(job.phases) == 1:
            return self._alone(job)
        return max(self._stand(job).height, self._area(job, self._scarce))

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


def _part(view: _View, phase: Phase) -> float:
    """The amount of the resource of a view that a phase holds with each of its slots."""
    return phase.needs.get(view.resource, 0) / phase.slots


def rates_of(
    cluster: Cluster, kind: str, width: int = 1, needs: Resources = NOTHING
) -> list[float]:
    """Return in entry n - 1 the work that the n fastest slots of a kind do in a second.

    Only slots for whole tasks count, each of `width` slots of one host, and with these needs.
    """
    request = Resources({kind: width, **needs})
    speeds = [
        host.speed for host in cluster.hosts for _ in range(host.amounts.times(request) * width)
    ]
    return list(accumulate(sorted(speeds, reverse=True)))
