"""Lower bounds where hosts come and go: below the optimum found by trying all schedules."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import HostAdded, HostChange, HostRemoved
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Header
from slotwise.core.objective import Objective
from slotwise.insight.bound import Work, objective_bound, sizes_of
from slotwise.insight.present_hosts import PresentHosts
from tiers import examples

TOLERANCE = 1e-9


def hosts_of(first: int, changes: list[HostChange]) -> PresentHosts:
    """A host with some slots, and the changes that follow."""
    cluster = Cluster((Host("first", {"task": first}),))
    hosts = PresentHosts(Header("simulated", {"name": "fair"}, {}, cluster, (), None))
    for change in changes:
        hosts.change(change, 0)
    return hosts


def jobs_of(rows: list[tuple[int, int, int]]) -> list[Job]:
    """Jobs by arrival, number of tasks of 1 s, and max share; due at 3 s after they arrive."""
    return [
        Job(
            f"j{number}",
            (Phase("map", Tasks(tasks, 1.0), slots_max=most),),
            float(arrival),
            weight=1.0 + number,
            deadline=arrival + 3.0,
        )
        for number, (arrival, tasks, most) in enumerate(rows)
    ]


def bound_of(hosts: PresentHosts, jobs: list[Job], objective: Objective, value: float) -> float:
    """The lower bound, given the value of a known schedule that ends by 100 s."""
    work, missing = Work.estimated(jobs), hosts.missing(100.0)
    return objective_bound(objective, jobs, hosts.widest(), work, None, value, missing)


def optimum(
    slots: list[int], jobs: list[Job], objective: Objective, hosts: PresentHosts
) -> float:
    """The least value of all schedules in which tasks begin at whole seconds.

    `slots` are those of each second; the last number holds from then on.
    """
    sizes = sizes_of(jobs, hosts.widest(), Work.estimated(jobs))
    by_id = {job.id: job for job in jobs}

    @cache
    def ends(second: int, left: tuple[int, ...]) -> frozenset[tuple[float, ...]]:
        """The possible completions of the jobs, 0 for those that are over."""
        if not any(left):
            return frozenset({(0.0,) * len(left)})
        found = set()
        for more in splits(second, left, slots[min(second, len(slots) - 1)]):
            then = tuple(n - k for n, k in zip(left, more, strict=True))
            over = [n > 0 and m == 0 for n, m in zip(left, then, strict=True)]
            for rest in ends(second + 1, then):
                found.add(
                    tuple(second + 1.0 if o else r for o, r in zip(over, rest, strict=True))
                )
        return frozenset(found)

    def splits(second: int, left: tuple[int, ...], room: int) -> list[tuple[int, ...]]:
        """The tasks of each job in one second, as many as possible."""
        tops = [
            min(n, job.phases[0].slots_most) if job.arrival <= second else 0
            for n, job in zip(left, jobs, strict=True)
        ]
        choices: list[tuple[int, ...]] = [()]
        for top in tops:
            choices = [(*c, k) for c in choices for k in range(top + 1) if sum(c) + k <= room]
        return [c for c in choices if sum(c) == min(room, sum(tops))]

    counts = tuple(job.phases[0].tasks.count for job in jobs)
    return min(
        objective.value(by_id, dict(zip(by_id, found, strict=True)), sizes)
        for found in ends(0, counts)
    )


def test_slots_that_come_later_are_not_used_before() -> None:
    """Ten tasks, one slot, and nine more after ten seconds: ten seconds at best."""
    hosts = hosts_of(1, [HostAdded(10.0, Host("h", {"task": 9}))])
    jobs, makespan = jobs_of([(0, 10, 10)]), Objective("makespan", "max")
    assert bound_of(hosts, jobs, makespan, 11.0) == pytest.approx(10.0, rel=1e-4)
    assert 8.0 <= bound_of(hosts, jobs, Objective(), 11.0) <= 10.0


def test_a_schedule_may_use_a_host_that_comes_later() -> None:
    """The bound of the hosts of the beginning alone would be above this optimum."""
    hosts = hosts_of(1, [HostAdded(1.0, Host("h", {"task": 9}))])
    jobs = jobs_of([(0, 11, 11)])
    assert optimum([1, 10], jobs, Objective(), hosts) == 2.0
    assert bound_of(hosts, jobs, Objective(), 3.0) <= 2.0
    only_first = objective_bound(
        Objective(), jobs, hosts_of(1, []).widest(), Work.estimated(jobs)
    )
    assert only_first == pytest.approx(11.0)


def test_hosts_that_leave_do_not_change_what_was_possible_before() -> None:
    """All was done before."""
    hosts = hosts_of(4, [HostRemoved(1.0, "first")])
    assert hosts.widest().capacity == {"task": 4}
    assert bound_of(hosts, jobs_of([(0, 4, 4)]), Objective(), 1.0) <= 1.0


def test_the_widest_cluster_has_the_fastest_slots_of_each_number() -> None:
    """One fast slot is there first, three slow ones later; never all of them."""
    hosts = hosts_of(1, [])
    hosts.change(HostAdded(1.0, Host("fast", {"task": 1}, speed=3.0)), 0)
    hosts.change(HostRemoved(2.0, "fast"), 0)
    hosts.change(HostAdded(3.0, Host("slow", {"task": 4})), 0)
    speeds = [h.speed for h in hosts.widest().hosts for _ in range(h.slots["task"])]
    assert sorted(speeds, reverse=True) == [3.0, 1.0, 1.0]


OBJECTIVES = [
    Objective(),
    Objective("stretch"),
    Objective("slowdown"),
    Objective("tardy"),
    Objective("tardiness"),
    Objective("lateness"),
    Objective("makespan", "max"),
    Objective("response", "max"),
    Objective("tardiness", "max"),
]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 3)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(OBJECTIVES),
)
@settings(max_examples=examples(10, slow=2000))
def test_no_schedule_on_these_hosts_is_better_than_the_bound(
    slots: list[int], rows: list[tuple[int, int, int]], objective: Objective
) -> None:
    """Slots change at whole seconds; at last there are two."""
    slots = [*slots, 2]
    hosts = following(slots)
    jobs = jobs_of(rows)
    best = optimum(slots, jobs, objective, hosts)
    for known in (best, best + 1.0, 3.0 * abs(best) + 10.0):
        assert bound_of(hosts, jobs, objective, known) <= best + TOLERANCE * max(1.0, abs(best))


def following(slots: list[int]) -> PresentHosts:
    """Hosts with these numbers of slots in each second, each in place of the one before."""
    hosts, name = hosts_of(max(1, slots[0]), []), "first"
    if not slots[0]:
        hosts.change(HostRemoved(0.0, "first"), 0)
        name = ""
    for second, (before, now) in enumerate(pairwise(slots), 1):
        if before == now:
            continue
        if name:
            hosts.change(HostRemoved(float(second), name), 0)
        name = f"h{second}" if now else ""
        if now:
            hosts.change(HostAdded(float(second), Host(name, {"task": now})), 0)
    return hosts
