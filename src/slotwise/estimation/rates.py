"""Rates of programs and speeds of hosts, from the finished tasks of earlier runs (FLEX 2.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import log, log1p, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.model.cluster import Cluster
from slotwise.model.job import Job, Phase
from slotwise.model.observation import Observation, Sizes

SWEEPS_MOST = 50
"""How often rates and speeds are set right in turn, at most; a few times do as a rule."""

SETTLED = 1e-9
"""A change of all logarithms below this is none."""

SEEN_ENOUGH = 12.0
"""A learned speed is believed if it rests on at least so many tasks. Of fewer, chance shows too
small a spread; from so many on, one of twenty hosts that are as stated is told apart by it."""

ERRORS_ENOUGH = 2.0
"""And if it is off from what was stated by so many standard errors: else it may be chance."""

MEDIAN_ERROR = 1.86
"""Standard error of a median of normal values, by half of them lying within 1, times the root
of their number: sqrt(pi / 2) / 0.6745."""

ROUNDING = 1e-6
"""Logarithms of speeds that differ by no more are of one speed."""

CLOSE = 1e-12
"""Weights that differ by no more than this part of all are alike."""

Floats = NDArray[np.float64]
Groups = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rate:
    """What a phase of a program needs for each byte.

    seconds_per_byte  on a slot of a host of speed 1
    spread            half of the bytes seen took no more than 1 + spread times that, nor less
                      than that divided by 1 + spread
    count             the tasks seen
    """

    seconds_per_byte: float
    spread: float
    count: int


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a host is; `stated` is what it was said to be, the rest as in a Rate.

    alike  the tasks seen, by their bytes: so many tasks of equal bytes would tell as much
    """

    host: str
    stated: float
    speed: float
    spread: float
    count: int
    alike: float

    @property
    def believed(self) -> float:
        """The speed to go by: what was learned if enough was seen, else what was stated."""
        error = MEDIAN_ERROR * log1p(self.spread) / sqrt(self.alike)
        off = abs(log(self.speed / self.stated))
        is_enough = self.alike >= SEEN_ENOUGH and off > max(ERRORS_ENOUGH * error, ROUNDING)
        # What it is beyond four digits is chance, and hard to read in a log.
        return float(f"{self.speed:.4g}") if is_enough else self.stated


@dataclass(frozen=True, slots=True)
class Rates:
    """All that is known: rates by program and phase, and speeds of hosts."""

    by_phase: Mapping[tuple[str, str], Rate] = field(default_factory=dict)
    speeds: tuple[Speed, ...] = ()

    def job(self, job: Job, program: str, sizes: Mapping[str, Sizes]) -> Job:
        """The job of a program with the work of its tasks as known; else as it was."""
        phases = [self._phase(phase, program, sizes.get(phase.name)) for phase in job.phases]
        return replace(job, phases=tuple(phases))

    def cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with hosts as fast as they are known to be; else as they were.

        A host is known by its name and the speed that it is said to have.
        """
        known = {(one.host, one.stated): one.believed for one in self.speeds}
        hosts = (
            replace(host, speed=known.get((host.name, host.speed), host.speed))
            for host in cluster.hosts
        )
        return replace(cluster, hosts=tuple(hosts))

    def _phase(self, phase: Phase, program: str, sizes: Sizes | None) -> Phase:
        rate = self.by_phase.get((program, phase.name))
        if rate is None or sizes is None:
            return phase
        each = rate.seconds_per_byte
        known = sizes * each if isinstance(sizes, int) else tuple(s * each for s in sizes)
        return replace(phase, tasks=replace(phase.tasks, work=known))


def estimate_rates(observations: Iterable[Observation]) -> Rates:
    """What finished tasks tell of the programs that they are of and the hosts they ran on.

    A task is taken to need bytes x rate / speed seconds. In logarithms that is a sum, which is
    taken apart by medians in turn (Tukey's median polish). They are medians of bytes, since
    what counts is the work of all of a phase, and small tasks mostly start and end: tasks with
    fewer than half of the bytes of a phase or host, however wrong, do not carry it away. Only
    products are seen, so speeds are anchored: hosts that have run the same phases, if only by
    way of others, are compared, and the median of what they did was done at the speed that was
    stated.

    Tasks without bytes or seconds tell nothing. O(n log n) a sweep for n tasks.
    """
    seen = [o for o in observations if o.bytes > 0 and o.seconds > 0]
    if not seen:
        return Rates()
    # One host may have been said to have several speeds; then it counts as several.
    names, phase_of = _numbered([(o.program, o.phase) for o in seen])
    hosts, host_of = _numbered([(o.host, o.speed) for o in seen])
    cost = np.log([o.seconds * o.speed / o.bytes for o in seen])
    weight = np.array([o.bytes for o in seen], dtype=float)
    rates, slowness = _polished(cost, weight, phase_of, host_of)
    for group in _compared(phase_of, host_of):
        # The median of these ran as its host was said to run.
        group = group[np.argsort(slowness[host_of[group]])]
        anchor = _median(slowness[host_of[group]], weight[group])
        slowness[np.unique(host_of[group])] -= anchor
        rates[np.unique(phase_of[group])] += anchor
    off = np.abs(cost - rates[phase_of] - slowness[host_of])
    by_phase = {
        name: Rate(float(np.exp(rates[k])), *_spread(off, weight, phase_of == k))
        for k, name in enumerate(names)
    }
    speeds = tuple(
        Speed(
            host,
            stated,
            stated * float(np.exp(-slowness[k])),
            *_spread(off, weight, host_of == k),
            _alike(weight[host_of == k]),
        )
        for k, (host, stated) in enumerate(hosts)
    )
    return Rates(by_phase, speeds)


def _numbered(keys: list[Any]) -> tuple[list[Any], Groups]:
    """The different keys in order, and which of them each one is."""
    distinct = sorted(set(keys))
    number = {key: k for k, key in enumerate(distinct)}
    return distinct, np.array([number[key] for key in keys], dtype=np.intp)


def _polished(
    cost: Floats, weight: Floats, phase_of: Groups, host_of: Groups
) -> tuple[Floats, Floats]:
    """The logarithms of rates and of slowness whose sums are nearest by medians."""
    slowness = np.zeros(host_of.max() + 1)
    rates = _medians(cost, weight, phase_of)
    for _ in range(SWEEPS_MOST):
        before = slowness
        slowness = _medians(cost - rates[phase_of], weight, host_of)
        rates = _medians(cost - slowness[host_of], weight, phase_of)
        if np.abs(slowness - before).max() < SETTLED:
            break
    return rates, slowness


def _medians(values: Floats, weight: Floats, group_of: Groups) -> Floats:
    """The median of each group by weight; every group has a member."""
    order = np.lexsort((values, group_of))
    ends = np.cumsum(np.bincount(group_of))[:-1]
    groups = zip(np.split(values[order], ends), np.split(weight[order], ends), strict=True)
    return np.array([_median(ordered, weights) for ordered, weights in groups])


def _median(ordered: Floats, weight: Floats) -> float:
    """Where half of the weight is reached; if that is between two values, midway."""
    upto = np.cumsum(weight)
    half, slack = upto[-1] / 2, CLOSE * upto[-1]
    low, high = np.searchsorted(upto, [half - slack, half + slack])
    return float(ordered[low] + ordered[high]) / 2


def _compared(phase_of: Groups, host_of: Groups) -> list[Groups]:
    """The tasks in groups that share no phase and no host."""
    group = host_of.copy()
    while True:
        least = np.full(phase_of.max() + 1, len(group))
        np.minimum.at(least, phase_of, group)
        of_host = np.full(host_of.max() + 1, len(group))
        np.minimum.at(of_host, host_of, least[phase_of])
        joined = of_host[host_of]
        if np.array_equal(joined, group):
            return [np.flatnonzero(group == k) for k in np.unique(group)]
        group = joined


def _alike(weight: Floats) -> float:
    """How many equal weights would tell as much as these (Kish's effective size)."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def _spread(off: Floats, weight: Floats, chosen: NDArray[np.bool_]) -> tuple[float, int]:
    """The factor above 1 within which half of the chosen bytes are, and the tasks of these."""
    number = int(np.count_nonzero(chosen))
    order = np.argsort(off[chosen])
    return float(np.expm1(_median(off[chosen][order], weight[chosen][order]))), number
