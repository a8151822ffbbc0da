"""Random workloads: the jobs of the FLEX paper's simulations (FLEX 4.1), changes of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostChange, HostDrained, HostRemoved

Floats = NDArray[np.float64]

MAX_STEP_HEIGHT = 1.0
"""Heights of steps are drawn between 0 and this, as the weights of jobs are."""


@dataclass(frozen=True, slots=True)
class FlexGenerator:
    """Random jobs of one phase as in FLEX 4.1; all arrive at 0.

    Parameters of the paper:

    jobs, slots      number of jobs, number of slots
    small            fraction of jobs that are small, 0 to 1; their number is rounded
    slack            fraction of the slots that min shares leave free on average, in (0, 1)
    large_by_small   ratio of the mean work of a large job to that of a small job

    The paper gives no numbers for the following parameters; the defaults are our choice:

    work_total       work of all jobs of an experiment, in seconds. It sets the unit of time.
    tasks_total      number of tasks of average work in `work_total`. It sets the width of jobs:
                     with at most as many tasks as slots no job waits; with very many tasks
                     every job can use all slots.
    deadline_most    deadlines are drawn between 0 and this many times work_total / slots, the
                     time of all jobs if no slot is ever idle
    steps            steps of an SLA cost, each with a pseudo-deadline and a height
    whole            whether min shares are rounded to whole slots, at least one
    """

    jobs: int = 10
    slots: int = 100
    small: float = 0.8
    slack: float = 0.75
    large_by_small: float = 10.0
    work_total: float = 10_000.0
    tasks_total: float = 3_000.0
    deadline_most: float = 1.0
    steps: int = 3
    whole: bool = False

    def __post_init__(self) -> None:
        _refuse("jobs", self.jobs, self.jobs >= 1, "at least 1")
        _refuse("slots", self.slots, self.slots >= 1, "at least 1")
        _refuse("small", self.small, 0 <= self.small <= 1, "a share from 0 to 1")
        _refuse("slack", self.slack, 0 < self.slack < 1, "a share between 0 and 1")
        _refuse("steps", self.steps, self.steps >= 1, "at least 1")
        for name in ("large_by_small", "work_total", "tasks_total", "deadline_most"):
            value = getattr(self, name)
            _refuse(name, value, 0 < value < np.inf, "a number > 0")

    def draw(self, rng: np.random.Generator) -> DrawnJobs:
        """Draw one experiment. The same state of `rng` gives the same jobs. O(jobs * steps).

        A job uses the same random numbers for all parameters, so experiments of one seed that
        differ only in `slack` have the same work, weights and deadlines.
        """
        count = self.jobs
        quantiles = rng.random((3, count))
        arrived = rng.permutation(count)
        work = self._work(quantiles[0])[arrived]
        most = np.minimum(np.ceil(work * self.tasks_total / self.work_total), self.slots)
        horizon = self.deadline_most * self.work_total / self.slots
        return DrawnJobs(
            slots=self.slots,
            work=work,
            least=self._least(quantiles[1], most),
            most=most,
            weight=1.0 - quantiles[2],  # In (0, 1], because a weight must not be 0.
            deadline=horizon * (1.0 - rng.random(count)),
            step_instants=np.sort(horizon * (1.0 - rng.random((count, self.steps)))),
            step_heights=np.sort(MAX_STEP_HEIGHT * (1.0 - rng.random((count, self.steps)))),
        )

    def _work(self, quantiles: Floats) -> Floats:
        """Work in seconds, small jobs first."""
        small = round(self.small * self.jobs)
        means = [1.0] * small + [self.large_by_small] * (self.jobs - small)
        drawn = np.array([_cut_normal(m, q) for m, q in zip(means, quantiles, strict=True)])
        work: Floats = drawn * (self.work_total / drawn.sum())
        return work

    def _least(self, quantiles: Floats, most: Floats) -> Floats:
        """Min shares, above 0 and at most the max share.

        The paper discards larger values and draws again, which is equal to drawing from the
        truncated distribution.
        """
        mean = (1.0 - self.slack) * self.slots / self.jobs
        drawn = np.array(
            [_cut_normal(mean, q, top) for q, top in zip(quantiles, most, strict=True)]
        )
        if self.whole:
            drawn = np.clip(np.round(drawn), 1.0, most)
        return drawn


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """The jobs of one experiment, as arrays in a random arrival order; all arrive at 0.

    work, deadline   seconds
    least, most      min and max share, in slots; the sum of min shares may exceed `slots`
    step_instants    pseudo-deadlines of each job in seconds, increasing; shape (jobs, steps)
    step_heights     cost after each pseudo-deadline, increasing; shape (jobs, steps)
    """

    slots: int
    work: Floats
    least: Floats
    most: Floats
    weight: Floats
    deadline: Floats
    step_instants: Floats
    step_heights: Floats

    def __len__(self) -> int:
        return len(self.work)


def _cut_normal(mean: float, quantile: float, most: float = np.inf) -> float:
    """The quantile of a normal distribution with sigma = mean / 3, truncated to (0, most]."""
    normal = NormalDist(mean, mean / 3)
    below, above = normal.cdf(0.0), normal.cdf(most) if most < np.inf else 1.0
    # The interval includes only its upper end, and cdf(inf) has no inverse.
    share = above - (above - below) * quantile
    value = normal.inv_cdf(min(share, 1 - 1e-16))
    return float(np.clip(value, 1e-9 * mean, most))


def _refuse(name: str, value: float, good: bool, remedy: str) -> None:
    if not good:
        raise InputError(f"{name} is {value}; give {remedy}")


# Random changes of the hosts of a cluster: additions, losses and drains.


def draw_changes(
    cluster: Cluster, count: int, until: float, rng: np.random.Generator
) -> tuple[HostChange, ...]:
    """Draw changes of hosts at random instants from 0 to `until` seconds, in order of time.

    Each is an addition, a loss or a drain with equal probability; where no host may leave, it
    is an addition. An added host is like a random host of the cluster, with a name of its own.
    The hosts that are present and not drained are always at least half as many as those of the
    cluster. So that every task can run, one of them has as many slots of each kind as any host
    of the cluster. The same state of `rng` gives the same changes. O(count * hosts). InputError
    for a negative number of changes.
    """
    if count < 0:
        raise InputError(f"the number of changes of hosts is {count}; give a number >= 0")
    staying, changes = list(cluster.hosts), list[HostChange]()
    names = {host.name for host in staying}
    added = 0
    for at in np.sort(rng.random(count) * until).tolist():
        kind = rng.integers(3)
        leavers = _may_leave(cluster, staying) if kind else []
        if leavers:
            host = leavers[rng.integers(len(leavers))]
            staying.remove(host)
            changes.append((HostRemoved if kind == 1 else HostDrained)(at, host.name))
            continue
        while f"added-{added}" in names:
            added += 1
        like = cluster.hosts[rng.integers(len(cluster.hosts))]
        host = replace(like, name=f"added-{added}")
        added += 1
        staying.append(host)
        changes.append(HostAdded(at, host))
    return tuple(changes)


def _may_leave(cluster: Cluster, staying: Sequence[Host]) -> list[Host]:
    """The hosts that may leave, so that enough hosts and the largest ones of each kind stay."""
    if 2 * (len(staying) - 1) < len(cluster.hosts):
        return []
    kept: set[str] = set()
    for kind in cluster.capacity:
        most = max(host.slots.get(kind, 0) for host in cluster.hosts)
        large = [host.name for host in staying if host.slots.get(kind, 0) == most]
        if len(large) == 1:
            kept.update(large)
    return [host for host in staying if host.name not in kept]
