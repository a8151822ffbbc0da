"""Random flows: the workload generator of the FlowFlex paper's simulations (FlowFlex 5.1).

A flow of the paper is a job here, and a job of the paper is a phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks


@dataclass(frozen=True, slots=True)
class FlowGenerator:
    """Jobs that are random DAGs of phases as in FlowFlex 5.1; all arrive at 0.

    Parameters of the paper. Whole numbers are uniform from least to most, inclusive:

    flows_least, flows_most    number of jobs
    phases_least, phases_most  number of phases of a job
    joined           probability that of two phases the later one waits for the earlier one
    slots            slots of the machine, and the max share of a tall phase
    weight_most      weights are from 1 to this; so is the height of each step of an SLA above
                     the step before
    steps_most       an SLA has from 1 to this number of steps

    The paper says only that flows may be "big" and their jobs "tall" and "wide". The following
    parameters and their defaults are our choice:

    big              probability that a job is big. 1/2: both are equally likely.
    times            ratio of the volume of a big job to that of another job, and of the length
                     of a wide phase to that of another. 10, as for large jobs in FLEX 4.1.
    volume_least     work of the smallest job that is not big, in seconds; the largest such job
                     has 10 times as much, as with weights. It only sets the unit of time.
    deadline_most    the slack of a deadline over the minimum time of its job is from 0 to this
                     many times the time of all work on all slots. 1, as for FLEX 4.1: any job,
                     even one that is served last, may or may not meet its deadline.
    waves            tasks of a phase for each slot of its max share; plans do not need it

    For each job, the probabilities that a phase is tall and that it is wide are drawn from 0
    to 1. The max share of a phase that is not tall is from 1 to `slots`.
    """

    flows_least: int = 5
    flows_most: int = 20
    phases_least: int = 2
    phases_most: int = 20
    joined: float = 0.5
    slots: int = 25
    weight_most: int = 10
    steps_most: int = 5
    big: float = 0.5
    times: float = 10.0
    volume_least: float = 25.0
    deadline_most: float = 1.0
    waves: int = 4

    def __post_init__(self) -> None:
        for name in ("flows_least", "phases_least", "slots", "weight_most", "steps_most"):
            _refuse(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        _refuse("waves", self.waves, self.waves >= 1, "at least 1")
        for what in ("flows", "phases"):
            least, most = (getattr(self, f"{what}_{end}") for end in ("least", "most"))
            _refuse(f"{what}_most", most, most >= least, f"at least {what}_least, {least}")
        for name in ("joined", "big"):
            value = getattr(self, name)
            _refuse(name, value, 0 <= value <= 1, "a probability from 0 to 1")
        for name in ("times", "volume_least", "deadline_most"):
            value = getattr(self, name)
            _refuse(name, value, 0 < value < np.inf, "a number > 0")

    def draw(self, rng: np.random.Generator) -> tuple[Job, ...]:
        """Draw the jobs of one experiment, with weight, deadline and steps for all metrics.

        The same state of `rng` gives the same jobs. A job alone on the machine can meet its
        deadline and each step of its SLA. O(flows * phases^2).
        """
        count = _whole(rng, self.flows_least, self.flows_most)
        jobs = [self._job(rng, f"flow-{number:02}") for number in range(count)]
        horizon = self.deadline_most * sum(job.work or 0.0 for job in jobs) / self.slots
        return tuple(self._promised(rng, job, horizon) for job in jobs)

    def _job(self, rng: np.random.Generator, name: str) -> Job:
        count = _whole(rng, self.phases_least, self.phases_most)
        after = wire(count, self.joined, rng)
        volume = self.volume_least * (1 + 9 * rng.random())
        if rng.random() < self.big:
            volume *= self.times
        tall, wide = rng.random(2)
        most = rng.integers(1, self.slots, count, endpoint=True)
        most[rng.random(count) < tall] = self.slots
        length = 1.0 - rng.random(count)  # In (0, 1], because work must not be 0.
        length[rng.random(count) < wide] *= self.times
        work = most * length * (volume / float(most @ length))
        phases = tuple(
            Phase(
                _phase(n),
                Tasks(self.waves * slots, amount / (self.waves * slots)),
                after=frozenset(map(_phase, after[n])),
                slots_max=slots,
            )
            for n, (slots, amount) in enumerate(zip(most.tolist(), work.tolist(), strict=True))
        )
        return Job(name, phases, weight=float(_whole(rng, 1, self.weight_most)))

    def _promised(self, rng: np.random.Generator, job: Job, horizon: float) -> Job:
        """Add the deadline and the steps, each at a random time after the minimum time."""
        soonest = least_time(job, self.slots)
        count = _whole(rng, 1, self.steps_most)
        instants = np.sort(soonest + horizon * (1.0 - rng.random(count)))
        costs = np.cumsum(rng.integers(1, self.weight_most, count, endpoint=True))
        return replace(
            job,
            deadline=soonest + horizon * float(rng.random()),
            steps=tuple(zip(instants.tolist(), costs.astype(float).tolist(), strict=True)),
        )


def wire(count: int, joined: float, rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """Draw the predecessors of each of `count` nodes; they have lower numbers.

    Two nodes are joined with probability `joined`. Nodes without successor precede the last
    node, so that the graph is connected (FlowFlex 5.1). O(count^2).
    """
    before = np.triu(rng.random((count, count)) < joined, k=1)
    if count > 1:
        before[:-1, -1] |= ~before[:-1].any(axis=1)
    return tuple(tuple(np.flatnonzero(column).tolist()) for column in before.T)


def least_time(job: Job, slots: int) -> float:
    """The minimum time of the job alone on `slots` slots: Q of FlowFlex 4.2, in seconds.

    It is the longer of its critical path and the time that its work takes on all slots.
    """
    ends: dict[str, float] = {}
    for phase in job.topological:
        begins = max((ends[other] for other in phase.waits_for), default=0.0)
        work = phase.tasks.work_total() or 0.0
        ends[phase.name] = begins + work / min(phase.slots_most, slots)
    return max(*ends.values(), (job.work or 0.0) / slots)


def unweighted(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The same jobs with weight 1, and with SLA steps whose heights are 0, 1, 2, ..."""
    return tuple(
        replace(
            job,
            weight=1.0,
            steps=tuple((at, float(n)) for n, (at, _) in enumerate(job.steps, 1)),
        )
        for job in jobs
    )


def _phase(number: int) -> str:
    return f"phase-{number:02}"


def _whole(rng: np.random.Generator, least: int, most: int) -> int:
    return int(rng.integers(least, most, endpoint=True))


def _refuse(name: str, value: float, good: bool, remedy: str) -> None:
    if not good:
        raise InputError(f"{name} is {value}; give {remedy}")
