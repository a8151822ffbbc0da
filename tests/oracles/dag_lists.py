"""The best list schedule of jobs that are DAGs, by trying every order: simple, slow, separate.

Slots are handed out in the order of a list to all phases that are ready, as many as each can
use, and again whenever a phase is done: no slot idles that a ready phase could use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.objective import Objective
from slotwise.insight.bound import Work, sizes_of

Within = Callable[[Job, Cluster], Sequence[Phase]]
"""The order of the phases of one job."""

DUST = 1e-12
"""Of the work of a phase; so little is rounding."""


def in_file_order(job: Job, cluster: Cluster) -> Sequence[Phase]:
    """Topological, else as they are written."""
    return list(job.topological)


def longest_tail_first(job: Job, cluster: Cluster) -> Sequence[Phase]:
    """By the time from a phase's beginning to the end of the job, on all slots it can use."""
    tail: dict[str, float] = {}
    for phase in reversed(list(job.topological)):
        behind = [tail[other.name] for other in job.phases if phase.name in other.waits_for]
        work = phase.tasks.work_total() or 0.0
        tail[phase.name] = work / _most(phase, cluster) + max(behind, default=0.0)
    return sorted(job.topological, key=lambda phase: -tail[phase.name])


def best_list(
    jobs: Sequence[Job], cluster: Cluster, objective: Objective, within: Within | None = None
) -> float:
    """The least value over all lists that keep the phases of each job together.

    J! schedules for J jobs, twice as many where no order within the jobs is given.
    """
    rules = (in_file_order, longest_tail_first) if within is None else (within,)
    lists = (
        [(job, phase) for job in order for phase in rule(job, cluster)]
        for rule in rules
        for order in permutations(jobs)
    )
    return _best(jobs, cluster, objective, lists)


def best_phase_list(jobs: Sequence[Job], cluster: Cluster, objective: Objective) -> float:
    """The least value over all lists of all phases, at most 7 of them: N! schedules."""
    phases = [(job, phase) for job in jobs for phase in job.phases]
    assert len(phases) <= 7, f"{len(phases)}! lists"
    return _best(jobs, cluster, objective, permutations(phases))


def list_schedule(
    listed: Sequence[tuple[Job, Phase]], cluster: Cluster
) -> Mapping[PhaseId, float]:
    """When each phase is done if slots are handed out in this order."""
    left = {
        PhaseId(job.id, phase.name): phase.tasks.work_total() or 0.0 for job, phase in listed
    }
    total = dict(left)
    done: dict[PhaseId, float] = {}
    now = 0.0
    while len(done) < len(listed):
        free = dict(cluster.capacity)
        running: list[tuple[PhaseId, int]] = []
        for job, phase in listed:
            name = PhaseId(job.id, phase.name)
            waits = [PhaseId(job.id, other) not in done for other in phase.waits_for]
            if name in done or any(waits):
                continue
            kind = cluster.slot_kind(phase.kind)
            slots = min(phase.slots_most, free[kind])
            free[kind] -= slots
            running.append((name, slots))
        pause = min(left[name] / slots for name, slots in running if slots)
        now += pause
        for name, slots in running:
            left[name] -= slots * pause
            if left[name] <= DUST * total[name]:
                done[name] = now
    return done


def _best(
    jobs: Sequence[Job],
    cluster: Cluster,
    objective: Objective,
    lists: Iterable[Sequence[tuple[Job, Phase]]],
) -> float:
    sizes = sizes_of(jobs, cluster, Work.estimated(jobs))
    costs = {job.id: objective.cost(job, sizes[job.id]) for job in jobs}
    values = []
    for listed in lists:
        ends = dict.fromkeys(costs, 0.0)
        for phase, at in list_schedule(listed, cluster).items():
            ends[phase.job] = max(ends[phase.job], at)
        values.append(objective.total(costs[job].at(at) for job, at in ends.items()))
    return min(values)


def _most(phase: Phase, cluster: Cluster) -> int:
    return min(phase.slots_most, cluster.capacity[cluster.slot_kind(phase.kind)])
