"""FLEX and FlowFlex count the remaining work of all phases of a job, as it is estimated now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from slotwise.core.state import State
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.claims import claims_of
from slotwise.policy.flex import Flex, of_whole_jobs
from slotwise.policy.flowflex.allocator import flows_left
from slotwise.policy.resource_shares import share_all

CLUSTER = Cluster((Host("h", {"map": 4, "reduce": 2}),))


def two_phases(name: str, maps: float, reduces: float) -> Job:
    """Four maps and two reduces of so many seconds each."""
    reduce = Phase("reduce", Tasks(2, reduces), "reduce", frozenset({"map"}))
    return Job(name, (Phase("map", Tasks(4, maps), "map"), reduce))


def map_claims(*jobs: Job) -> Claims:
    """The claims of all maps; nothing has begun."""
    works = {job.id: [phase.work_total() or 0.0 for phase in job.phases] for job in jobs}
    return Claims(
        capacity=4,
        weight=[1.0] * len(jobs),
        arrival=[0.0] * len(jobs),
        work=[works[job.id][0] for job in jobs],
        min_share=[0.0] * len(jobs),
        max_share=[4.0] * len(jobs),
        group=[0] * len(jobs),
        groups=[Group(1.0, 0, float("inf"))],
        owner=[(job, job.phases[0]) for job in jobs],
        cluster=CLUSTER,
        left={job.id: works[job.id] for job in jobs if len(job.phases) > 1},
    )


def test_a_short_map_before_a_long_reduce_is_no_small_job() -> None:
    """It has the shorter maps, but the other job is done sooner."""
    claims = map_claims(two_phases("long", 1.0, 100.0), two_phases("short", 2.0, 1.0))
    assert Flex().share(claims) == [0, 4]
    assert Flex().share(replace(claims, left={})) == [4, 0]


def test_work_on_other_slots_counts_by_the_time_that_these_take() -> None:
    """Reduces of 20 s on 2 reduce slots keep them as long as 40 s of work 4 map slots."""
    assert of_whole_jobs(map_claims(two_phases("a", 1.0, 10.0))).tolist() == [4 + 40]


def test_a_job_of_one_phase_counts_as_before() -> None:
    """Its work is that of the claim, whatever other jobs have."""
    one = Job("one", (Phase("map", Tasks(4, 3.0), "map"),))
    claims = map_claims(two_phases("two", 1.0, 10.0), one)
    assert of_whole_jobs(claims).tolist() == [44, 12]


def test_flowflex_plans_later_phases_as_they_are_estimated_now() -> None:
    """The maps took twice as long as stated, and so will the reduces."""
    claims = map_claims(two_phases("a", 1.0, 10.0))
    found = flows_left({"map": replace(claims, left={"a": [8.0, 40.0]})}, Objective())
    assert found.flows.work.tolist() == [4.0, 40.0]
    plain = flows_left({"map": replace(claims, left={})}, Objective())
    assert plain.flows.work.tolist() == [4.0, 20.0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_claims_of_one_job_are_ranked_alike(order: tuple[int, int]) -> None:
    """Two ready phases of a job of 100 s come after a job of 50 s."""
    pair = Job("pair", (Phase("a", Tasks(1, 90.0), "map"), Phase("b", Tasks(1, 10.0), "map")))
    other = Job("other", (Phase("map", Tasks(5, 10.0), "map"),))
    owners = [(pair, pair.phases[number]) for number in order] + [(other, other.phases[0])]
    claims = replace(
        map_claims(pair, pair, other),
        owner=owners,
        work=[[90.0, 10.0][number] for number in order] + [50.0],
        max_share=[4.0, 4.0, 4.0],
        left={"pair": [90.0, 10.0]},
    )
    assert Flex().share(claims) == [0, 0, 4]


def with_large_reduces(name: str) -> Job:
    """Four maps of 2.5 s, then two reduces of 10 s that need all of the memory each."""
    needs = {"memory": 8}
    reduce = Phase("reduce", Tasks(2, 10.0), after=frozenset({"map"}), resources=needs)
    return Job(name, (Phase("map", Tasks(4, 2.5), resources={"memory": 1}), reduce))


def arrived(*jobs: Job) -> Claims:
    """The claims of the first phases of these jobs on four slots and 8 bytes."""
    state = State(Cluster((Host("h", {"task": 4}, resources={"memory": 8}),)))
    for job in jobs:
        state.apply(JobArrived(0.0, job))
    return claims_of(state.at(0.0), "task")[1]


def test_later_phases_count_by_the_greatest_part_that_their_tasks_occupy() -> None:
    """A reduce that needs all memory keeps all four slots from others."""
    claims = arrived(with_large_reduces("a"))
    assert claims.left == {"a": [10.0, 4 * 20.0]}


def test_flex_serves_first_what_is_done_sooner_with_its_memory() -> None:
    """In slots alone the other job has more work: 40 slot-seconds against 30."""
    plain = Job("b", (Phase("map", Tasks(4, 10.0), resources={"memory": 1}),))
    claims = arrived(with_large_reduces("a"), plain)
    assert share_all(Flex(), {"task": claims}) == {"task": [0.0, 4.0]}
    slots_only = replace(claims, left={"a": [10.0, 20.0]})
    assert share_all(Flex(), {"task": slots_only}) == {"task": [4.0, 0.0]}


def test_flowflex_plans_later_phases_by_what_their_tasks_occupy() -> None:
    """Both reduces would hold eight slots at once, and take as long as before."""
    found = flows_left({"task": arrived(with_large_reduces("a"))}, Objective())
    assert found.flows.work.tolist() == [10.0, 80.0]
    assert found.flows.max_share.tolist() == [4.0, 4.0]
