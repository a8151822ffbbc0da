"""Limits of pools while these are replaced, jobs move, and hosts fail and return.

The state is checked after each turn: what it counts is what runs, and no pool exceeds a limit
except by what ran when limits were lowered. In the end each job is done.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt
from slotwise.core.events import (
    HostJoined,
    HostLost,
    JobArrived,
    JobChanged,
    PoolsChanged,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool, Preemption
from slotwise.core.state import State
from slotwise.policy.scheduler import ALLOCATORS, make_scheduler
from tiers import examples

MEMORY, GPUS = [4, 6, 9, 14], [1, 1.5, 3]
"""Limits within which each task fits, and each gang."""


def drawn_pools(rng: random.Random) -> tuple[Pool, ...]:
    """A pool with two below it, and another one."""

    def some() -> dict[str, Any]:
        drawn = {"memory": rng.choice(MEMORY), "gpu": rng.choice(GPUS)}
        taking = rng.choice([None, Preemption(0.0, 1.0)])
        limits = {name: most for name, most in drawn.items() if rng.random() < 0.5}
        return {"resources_max": limits, "preemption": taking}

    return (
        Pool("lab", **some()),
        Pool("x", parent="lab", slots_min=rng.choice([{}, {"task": 2}]), **some()),
        Pool("y", rng.choice([1.0, 3.0]), parent="lab", **some()),
        Pool("z", slots_max=rng.choice([{}, {"task": 3}])),
    )


class Driver:
    """A state, its scheduler, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.kinds = rng.choice([["task"], ["map", "reduce"]])
        first = Host("h0", dict.fromkeys(self.kinds, 4), resources={"memory": 12, "gpu": 2})
        others = [
            Host(
                f"h{number}",
                dict.fromkeys(self.kinds, rng.randint(1, 4)),
                resources={"memory": rng.choice([4, 8]), "gpu": 1},
            )
            for number in range(1, rng.randint(1, 3))
        ]
        self.state = State(Cluster((first, *others)), drawn_pools(rng))
        self.state.at(0.0)
        self.state.expect_estimates()
        self.scheduler = make_scheduler(rng.choice(list(ALLOCATORS)))
        self.others, self.lost = [host.name for host in others], set[str]()
        self.arrived = 0

    def running(self) -> list[Launch]:
        """What runs on responsive hosts."""
        found = [
            one for phases in self.state.jobs_left() for p in phases for one in p.attempts()
        ]
        return [launch for _, launch in found if launch.host not in self.lost]

    def step(self) -> None:
        """One event, and all that is decided then."""
        rng, state = self.rng, self.state
        now = state.now + rng.choice([0.1, 0.6, 1.3])
        state.at(now)
        jobs = [phases[0].job.id for phases in state.jobs_left()]
        match rng.choices(range(5), [35, 35, 10, 8, 6])[0]:
            case 0 if self.arrived < 12:
                state.apply(JobArrived(now, self.job(now)))
            case 1 if running := self.running():
                one = rng.choice(running)
                state.apply(TaskFinished(now, one.phase, one.task, one.attempt, 1.0))
            case 2:
                state.apply(PoolsChanged(now, drawn_pools(rng)))
            case 3 if jobs:
                pool = rng.choice("xyz")
                state.apply(JobChanged(now, rng.choice(jobs), "normal", 1.0, pool, None))
            case 4 if self.others:
                self.toggle(rng.choice(self.others))
        self.settle()

    def job(self, now: float) -> Job:
        """A job of one phase."""
        rng, self.arrived = self.rng, self.arrived + 1
        gang = rng.random() < 0.15
        needs = {
            "memory": rng.choice([0, 1, 2] if gang else [0, 1, 2, 3, 4]),
            "gpu": rng.choice([0, 0.5] if gang else [0, 0, 0.5, 1]),
        }
        phase = Phase(
            "p",
            Tasks(rng.randint(1, 2 if gang else 6), 1.0),
            rng.choice(self.kinds),
            slots=1 if gang else rng.choice([1, 1, 2]),
            gang=gang,
            resources=needs,
        )
        return Job(f"j{self.arrived}", (phase,), now, pool=rng.choice("xyz"))

    def toggle(self, host: str) -> None:
        """A host does not respond any more, or again."""
        returns, now = host in self.lost, self.state.now
        self.lost ^= {host}
        self.state.apply(HostJoined(now, host) if returns else HostLost(now, host))

    def settle(self) -> None:
        """Apply decisions until there are no more; what is to stop stops at once."""
        state = self.state
        state.check()
        while decisions := self.scheduler.decide(state):
            for one in decisions:
                state.apply(one)
            for one in decisions:
                if isinstance(one, Preempt):
                    state.apply(TaskKilled(state.now, one.phase, one.task, one.attempt))
            state.check()


@pytest.mark.parametrize("seed", range(examples(6, slow=400)))
def test_limits_hold_while_they_change(seed: int) -> None:
    """What is running is counted, and nothing waits forever."""
    driver = Driver(seed)
    for _ in range(driver.rng.randint(10, 40)):
        driver.step()
    for host in [*driver.lost]:
        driver.toggle(host)
    driver.settle()
    while running := driver.running():
        driver.state.at(driver.state.now + 1.0)
        one = running[0]
        end = TaskFinished(driver.state.now, one.phase, one.task, one.attempt, 1.0)
        driver.state.apply(end)
        driver.settle()
    assert not list(driver.state.jobs_left())
