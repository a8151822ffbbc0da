"""Lower bounds of tasks that occupy several slots, against all schedules of tiny cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.insight.bound import Work, objective_bound, sizes_of
from tiers import examples

AIMS = (Objective(), Objective("stretch"), Objective("makespan", "max"), Objective("tardy"))

small_jobs = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from([1.0, 2.0, 3.0]), st.integers(1, 3)),
    min_size=1,
    max_size=3,
).filter(lambda rows: sum(row[0] for row in rows) <= 4)
small_hosts = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([1.0, 2.0])), min_size=1, max_size=2
)


@given(small_jobs, small_hosts, st.sampled_from(AIMS))
@settings(max_examples=examples(40, slow=2000))
def test_no_schedule_is_better(
    rows: list[tuple[int, float, int]], sizes: list[tuple[int, float]], aim: Objective
) -> None:
    """The bound is at most the value of the best of all orders on all hosts."""
    hosts = [Host(f"h{n}", {"task": size}, speed=s) for n, (size, s) in enumerate(sizes)]
    rows = [row for row in rows if row[2] <= max(size for size, _ in sizes)]
    if not rows:
        return
    cluster, jobs = Cluster(tuple(hosts)), made(rows)
    work = Work(
        {PhaseId(job.id, "p"): job.phases[0].work_total() or 0.0 for job in jobs},
        {PhaseId(job.id, "p"): row[1] for job, row in zip(jobs, rows, strict=True)},
    )
    bound = objective_bound(aim, jobs, cluster, work)
    by_id, size = {job.id: job for job in jobs}, sizes_of(jobs, cluster, work)
    best = min(aim.value(by_id, times, size) for times in schedules(rows, hosts))
    assert bound <= best + 1e-9


def made(rows: Sequence[tuple[int, float, int]]) -> list[Job]:
    """A job of one phase for each row: its tasks, their seconds and their slots."""
    return [
        Job(f"j{n}", (Phase("p", Tasks(count, seconds), slots=width),), deadline=3.0)
        for n, (count, seconds, width) in enumerate(rows)
    ]


def schedules(
    rows: Sequence[tuple[int, float, int]], hosts: Sequence[Host]
) -> Iterator[dict[str, float]]:
    """The completions of the jobs in every order of tasks and with every choice of hosts.

    Each task begins as early as possible; some such schedule is optimal.
    """
    tasks = [n for n, row in enumerate(rows) for _ in range(row[0])]
    for order in sorted(set(permutations(tasks))):
        for places in product(range(len(hosts)), repeat=len(order)):
            if all(
                hosts[p].slots["task"] >= rows[n][2] for n, p in zip(order, places, strict=True)
            ):
                free = [[0.0] * host.slots["task"] for host in hosts]
                ends: dict[str, float] = {}
                for n, p in zip(order, places, strict=True):
                    _, seconds, width = rows[n]
                    free[p].sort()
                    end = free[p][width - 1] + seconds / hosts[p].speed
                    free[p][:width] = [end] * width
                    ends[f"j{n}"] = max(ends.get(f"j{n}", 0.0), end)
                yield ends


def test_only_slots_of_whole_tasks_count() -> None:
    """Four tasks of two slots on two hosts of three: two at a time, so 2 s, not 8/6 s."""
    cluster = Cluster((Host("a", {"task": 3}), Host("b", {"task": 3})))
    (job,) = made([(4, 1.0, 2)])
    work = Work({PhaseId("j0", "p"): 8.0}, {PhaseId("j0", "p"): 1.0})
    assert objective_bound(Objective(), [job], cluster, work) == pytest.approx(2.0)
