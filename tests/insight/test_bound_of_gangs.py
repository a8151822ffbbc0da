"""Lower bounds of jobs with gangs, compared with the best schedule of all."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.insight.bound import Work, objective_bound
from tiers import examples

SLOTS = 3

Unit = tuple[int, int, tuple[int, ...]]
"""A job, when it arrives, and the seconds of the tasks that start together."""


def best(units: list[Unit], jobs: int, arrivals: list[int]) -> int:
    """The least sum of responses: each order, each unit as early as the slots allow.

    Some order gives an optimal schedule, since moving a unit to an earlier start delays none.
    """
    return min(_responses(order, jobs, arrivals) for order in permutations(units))


def _responses(order: tuple[Unit, ...], jobs: int, arrivals: list[int]) -> int:
    used = [0] * 60
    ends = [0] * jobs
    for job, arrival, seconds in order:
        start = arrival
        while any(
            used[start + second] + sum(second < length for length in seconds) > SLOTS
            for second in range(max(seconds))
        ):
            start += 1
        for length in seconds:
            for second in range(length):
                used[start + second] += 1
        ends[job] = max(ends[job], start + max(seconds))
    return sum(end - arrival for end, arrival in zip(ends, arrivals, strict=True))


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(0, 3),
            st.lists(st.integers(1, 4), min_size=1, max_size=SLOTS),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=examples(40, slow=1000))
def test_no_schedule_is_better_than_the_bound(
    drawn: list[tuple[bool, int, list[int]]],
) -> None:
    """Gangs and narrow tasks on three slots; the works are measured, as after a run."""
    jobs, units = [], []
    work, longest = {}, {}
    for number, (is_gang, arrival, seconds) in enumerate(drawn):
        tasks = Tasks(len(seconds), tuple(map(float, seconds)))
        jobs.append(Job(f"j{number}", (Phase("p", tasks, gang=is_gang),), arrival=arrival))
        work[PhaseId(f"j{number}", "p")] = float(sum(seconds))
        longest[PhaseId(f"j{number}", "p")] = float(max(seconds))
        units += (
            [(number, arrival, tuple(seconds))]
            if is_gang
            else [(number, arrival, (one,)) for one in seconds]
        )
    if len(units) > 6:
        return  # 720 orders are enough.
    value = best(units, len(jobs), [arrival for _, arrival, _ in drawn])
    cluster = Cluster.of_slots(SLOTS)
    bound = objective_bound(Objective(), jobs, cluster, Work(work, longest))
    assert bound <= value * (1 + 1e-9)
