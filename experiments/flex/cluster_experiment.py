"""One experiment of FLEX 4.2: the same jobs under FAIR and under FLEX, task by task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from experiments.endings import Endings
from experiments.flex.cluster_jobs import (
    SECONDS_A_MINUTE,
    Drawing,
    SpreadJobs,
    uneven_cluster,
)
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Shuffle
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.policy.allocator import Allocator, Claims
from slotwise.policy.assignment.assigner import Greedy
from slotwise.policy.fair import Fair
from slotwise.policy.flex import Flex
from slotwise.policy.scheduler import Scheduler
from slotwise.policy.waterline import water_line

SCHEMES: Mapping[str, Callable[[], Allocator]] = MappingProxyType({"fair": Fair, "flex": Flex})
"""The compared schemes."""

EPOCH_SECONDS = 0.5
"""As in the paper."""

SLOW_START = 0.05
"""The fraction of the maps done before reduces begin, as in Hadoop."""


UNSEEN_SECONDS = 1000.0
"""More than any task needs: FLEX serves phases with finished tasks first, and gives unseen
phases their min share."""


@dataclass(frozen=True, slots=True)
class ClusterSetting:
    """The workload and its conditions.

    slack    the fraction of the slots of each kind that is not guaranteed to the pool of all
             jobs
    noise    of the true work of tasks, which no scheduler receives: the standard deviation of
             its logarithm
    shuffle  when reduces begin, and whether copying is a separate phase
    unseen   assumed seconds of a task in a phase of which no task has finished
    """

    jobs: Drawing = field(default_factory=SpreadJobs)
    slack: float = 0.75
    noise: float = 0.25
    shuffle: Shuffle = field(default_factory=lambda: Shuffle(slow_start=SLOW_START))
    unseen: float = UNSEEN_SECONDS


def experiment(setting: ClusterSetting, seed: int, number: int) -> dict[str, float]:
    """Mean response of each scheme, in minutes. The same for the same numbers."""
    return {name: mean_response(setting, name, seed, number) for name in SCHEMES}


def mean_response(setting: ClusterSetting, scheme: str, seed: int, number: int) -> float:
    """The mean response of the jobs of this experiment under one scheme, in minutes."""
    rng = np.random.default_rng([seed, number])
    plain = uneven_cluster()
    jobs = [setting.shuffle.job(job, plain) for job in setting.jobs.draw(rng)]
    completed = simulate(setting, jobs, setting.shuffle.cluster(plain), scheme, (seed, number))
    return fmean(completed[job.id] - job.arrival for job in jobs) / SECONDS_A_MINUTE


def simulate(
    setting: ClusterSetting,
    jobs: Sequence[Job],
    cluster: Cluster,
    scheme: str,
    seed: tuple[int, int],
) -> dict[str, float]:
    """The completion time of each job. The scheduler estimates work from finished tasks."""
    allocator = SharedLeast(SCHEMES[scheme](), setting.slack)
    scheduler = Scheduler(allocator, Greedy(), EPOCH_SECONDS)
    number = 1_000_003 * seed[0] + seed[1]
    truth = Simulation(seed=number, noise=setting.noise, hide_work=True)
    backend = SimulatedBackend(cluster, jobs, truth)
    state = State(cluster, default_work=setting.unseen)
    run(scheduler, backend, state, endings := Endings(state))
    return endings.completed


@dataclass(frozen=True, slots=True)
class SharedLeast:
    """Gives an allocator min shares that divide the min share of the pool equally among jobs.

    The Hadoop Fair Scheduler sets them in this way, and FLEX uses them (FLEX 4.2): the more
    jobs run, the smaller is the guarantee of each. A job that can use less leaves the rest to
    the others. An allocator that uses the work gives an unseen phase at least one slot, so
    that there are measurements to extrapolate from.

    slack  the fraction of the slots of each kind that is not guaranteed to the pool
    """

    allocator: Allocator
    slack: float

    keeps_min_shares: ClassVar[bool] = True

    @property
    def reads_work(self) -> bool:
        """As for the wrapped allocator."""
        return self.allocator.reads_work

    @property
    def phase_seconds(self) -> float:
        """As for the wrapped allocator."""
        return self.allocator.phase_seconds

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        guaranteed = (1 - self.slack) * claims.capacity
        nothing = [0.0] * len(claims)
        least = water_line(guaranteed, [1.0] * len(claims), nothing, claims.max_share)
        if self.reads_work:
            # A phase that can still use a slot for each of its tasks has no finished task.
            is_new = [
                most == phase.slots_most
                for most, (_, phase) in zip(claims.max_share, claims.owner, strict=True)
            ]
            least = [max(low, float(new)) for low, new in zip(least, is_new, strict=True)]
        return self.allocator.share(replace(claims, min_share=least))
