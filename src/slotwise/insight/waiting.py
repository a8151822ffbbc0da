"""Why a job of a running scheduler waits: the reason, its position, and who is ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slotwise.core.objective import Objective
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import path_to
from slotwise.core.state import State
from slotwise.insight.explain import explain_state
from slotwise.insight.explanation import Explanation
from slotwise.insight.reasons import AboveShare, WhyWaiting
from slotwise.insight.why import could_start, rounded_up, why_now
from slotwise.policy.allocator import is_in_order, reads_finish, reads_service
from slotwise.policy.claims import all_claims
from slotwise.policy.flex import BUDGET_SECONDS, STEP_SECONDS, AddOn, Flex
from slotwise.policy.las import levels_of
from slotwise.policy.scheduler import BACKFILLINGS, QUEUEINGS, make_allocator
from slotwise.policy.search.budget import Budget

AHEAD_MAX = 3
"""The most jobs before a waiting one that are named."""

ABOVE_MAX = 3
"""The most pools above their shares that are named."""

SOLVED_MAX = 100
"""The most phases of which the order of an objective that needs a search is found: 30 ms."""


def explain_now(
    state: State,
    job: str,
    pool: str,
    scheduler: str,
    objective: Objective,
    now: float | None = None,
) -> Explanation:
    """`explain_state`, with why the job waits. O(n log n) with n ready phases."""
    found = explain_state(state, job, pool, scheduler, now=now)
    if not found.phases:
        return found
    return replace(found, waiting=why_waiting(state, job, scheduler, objective))


def why_waiting(state: State, job: str, scheduler: str, objective: Objective) -> WhyWaiting:
    """Why a job that has arrived holds no more slots now. It changes nothing."""
    phases = state.phases_of(job)
    phase = _shortest(phases)
    found = why_now(state, phase, scheduler)
    why = WhyWaiting(job, found.code, found.sentence, found.remedy, found.lacks)
    if job in state.awaiting_jobs:
        return why
    if job in state.awaiting_admission:
        return _placed(why, state.awaiting_admission, "admission")
    if not could_start(phase) or not state.capacity(phase.slot_kind):
        return why
    if scheduler in QUEUEINGS:
        left = [one for one in state.queues.jobs if _waits(state, one) or one == job]
        return _placed(why, left, "queues")
    *_, whole_kind = path_to(phase.pool)
    is_queue = whole_kind.is_in_turn or scheduler in BACKFILLINGS
    group = whole_kind if is_queue else phase.pool
    order, served = "priority and arrival", list(phases_below(group))
    if scheduler in BACKFILLINGS:
        order = "backfilling"
        served.sort(key=lambda one: (one.urgency, one.order))
    elif not group.is_in_turn:
        order, ranks = _ranks(state, phase.slot_kind, scheduler, objective)
        # Those with an allocation come first; of the others the state knows the arrival only.
        served.sort(key=lambda one: (one.allocated <= 0) * (1 + ranks.get(one, len(ranks))))
    jobs = list(dict.fromkeys(one.id.job for one in served))
    shares = () if is_queue else state.shares(phase.slot_kind)
    held = [one for one in shares if one.held > rounded_up(one.share)]
    path = set(path_to(phase.pool))
    above = [AboveShare(one.name, one.held, one.share) for one in held if one not in path]
    placed = _placed(why, jobs, order, [one for one in jobs if _waits(state, one)])
    pool = "" if group is whole_kind else group.name
    return replace(placed, pool=pool, above=tuple(above[:ABOVE_MAX]))


def _shortest(phases: Sequence[PhaseState]) -> PhaseState:
    """The phase that is meant: that waits for slots, has more tasks, or runs; the first one."""
    is_meant = (could_start, lambda phase: phase.has_more, lambda phase: phase.running)
    found = (phase for meant in is_meant for phase in phases if meant(phase))
    return next(found, phases[0])


def _waits(state: State, job: str) -> bool:
    """Whether a job is not over and holds nothing."""
    phases = state.phases_of(job)
    return bool(phases) and not any(phase.running for phase in phases)


def _placed(
    why: WhyWaiting,
    jobs: Sequence[str],
    order: str,
    waiting: Sequence[str] | None = None,
) -> WhyWaiting:
    """With the position of the job among those that wait; `jobs` are in the order."""
    if why.job not in jobs:
        return why
    place, queue = jobs.index(why.job), jobs if waiting is None else waiting
    ahead = tuple(jobs[max(0, place - AHEAD_MAX) : place])
    position = queue.index(why.job) + 1 if why.job in queue else None
    return replace(why, position=position, waiting=len(queue), order=order, ahead=ahead)


def _ranks(
    state: State, kind: str, scheduler: str, objective: Objective
) -> tuple[str, Mapping[PhaseState, int]]:
    """By what a scheduler orders the ready phases of a kind, and the place of each."""
    if scheduler == "fair":
        return "shares", {}
    allocator = make_allocator(scheduler, objective)
    if reads_finish(allocator):
        finish = state.virtual.finish if state.virtual else {}
        last = max(finish.values(), default=0.0)  # Of those that came since it was computed.
        ready = sorted(state.ready(kind), key=lambda one: finish.get(one.id.job, last))
        return "virtual time", {phase: place for place, phase in enumerate(ready)}
    ids, by_kind = all_claims(allocator, state)
    claims, rule, places = by_kind[kind], "allocation", list[int]()
    flex = allocator.flex if isinstance(allocator, AddOn) else allocator
    if reads_service(allocator):
        rule, keys = "attained service", levels_of(claims)
        places = sorted(range(len(claims)), key=keys.__getitem__)
    elif is_in_order(flex) and (found := flex.order(claims)) is not None:
        rule, places = "cost", found
    elif isinstance(flex, Flex) and len(claims) <= SOLVED_MAX:
        budget = Budget(BUDGET_SECONDS / (STEP_SECONDS * len(claims)))
        _, solution = flex.solve(claims, budget)
        ends = solution.completion.tolist()
        rule, places = "deadline", sorted(range(len(ends)), key=ends.__getitem__)
    names = [ids[kind][number] for number in places]
    return rule, {state.phase(name): place for place, name in enumerate(names)}
