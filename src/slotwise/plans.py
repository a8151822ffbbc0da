"""Plans: schedules of known jobs, computed before anything runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import ceil, inf
from pathlib import Path
from typing import Any

from slotwise.core.cluster import Cluster
from slotwise.core.errors import InputError, is_number, option_name, shown, suggestion
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.objective import Objective
from slotwise.core.pools import PoolTree, check_fits, check_open
from slotwise.core.resources import GPU, UNIT, amount_text
from slotwise.core.tolerances import SLOTS
from slotwise.insight.bound import Work, objective_bound, sizes_of
from slotwise.policy.dmrs.algorithm import guarantee, linear_program, skewness
from slotwise.policy.dmrs.jobs import machines_of, related_machines
from slotwise.policy.dmrs.planning import PLANNERS
from slotwise.policy.planning import plan_schedules
from slotwise.policy.scheduler import check_budget, make_allocator
from slotwise.policy.search.budget import Budget
from slotwise.results import Plan, TaskPlan
from slotwise.sources import Slots, Source, WorkloadLike, cluster_of, objective_of, read_source

TASK_STEPS = 200_000
"""Steps of `dmrs-best` times (tasks + 100), to which the cost of a step is proportional."""

COUNTED = "a plan counts each task, with what it requests, as"
"""Before the number of slots in the message about a task that its pool may not hold."""


def plan(
    workload: WorkloadLike,
    allocator: str = "flex",
    *,
    objective: Objective | str | None = None,
    slots: Slots | None = None,
    resources: Mapping[str, Any] | None = None,
    history: str | Path | None = None,
    budget_seconds: float | None = None,
    budget_steps: int | None = None,
) -> Plan:
    """Compute the malleable schedule of an allocator when all jobs are present at time 0.

    FLEX and FlowFlex search for `budget_steps` steps, by default a number that depends on the
    numbers of jobs and phases. They stop earlier if the schedule is proven optimal or nothing
    improves it. So the schedule does not depend on the load of the machine. With
    `budget_seconds` a clock ends the search instead. Plans do not copy data: a phase begins
    when all phases before it are done. A `history` gives the estimated work of programs; slots
    have the stated speeds.
    """
    source = read_source(workload).with_options(history=history)
    aim = objective_of(objective, source)
    cluster = cluster_of(source.workload, slots, resources)
    _refuse_changes(source, slots)
    if any(host.speed != 1 for host in cluster.hosts):
        raise InputError(
            "a malleable plan takes slots of speed 1; set every host's speed to 1, plan whole"
            " tasks (--scheduler dmrs, in Python plan_tasks), or simulate"
        )
    chosen = make_allocator(allocator, aim)
    budget = _budget(budget_seconds, budget_steps)
    pools = source.pools(cluster)
    with source.locating():
        jobs = source.jobs()
        source.refuse_unknown_work(jobs, "a plan")
        aim.check(jobs)
        for job in jobs:
            check_fits(job, cluster, pools)
            check_open(job, pools)
            _refuse_gangs(job)
        counted = _counted(jobs, cluster, pools)
        _refuse_limits(counted, cluster, pools)
    started = time.perf_counter()
    work = Work.estimated(jobs)
    lowest = -inf
    if aim.aggregate == "max":  # The bound of a sum takes longer and needs a value.
        lowest = objective_bound(aim, jobs, cluster, work)
    with source.locating():
        planned = plan_schedules(counted, cluster, pools, chosen, budget, lowest)
    by_id, size = {job.id: job for job in jobs}, sizes_of(jobs, cluster, work)
    value, best = min(
        ((aim.value(by_id, s.completion(), size), s) for s in planned.schedules),
        key=lambda pair: pair[0],
    )
    seconds = time.perf_counter() - started
    widths = _widths(jobs, counted)
    least = {job.id: _held(job, planned.min_share, widths) for job in jobs}
    bound = objective_bound(aim, jobs, cluster, work, least, value)
    if counted is jobs:  # What is proven of wider tasks is not of the real ones.
        bound = max(bound, planned.bound)
    plan = Plan(
        allocator,
        aim,
        value,
        bound,
        seconds,
        best,
        aim.penalties(jobs),
        planned.short_of,
        planned.is_whole,
        widths,
    )
    assert bound <= value or plan.is_exact, "no schedule is better than its bound"
    return plan


def plan_tasks(
    workload: WorkloadLike,
    scheduler: str = "dmrs-best",
    *,
    slots: Slots | None = None,
    resources: Mapping[str, Any] | None = None,
    history: str | Path | None = None,
    budget_seconds: float | None = None,
    budget_steps: int | None = None,
) -> TaskPlan:
    """Compute a schedule of whole tasks on hosts of any speed, for jobs with arrival times.

    The objective is the sum of weight times completion. `dmrs` is the algorithm of the paper,
    `dmrs-best` improves it by search; the others are those that the paper compares with
    DMRS. A `history` gives the estimated work of programs and the speeds of hosts. The
    budget is as in `plan`: by default a number of steps, which depends on the number of tasks.
    """
    if scheduler not in tuple(PLANNERS):  # A value that cannot be hashed is unknown, too.
        raise InputError(
            f"unknown scheduler {shown(scheduler)}; {suggestion(scheduler, PLANNERS)}"
        )
    source = read_source(workload).with_options(history=history)
    _refuse_changes(source, slots)
    cluster = source.believed(cluster_of(source.workload, slots, resources))
    with source.locating():
        jobs = source.jobs()
        _refuse_dependencies(jobs)
        source.refuse_unknown_work(jobs, "a plan")
        pools = source.pools(cluster)
        for job in jobs:
            check_open(job, pools)
    tasks = sum(phase.tasks.count for job in jobs for phase in job.phases)
    budget = _budget(budget_seconds, budget_steps) or Budget(ceil(TASK_STEPS / (tasks + 100)))
    hosts = machines_of(cluster)
    with source.locating():
        problem = related_machines(jobs, cluster, pools)
    started = time.perf_counter()
    runs = PLANNERS[scheduler](problem, budget)
    seconds = time.perf_counter() - started
    value = problem.value(runs.completion)
    response = objective_bound(Objective(), jobs, cluster, Work.estimated(jobs), {}, value)
    waited = float(problem.weight @ problem.release)
    bound = max(linear_program(problem).value, response + waited)
    names = [[phase.name for phase in job.topological] for job in jobs]
    return TaskPlan(
        scheduler,
        value,
        bound,
        guarantee(problem) if scheduler.startswith("dmrs") else None,
        skewness(problem),
        seconds,
        {job.id: float(at) for job, at in zip(jobs, runs.completion, strict=True)},
        [
            (
                jobs[run.job].id,
                names[run.job][run.stage],
                run.task,
                hosts[run.machine],
                run.start,
                run.end,
            )
            for run in runs.runs
        ],
    )


def _refuse_changes(source: Source, slots: Slots | None) -> None:
    """Raise InputError for changes of hosts or pools, which a plan cannot follow."""
    if source.workload.pool_changes:
        raise InputError(
            "pool_changes: a plan is for pools that do not change; leave them out, or simulate"
        )
    if source.workload.changes and slots is None:
        raise InputError(
            "cluster.changes: a plan is for hosts that do not change; leave them out, or"
            " simulate"
        )


def _refuse_dependencies(jobs: Sequence[Job]) -> None:
    """Raise InputError for a job that waits for others: DMRS and its peers plan single jobs."""
    for job in jobs:
        if job.predecessors:
            raise InputError(
                f"job {job.id!r} waits for other jobs, which a plan of whole tasks does not"
                " support; make them phases of one job, or simulate"
            )


def _refuse_gangs(job: Job) -> None:
    """Raise InputError for a gang, or given hosts: a malleable plan divides work anywhere."""
    for phase in job.phases:
        if phase.gang:
            raise InputError(
                f"job {job.id!r}, phase {phase.name!r}: its tasks start together, as a gang,"
                " and a plan divides work anywhere; simulate"
            )
        if phase.hosts:
            raise InputError(
                f"job {job.id!r}, phase {phase.name!r}: its tasks run only on given hosts, and"
                " a plan divides work anywhere; simulate"
            )


def _refuse_limits(jobs: Sequence[Job], cluster: Cluster, pools: PoolTree) -> None:
    """Raise InputError if tasks on all slots could exceed a pool's limit of a resource."""
    slots = sum(cluster.capacity.values())
    for job in jobs:
        for phase in job.phases:
            for pool in pools.path(job.pool) if phase.needs else ():
                for name, most in pool.resources_max.items():
                    if phase.needs.get(name, 0) * slots > most * phase.slots:
                        raise InputError(
                            f"job {job.id!r}, phase {phase.name!r}: pool {pool.name!r} may hold"
                            f" at most {name} {amount_text(name, most)} (resources_max), less"
                            " than tasks on all slots request; a malleable plan divides slots"
                            " alone: simulate"
                        )


def _counted(jobs: Sequence[Job], cluster: Cluster, pools: PoolTree) -> Sequence[Job]:
    """The jobs as a malleable plan counts them; InputError if it would exceed a resource.

    A malleable plan divides slots. If slots run out first everywhere, the jobs are as stated.
    Otherwise a task counts as more slots: those of its host over the tasks like it for which
    the other resources suffice there, rounded up; of unlike hosts the most. So each host has
    enough to run what a plan puts on its slots, one phase after another.
    O(hosts * (requested resources + phases)).
    """
    if _scarce(jobs, cluster) is None:
        return jobs
    counted = []
    for job in jobs:
        phases = []
        for phase in job.phases:
            try:
                width = _width(phase, cluster)
                pools.check_slots(job.pool, phase.kind, width, COUNTED)
            except InputError as error:
                raise InputError(f"job {job.id!r}, phase {phase.name!r}: {error}") from None
            phases.append(_widened(phase, width))
        counted.append(replace(job, phases=tuple(phases)))
    if (what := _scarce(counted, cluster)) is not None:
        raise InputError(what)
    return counted


def _width(phase: Phase, cluster: Cluster) -> int:
    """The slots as which a task counts; its own if its resources never run out before them.

    InputError if a host with such slots cannot run it.
    """
    kind, width = cluster.slot_kind(phase.kind), phase.slots
    for host in cluster.hosts if phase.needs else ():
        slots, fit = host.slots.get(kind, 0), host.amounts.times(phase.needs)
        if slots and not fit:
            raise InputError(
                f"each task requests {phase.needs}, and host {host.name!r} has not enough for"
                " one; a malleable plan divides work anywhere: simulate"
            )
        width = max(width, ceil(slots / fit) if fit else 0)
    return width


def _widened(phase: Phase, width: int) -> Phase:
    """The phase with tasks of this width, as many at once as before."""

    def scaled(slots: int) -> int:
        return slots // phase.slots * width

    most = None if phase.slots_max is None else scaled(phase.slots_max)
    return replace(phase, slots=width, slots_min=scaled(phase.slots_min), slots_max=most)


def _widths(jobs: Sequence[Job], counted: Sequence[Job]) -> dict[PhaseId, int]:
    """The slots as which tasks count that occupy fewer."""
    return {
        PhaseId(job.id, one.name): other.slots
        for job, wider in zip(jobs, counted, strict=True)
        for one, other in zip(job.phases, wider.phases, strict=True)
        if one.slots != other.slots
    }


def _held(job: Job, min_share: Mapping[str, float], widths: Mapping[PhaseId, int]) -> float:
    """The slots that a job of one phase holds at least, of those as which they count."""
    phase = job.phases[0]
    width = widths.get(PhaseId(job.id, phase.name), phase.slots)
    return min_share.get(job.id, 0.0) * phase.slots / width


def _scarce(jobs: Sequence[Job], cluster: Cluster) -> str | None:
    """A resource that may run out before the slots of a host do, as a message; None if none.

    It is enough if a task on each slot leaves enough of it, whichever tasks these are.
    O(hosts * requested resources + phases).
    """
    most: dict[tuple[str, str], tuple[float, str]] = {}
    for job in jobs:
        for phase in job.phases:
            for name, requested in phase.needs.pairs:
                amount = float(requested)
                if name == GPU and requested < UNIT:  # Whole parts are on one device.
                    amount = UNIT / (UNIT // requested)
                key, text = (cluster.slot_kind(phase.kind), name), phase.needs.texts()[name]
                what = f"job {job.id!r}, phase {phase.name!r}: each task requests {name} {text}"
                most[key] = max(most.get(key, (0.0, "")), (amount / phase.slots, what))
    for host in cluster.hosts:
        needed: dict[str, float] = {}
        for (kind, name), (amount, what) in most.items():
            needed[name] = needed.get(name, 0.0) + amount * host.slots.get(kind, 0)
            if needed[name] > host.amounts.get(name, 0) * (1 + SLOTS):
                return (
                    f"{what}, and host {host.name!r} has not enough for tasks on all of its"
                    " slots; a malleable plan divides slots alone: simulate"
                )
    return None


def _budget(seconds: float | None, steps: int | None) -> Budget | None:
    """Return a budget of steps or of seconds, or None for the default."""
    if seconds is not None and steps is not None:
        raise InputError(
            f"{option_name('budget_seconds')} and {option_name('budget_steps')} are both given;"
            " leave one out"
        )
    if steps is not None:
        if not is_number(steps) or not steps >= 0:
            raise InputError(
                f"{option_name('budget_steps')} is {shown(steps)}; expected a number >= 0"
            )
        return Budget(steps)
    check_budget(seconds)
    if seconds is None:
        return None

    @cache
    def end() -> float:
        """The end of the search, which begins at the first call."""
        return time.perf_counter() + seconds

    return Budget(is_over=lambda: time.perf_counter() >= end())
