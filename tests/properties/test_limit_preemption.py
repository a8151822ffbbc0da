"""Random trees of pools with limits of a resource: min shares below them are taken back.

Hosts have room for everything, and within each limit the min shares fit, so that nothing but
the limits binds. All tasks below a limit hold the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt
from slotwise.core.events import TaskKilled
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.replay import replay_log
from tiers import examples

AFTER, COMES, LENGTH = 5.0, 1.0, 1000.0
HOSTS = tuple(Host(f"h{n}", {"task": 60}, resources={"memory": 999}) for n in range(2))


def drawn(rng: random.Random) -> tuple[list[Pool], list[Job]]:
    """Pools in up to two limited ones, jobs that fill them, and others that come later."""
    size, grace = rng.choice([1, 2, 3]), rng.choice([0.0, 0.0, 2.0])
    taking = Preemption(least_after=AFTER, grace=grace)
    slots = rng.randint(4, 12)
    inner = rng.randint(2, slots)
    pools = [
        Pool("top", resources_max={"memory": slots * size + rng.randint(0, size - 1)}),
        Pool("inner", parent="top", resources_max={"memory": inner * size}),
    ]
    jobs, left = [], {"top": slots, "inner": inner}
    for number in range(rng.randint(2, 6)):
        name, parent = f"p{number}", rng.choice(["top", "inner"])
        most = min(left["top"], left[parent])
        least = rng.randint(0, most)
        left["top"] -= least
        left["inner"] -= least if parent == "inner" else 0
        is_early = number == 0 or rng.random() < 0.4
        pools.append(
            Pool(name, parent=parent, slots_min=least, preemption=None if is_early else taking)
        )
        needs, count = {"memory": size}, rng.randint(1, 14)
        phase = Phase("p", Tasks(count, LENGTH), resources=needs)
        jobs.append(Job(name, (phase,), 0.0 if is_early else COMES, pool=name))
    beside = Phase("p", Tasks(9, LENGTH), resources={"memory": size})
    return pools, [*jobs, Job("beside", (beside,), 0.5)]


@pytest.mark.parametrize("seed", range(examples(40, slow=400)))
def test_min_shares_within_limits_are_taken_back(
    simulated: Callable[..., Any], seed: int
) -> None:
    """After the time-outs each pool that came later has its min share, and nothing in vain."""
    pools, jobs = drawn(random.Random(seed))
    log = simulated(jobs, Cluster(HOSTS), pools).log
    grace = max((p.preemption.grace or 0.0 for p in pools if p.preemption), default=0.0)
    by_name = {pool.name: pool for pool in pools}
    # They take one after the other, and what one has taken another may use.
    takes = sum(pool.slots_min.get("task", 0) for pool in pools if pool.preemption)
    due = COMES + AFTER + grace * takes
    held: Counter[str] = Counter()
    lacked: Counter[str] = Counter()
    stops = 0
    for turn in log.turns:
        if turn.now > due:
            break
        held.subtract(one.phase.job for one in turn.events if isinstance(one, TaskKilled))
        if turn.now >= COMES + AFTER and not lacked:
            lacked = Counter(
                {
                    job.id: max(0, min(least, job.phases[0].tasks.count) - held[job.id])
                    for job in jobs
                    if job.arrival == COMES
                    and (least := by_name[job.pool].slots_min.get("task", 0))
                }
            )
        for one in turn.decisions:
            if isinstance(one, Launch):
                held[one.phase.job] += 1
            elif isinstance(one, Preempt):
                assert one.phase.job != "beside", "what runs outside frees nothing"
                stops += 1
    for job in jobs:
        if job.arrival == COMES:
            least = by_name[job.pool].slots_min.get("task", 0)
            assert held[job.id] >= min(least, job.phases[0].tasks.count)
    # Of what one has taken another may use a part, which it then takes again.
    assert stops <= sum(lacked.values()), "not one more than is lacking"
    assert replay_log(log).is_identical
