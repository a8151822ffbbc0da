"""Many equal jobs: decisions take less time than the plain form of FLEX, and are the same."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.plain_flex import share_plainly
from slotwise.core.cluster import Cluster
from slotwise.core.estimation import work_left
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.core.state import State
from slotwise.policy import flex
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.flex import Flex
from slotwise.policy.search import solve
from tiers import examples

INF = float("inf")
SUMS = ("response", "lateness", "stretch", "slowdown", "tardy", "tardiness", "sla")


@st.composite
def equal_jobs(draw: st.DrawFn, most: int) -> Claims:
    """Up to `most` jobs of a few kinds, mostly of one task, in two pools."""
    kinds = [
        (
            draw(st.sampled_from([1, 1, 1, 5])),
            draw(st.sampled_from([0.1, 1.0, 2.5, 30.0])),
            draw(st.sampled_from([1.0, 1.0, 3.0])),
            draw(st.sampled_from([1.0, 4.0, 40.0])),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    chosen = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=most))
    gap = draw(st.sampled_from([0.0, 0.0, 0.1]))  # Between arrivals, and so due dates.
    owner, numbers = [], [kinds[kind] for kind in chosen]
    for place, (tasks, work, weight, due) in enumerate(numbers):
        at, phase = gap * place, Phase("p", Tasks(tasks, work))
        steps = ((at + due, weight), (at + 3 * due, 2 * weight))
        job = Job(f"{place}", (phase,), at, weight=weight, deadline=at + due, steps=steps)
        owner.append((job, phase))
    groups = [Group(1.0, 0.0, INF), Group(1.0, 0.0, INF)]
    if draw(st.booleans()):
        groups = [Group(1.0, 1.0, INF), Group(1.0, 0.0, 2.0)]
    capacity = draw(st.sampled_from([2, 2, 8, 100]))
    of = Claims.of(
        capacity,
        [tasks * work for tasks, work, *_ in numbers],
        weight=[weight for *_, weight, _ in numbers],
        max_share=[float(tasks) for tasks, *_ in numbers],
        arrival=[job.arrival for job, _ in owner],
    )
    group = [place % 2 for place in range(len(owner))]
    return replace(of, owner=owner, group=group, groups=groups, now=owner[-1][0].arrival)


@pytest.mark.parametrize("penalty", SUMS)
@settings(max_examples=examples(8, slow=150))
@given(claims=equal_jobs(60), budget=st.sampled_from([None, None, 0.01]))
def test_the_slots_are_those_of_the_plain_form(
    penalty: str, claims: Claims, budget: float | None
) -> None:
    """Each job of many equal ones gets exactly the slots that it gets in the plain form."""
    allocator = Flex(Objective(penalty), budget_seconds=budget)
    assert allocator.share(claims) == share_plainly(allocator, claims)


@pytest.mark.parametrize("penalty", ["tardiness", "tardy", "sla"])
@settings(max_examples=examples(20, slow=300))
@given(
    claims=equal_jobs(20), budget=st.sampled_from([None, None, 0.01]), is_whole=st.booleans()
)
def test_the_slots_of_very_many_jobs_are_those_of_the_plain_form(
    penalty: str, claims: Claims, budget: float | None, is_whole: bool
) -> None:
    """The short cuts of thousands of jobs, taken for some."""
    if is_whole:  # Each claim is the only one of its job, as a snapshot with columns says.
        jobs = [job for job, _ in claims.owner]
        weights, dates = ([job.weight for job in jobs], [job.deadline for job in jobs])
        claims = replace(claims, job_weight=weights, deadline=dates)
    allocator = Flex(Objective(penalty), budget_seconds=budget)
    with patch.object(flex, "MAX_PROMISES", 3), patch.object(solve, "MAX_PROMISES", 3):
        assert allocator.share(claims) == share_plainly(allocator, claims)


def test_many_jobs_with_deadlines_get_the_slots_of_the_plain_form() -> None:
    """A hundred calls, each with a deadline of its own, on two slots."""
    phase = Phase("p", Tasks(1, 1.0))
    owner = [(Job(f"{n}", (phase,), 0.0, deadline=9.0 + n / 7), phase) for n in range(100)]
    claims = replace(Claims.of(2, [1.0] * 100, max_share=[1.0] * 100), owner=owner)
    for penalty in ("tardy", "tardiness"):
        allocator = Flex(Objective(penalty))
        assert allocator.share(claims) == share_plainly(allocator, claims)


@given(
    tasks=st.integers(1, 9),
    work=st.sampled_from([None, 0.0, 0.3, 7.0]),
    slots=st.integers(1, 2),
    now=st.floats(0, 1e6),
)
def test_the_work_of_a_phase_that_has_not_begun_is_that_of_its_tasks(
    tasks: int, work: float | None, slots: int, now: float
) -> None:
    """As the general rule gives it without running and finished tasks."""
    state = State(Cluster.of_slots(2), default_work=10.0)
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (Phase("p", Tasks(tasks, work), slots=slots),))))
    each = 10.0 if work is None else work
    by_rule = slots * work_left(each * tasks, 0.0, 0.0, 0.0, 0.0)
    assert state.phase(PhaseId("j", "p")).work_left(now) == by_rule
