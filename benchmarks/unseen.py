"""Mean response of jobs of unknown work, simulated: FLEX compared with FAIR and FIFO.

`without` is FLEX without measuring slots for unseen phases. `known` is FLEX with all work known
beforehand: a limit for measuring. All relative to the mean response under FAIR, geometric mean
over the draws and the largest.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean
from typing import ClassVar

from experiments.endings import Endings
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.policy.allocator import Allocator, Claims
from slotwise.policy.assignment.assigner import Greedy
from slotwise.policy.fair import Fair, Fifo
from slotwise.policy.flex import Flex
from slotwise.policy.scheduler import Scheduler

SLOTS, JOBS, DRAWS = 10, 60, 8
LOAD = 0.9


@dataclass(frozen=True, slots=True)
class Without:
    """FLEX that treats no claim as unseen."""

    reads_work: ClassVar[bool] = True
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        return Flex().share(replace(claims, unmeasured=()))


def main() -> None:
    print(f"Mean response by that of FAIR: {DRAWS} draws of {JOBS} jobs on {SLOTS} slots")
    print(f"{'tasks of a job, seconds of a task':44} " + " ".join(f"{n:>11}" for n in SCHEMES))
    for kind, draw in MIXTURES.items():
        found = [ratios(draw(random.Random(seed))) for seed in range(DRAWS)]
        cells = (
            f"{geometric_mean(r[name] for r in found):5.2f} {max(r[name] for r in found):5.2f}"
            for name in SCHEMES
        )
        print(f"{kind:44} " + " ".join(f"{cell:>11}" for cell in cells))


def ratios(jobs: list[Job]) -> dict[str, float]:
    fair = response(jobs, Fair(), is_known=False)
    return {
        name: response(jobs, allocator, is_known) / fair
        for name, (allocator, is_known) in SCHEMES.items()
    }


def response(jobs: list[Job], allocator: Allocator, is_known: bool) -> float:
    cluster = Cluster.of_slots(SLOTS)
    backend = SimulatedBackend(
        cluster, jobs, Simulation(seed=1, noise=0.3, hide_work=not is_known)
    )
    state = State(cluster)
    scheduler = Scheduler(allocator, Greedy())
    endings = Endings(state)
    run(scheduler, backend, state, endings)
    return fmean(endings.completed[job.id] - job.arrival for job in jobs)


SCHEMES: dict[str, tuple[Allocator, bool]] = {
    "fifo": (Fifo(), False),
    "without": (Without(), False),
    "flex": (Flex(), False),
    "known": (Flex(), True),
}


def mixture(
    count: Callable[[random.Random], float],
    seconds: Callable[[random.Random], float],
    at_once: bool = False,
) -> Callable[[random.Random], list[Job]]:
    """Jobs of one phase, or of two with different tasks; random arrivals, or all at once."""

    def draw(rng: random.Random) -> list[Job]:
        jobs, now = [], 0.0
        for number in range(JOBS):
            phases = [Phase("map", Tasks(max(1, round(count(rng))), seconds(rng)))]
            if rng.random() < 0.5:
                tasks = Tasks(max(1, round(count(rng) / 5)), seconds(rng))
                phases.append(Phase("reduce", tasks, after=frozenset({"map"})))
            job = Job(f"j{number:02}", tuple(phases), now)
            jobs.append(job)
            assert job.work is not None
            now += 0.0 if at_once else rng.expovariate(1) * job.work / (LOAD * SLOTS)
        return jobs

    return draw


MIXTURES = {
    "40, log-normal around 1": mixture(lambda r: 40, lambda r: r.lognormvariate(0, 1)),
    "40, log-normal around 30": mixture(lambda r: 40, lambda r: 30 * r.lognormvariate(0, 1)),
    "40, log-normal around 0.05": mixture(lambda r: 40, lambda r: r.lognormvariate(-3, 1)),
    "Pareto from 5, log-normal around 1": mixture(
        lambda r: min(500, 5 * r.paretovariate(1.2)), lambda r: r.lognormvariate(0, 1)
    ),
    "1 to 3, Pareto from 0.5": mixture(
        lambda r: r.randint(1, 3), lambda r: min(300, 0.5 * r.paretovariate(1.3))
    ),
    "Pareto from 5, log-normal around 1, at once": mixture(
        lambda r: min(500, 5 * r.paretovariate(1.2)), lambda r: r.lognormvariate(0, 1), True
    ),
}

if __name__ == "__main__":
    main()
