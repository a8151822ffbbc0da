"""Planning with an allocator: the whole schedule, by the fastest method that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf

from slotwise.core.cluster import Cluster
from slotwise.core.dependencies import in_order
from slotwise.core.errors import InputError
from slotwise.core.job import PRIORITIES, Job, PhaseId
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.schedule import Schedule
from slotwise.core.tolerances import ROUNDING
from slotwise.policy.allocator import Allocator, Claims
from slotwise.policy.compiled import has_numba
from slotwise.policy.fair import Fair, Fifo
from slotwise.policy.flex import Flex
from slotwise.policy.flowflex.allocator import FlowFlex, whole_flows
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.solve import pieces_of, pieces_of_list
from slotwise.policy.flowflex.solve import solve as solve_flows
from slotwise.policy.fluid import claims_of_progress, fluid_schedule, progress_of
from slotwise.policy.fluid_fair import fair_schedule
from slotwise.policy.malleable import merged, whole_slots
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.exhaustive import not_above_any_order
from slotwise.policy.search.orders import by_height
from slotwise.policy.waterline import scale_to


@dataclass(frozen=True, slots=True)
class Planned:
    """The schedules that an allocator offers, and what it has proven about them.

    schedules  candidates; the caller takes the one of lowest value
    min_share  slots that each of these jobs holds until it is done, in all of the schedules
    bound      lower bound on the value of every schedule that keeps these min shares; -inf if
               none is known
    short_of   the steps of the budget that stopped a search, inf if it was a clock; None if the
               search ended by itself
    is_whole   whether the whole schedule was searched for. If not, the allocator decided again
               at each end of a phase, without the budget
    """

    schedules: Sequence[Schedule]
    min_share: Mapping[str, float] = field(default_factory=dict)
    bound: float = -inf
    short_of: float | None = None
    is_whole: bool = True


FLOW_STEPS, MAX_FLOW_STEPS = 4_000_000, 13_000
"""Steps of a plan by FlowFlex, times phases + 100: a compiled step costs as much as that. So 20
flows of 20 phases get 8,000 steps, which take less than half a second. Fewer than 200 phases
get MAX_FLOW_STEPS."""

FLEX_STEPS = 1_500_000
"""Steps of a plan by FLEX, times jobs + 100, if a step is the packing scheme."""

PROMISE_STEPS = 80_000_000
"""Steps of a plan by FLEX, times (jobs + 100)^2, if a step promises due dates."""

PLAIN_STEPS = 1 / 8
"""The part of the steps without compiled code (extra `fast`): a step takes 15 times as long."""

MAX_PLAIN = 15
"""Phases up to which all steps are taken without compiled code: they are fast enough, and
numba, which takes as long to import as such a plan, need not be imported to count them."""


def plan_schedules(
    jobs: Sequence[Job],
    cluster: Cluster,
    pools: Mapping[str, Pool],
    allocator: Allocator,
    budget: Budget | None = None,
    lowest: float = -inf,
) -> Planned:
    """The plans of an allocator for jobs that are all present at time 0.

    FLEX solves the whole problem at once if it is one of malleable jobs: one phase each, one
    kind of slot, no limits of pools. FlowFlex does so if no phase has a min share and no pool
    has a min or max share. In all other cases shares are decided again at each completion; FLEX
    then also tries Smith's order on the height. InputError for jobs that no plan can include:
    late arrival, unknown work, no work, or work lost in rounding.

    budget  of the search; by default a number of steps that depends on the problem alone
    lowest  a known lower bound on the value, at which the search ends
    """
    _refuse_lost_work(jobs, cluster)
    tree = pools if isinstance(pools, PoolTree) else PoolTree(pools.values())
    if isinstance(allocator, Fifo) and not any(
        p.slots_max or not p.weight for p in tree.values()
    ):
        return Planned([fifo_schedule(jobs, cluster)])
    claims = plain_claims(jobs, cluster, tree)
    min_share = {}
    if claims is not None and allocator.keeps_min_shares:
        floors = scale_to(claims.capacity, claims.min_share)
        min_share = {
            job.id: floor for (job, _), floor in zip(claims.owner, floors, strict=True)
        }
    if isinstance(allocator, FlowFlex) and jobs and _are_free(jobs, tree):
        plans = [_plan_flows(jobs, cluster, allocator, budget, lowest)]
        if claims is not None and allocator.method != "paper":
            # Sharing slots in time may beat every list schedule; FLEX considers it.
            plans.append(_plan_malleable(claims, Flex(allocator.objective), budget))
        schedules = [schedule for plan in plans for schedule in plan.schedules]
        short_of = next((p.short_of for p in plans if p.short_of is not None), None)
        return Planned(schedules, {}, max(plan.bound for plan in plans), short_of)
    if isinstance(allocator, Flex) and claims is not None:
        return replace(_plan_malleable(claims, allocator, budget), min_share=min_share)
    if isinstance(allocator, Fair) and claims is not None and _are_sliced(claims, tree):
        phases = [progress_of(job, phase) for job, phase in claims.owner]
        return Planned([fair_schedule(phases, claims)], min_share)
    tried: list[Allocator] = [allocator]
    if isinstance(allocator, Flex):
        tried.append(replace(allocator, ordering=by_height))
    schedules = [fluid_schedule(jobs, cluster, tree, one) for one in tried]
    return Planned(schedules, min_share, is_whole=False)


def fifo_schedule(jobs: Sequence[Job], cluster: Cluster) -> Schedule:
    """The schedule of `fluid_schedule` under `Fifo`, up to rounding, without limits of pools.

    It is the list schedule of the phases in the order in which they are served. InputError as
    for `fluid_schedule`.
    """
    _refuse_unplannable(jobs)
    served = sorted(jobs, key=lambda job: -PRIORITIES[job.priority])
    place = {job.id: number for number, job in enumerate(served)}
    flows, ids = whole_flows(in_order(served), cluster, Objective())
    ranking = sorted(range(len(ids)), key=lambda phase: (place[ids[phase].job], phase))
    return Schedule(merged(pieces_of_list(PhaseLister(flows).schedule(ranking), ids)))


def _plan_malleable(claims: Claims, flex: Flex, budget: Budget | None) -> Planned:
    """The plan by FLEX for a problem of malleable jobs."""
    if budget is None:
        size = len(claims) + 100
        is_packed = flex.problem(claims).costs.are_lines
        steps = FLEX_STEPS / size if is_packed else PROMISE_STEPS / size**2
        budget = _steps(steps, len(claims))
    problem, solution = flex.solve(claims, budget)
    if problem.aggregate == "sum":
        solution = not_above_any_order(problem, solution, budget)
    phases = [PhaseId(job.id, phase.name) for job, phase in claims.owner]
    pieces = merged(whole_slots(phases, solution.packing))
    return Planned([Schedule(pieces)], {}, solution.bound, _short_of(budget))


def _plan_flows(
    jobs: Sequence[Job],
    cluster: Cluster,
    flowflex: FlowFlex,
    budget: Budget | None,
    lowest: float,
) -> Planned:
    """The plan by FlowFlex for whole jobs."""
    _refuse_unplannable(jobs)
    flows, ids = whole_flows(in_order(jobs), cluster, flowflex.objective)
    budget = budget or flow_budget(len(ids))
    solution = solve_flows(flows, budget, flowflex.method, lowest=lowest)
    pieces = merged(pieces_of(flows, solution, ids))
    return Planned([Schedule(pieces)], {}, solution.bound, _short_of(budget))


def flow_budget(phases: int) -> Budget:
    """The default budget of a plan by FlowFlex."""
    return _steps(min(FLOW_STEPS / (phases + 100), MAX_FLOW_STEPS), phases)


def _short_of(budget: Budget) -> float | None:
    """The steps of a budget that stopped a search; None if the search ended by itself."""
    return budget.steps if budget.was_short else None


def _steps(steps: float, phases: int) -> Budget:
    """A budget of about this number of steps, which are stated for compiled code."""
    is_fast = phases <= MAX_PLAIN or has_numba()
    return Budget(ceil(steps if is_fast else steps * PLAIN_STEPS))


def _are_free(jobs: Sequence[Job], pools: PoolTree) -> bool:
    """Whether there are no min shares, of phases or pools, and no max shares of pools."""
    used = {pool.name: pool for job in jobs for pool in pools.path(job.pool)}
    return not any(
        [pool.has_shares for pool in used.values()]
        + [phase.slots_min for job in jobs for phase in job.phases]
    )


def plain_claims(jobs: Sequence[Job], cluster: Cluster, pools: PoolTree) -> Claims | None:
    """The claims of the jobs if they form one problem of malleable jobs, otherwise None."""
    if any(len(job.phases) > 1 or job.predecessors for job in jobs):
        return None
    if len(cluster.capacity) > 1 or not jobs:
        return None
    phases = [progress_of(job, phase) for job in jobs for phase in job.phases]
    claims = claims_of_progress(phases, sum(cluster.capacity.values()), cluster, pools)
    is_plain = all(group.slots_min == 0 and group.slots_max == inf for group in claims.groups)
    return claims if is_plain else None


SLICED_FROM = 500
"""From this number of jobs, a plan under FAIR consists of slices of time (`fluid_fair`)."""


def _are_sliced(claims: Claims, pools: PoolTree) -> bool:
    """Whether there are many claims, and constant weights alone determine their shares."""
    policies = {group.policy for group in claims.groups}
    weights = {pools[job.pool].job_weights for job, _ in claims.owner}
    is_plain = policies == {"fair"} and weights == {"stated"} and not any(claims.min_share)
    return is_plain and len(claims) >= SLICED_FROM


def _refuse_unplannable(jobs: Sequence[Job]) -> None:
    for job in jobs:
        for phase in job.phases:
            progress_of(job, phase)  # For its InputError.


def _refuse_lost_work(jobs: Sequence[Job], cluster: Cluster) -> None:
    """Raise InputError for phases that are too short, compared with all, for a plan to show."""
    spans = {}
    for job in jobs:
        for phase in job.phases:
            slots = min(phase.slots_most, cluster.capacity[cluster.slot_kind(phase.kind)])
            spans[job.id, phase.name] = (phase.work_total() or 0.0) / max(slots, 1)
    shortest = ROUNDING * sum(spans.values())
    for (job_id, name), span in spans.items():
        if 0 < span < shortest:
            raise InputError(
                f"job {job_id!r}, phase {name!r}: takes {span:.3g} s, which is lost in a plan"
                f" of {sum(spans.values()):.3g} s; leave it out, or simulate"
            )
