"""Workloads of the FlowFlex paper's cluster experiments: flows of GridMix-like jobs (5.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from experiments.flowflex.generator import wire
from slotwise.core.job import Job, Phase, Tasks

STATED_SECONDS = 30.0
"""The stated work of each task, independent of its true work: FlowFlex predicts the same for
each task until some of its phase are done (5.2)."""


class Kind(NamedTuple):
    """A kind of job of GridMix2: seconds of a map and a reduce, and maps for each reduce."""

    map_seconds: float
    maps_each: float
    reduce_seconds: float


SORT = Kind(30.0, 5.0, 70.0)
COMBINE = Kind(30.0, 10.0, 23.0)
SELECT = Kind(20.0, float("inf"), 22.0)

KINDS = (SORT, COMBINE, SELECT, SORT)
"""As in the mix of the FLEX figures, with copying included in the reduces. Two of four sort,
because GridMix2 sorts text and compressed records. Its multi-stage queries are flows here."""

SIZES = ((1, 112), (10, 44), (100, 16))
"""The percentage of the blocks that small, medium and large jobs read, and the number of jobs
of each size, as in the mix of the FLEX figures."""


@dataclass(frozen=True, slots=True)
class GridMixFlows:
    """Flows of MapReduce jobs of random kinds and sizes, wired at random.

    As in the paper:

    flows                 their number
    jobs_least, jobs_most jobs of a flow: a whole number from the least to the most
    joined                of two jobs the later one waits for the earlier with this probability
    gap                   mean seconds from one arrival to the next, exponentially distributed;
                          0: all at once

    Ours, since the paper does not state them:

    blocks   maps of a large job
    noise    of task durations: the standard deviation of the logarithm
    """

    flows: int = 10
    jobs_least: int = 2
    jobs_most: int = 10
    joined: float = 0.5
    gap: float = 0.0
    blocks: int = 300
    noise: float = 0.25

    def draw(self, rng: np.random.Generator) -> tuple[Job, ...]:
        """The flows, with the true work of each task. With another gap the arrivals differ, and
        everything else is the same."""
        gaps = rng.exponential(size=self.flows)
        arrivals = self.gap * (np.cumsum(gaps) - gaps[0])
        return tuple(self._flow(rng, n, float(at)) for n, at in enumerate(arrivals))

    def _flow(self, rng: np.random.Generator, number: int, arrival: float) -> Job:
        count = int(rng.integers(self.jobs_least, self.jobs_most, endpoint=True))
        counted = np.array([share for _, share in SIZES], dtype=float)
        phases: list[Phase] = []
        for place, before in enumerate(wire(count, self.joined, rng)):
            kind = KINDS[int(rng.integers(len(KINDS)))]
            percent, _ = SIZES[int(rng.choice(len(SIZES), p=counted / counted.sum()))]
            maps = max(1, self.blocks * percent // 100)
            reduces = max(1, int(maps / kind.maps_each))
            mapping, reducing = f"map-{place}", f"reduce-{place}"
            after = frozenset(f"reduce-{earlier}" for earlier in before)
            phases += (
                Phase(mapping, self._tasks(rng, maps, kind.map_seconds), after=after),
                Phase(
                    reducing,
                    self._tasks(rng, reduces, kind.reduce_seconds),
                    after=frozenset({mapping}),
                ),
            )
        return Job(f"flow-{number}", tuple(phases), arrival)

    def _tasks(self, rng: np.random.Generator, count: int, seconds: float) -> Tasks:
        spread = rng.normal(-(self.noise**2) / 2, self.noise, count)
        return Tasks(count, tuple((seconds * np.exp(spread)).tolist()))


def believed(job: Job, seconds: float = STATED_SECONDS) -> Job:
    """The job as schedulers receive it: its number of tasks, each with the same stated work."""
    return replace(
        job,
        phases=tuple(replace(p, tasks=Tasks(p.tasks.count, seconds)) for p in job.phases),
    )


def faster(job: Job, speed: float) -> Job:
    """The same job, faster by this factor: arrival and task durations are divided by it."""
    return replace(
        job,
        arrival=job.arrival / speed,
        phases=tuple(
            replace(
                phase,
                tasks=Tasks(
                    phase.tasks.count,
                    tuple(
                        (phase.tasks.work_of(n) or 0.0) / speed
                        for n in range(phase.tasks.count)
                    ),
                ),
            )
            for phase in job.phases
        ),
    )
