"""Rates of programs and speeds of hosts, from the finished tasks of earlier runs (FLEX 2.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log, log1p, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Observation, Phase, Sizes
from slotwise.core.sizing import LearnedMemory

MAX_SWEEPS = 50
"""The maximum number of alternating corrections of rates and speeds; usually a few suffice."""

SETTLED = 1e-9
"""The iteration ends when all logarithms change by less than this."""

SEEN_ENOUGH = 12.0
"""A learned speed is used only if it is based on at least this number of tasks. With fewer, the
spread is often too small by chance; with this number, about one of twenty hosts whose stated
speed is correct is wrongly corrected."""

ERRORS_ENOUGH = 2.0
"""It must also differ from the stated speed by this number of standard errors."""

MEDIAN_ERROR = 1.86
"""Standard error of a median of normal values times the root of their number, if half of the
values lie within 1: sqrt(pi / 2) / 0.6745."""

ROUNDING = 1e-6
"""Logarithms of speeds that differ by at most this count as equal."""

CLOSE = 1e-12
"""Weights that differ by at most this part of the total count as equal."""

COMMAND_MARK = "$ "
"""Begins the name of a command among the programs. Its tasks have 1 byte each, so that its rate
is the time of a task."""

Floats = NDArray[np.float64]
Groups = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rate:
    """The time per byte of a phase of a program.

    seconds_per_byte  on a slot of a host of speed 1
    spread            half of the observed bytes took between seconds_per_byte / (1 + spread)
                      and seconds_per_byte * (1 + spread)
    count             the number of observed tasks
    """

    seconds_per_byte: float
    spread: float
    count: int


@dataclass(frozen=True, slots=True)
class Speed:
    """The learned speed of a host and its `stated` speed; the rest as in `Rate`.

    alike  the effective number of observed tasks: this number of tasks of equal bytes would
           give the same precision
    """

    host: str
    stated: float
    speed: float
    spread: float
    count: int
    alike: float

    @property
    def believed(self) -> float:
        """The learned speed if it is significant, otherwise the stated speed."""
        error = MEDIAN_ERROR * log1p(self.spread) / sqrt(self.alike)
        off = abs(log(self.speed / self.stated))
        is_enough = self.alike >= SEEN_ENOUGH and off > max(ERRORS_ENOUGH * error, ROUNDING)
        # Further digits are noise, and hard to read in a log.
        return float(f"{self.speed:.4g}") if is_enough else self.stated


@dataclass(frozen=True, slots=True)
class Rates:
    """The learned values: rates and memory by program and phase, and speeds of hosts."""

    by_phase: Mapping[tuple[str, str], Rate] = field(default_factory=dict)
    speeds: tuple[Speed, ...] = ()
    memory: Mapping[tuple[str, str], LearnedMemory] = field(default_factory=dict)

    def job(self, job: Job, program: str, sizes: Mapping[str, Sizes]) -> Job:
        """The job of a program with learned work and memory of its tasks, where known."""
        if not self.by_phase and not self.memory:
            return job
        phases = [self._phase(phase, program, sizes.get(phase.name)) for phase in job.phases]
        return replace(job, phases=tuple(phases))

    def cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with learned speeds of hosts; unchanged where unknown.

        A host is identified by its name and its stated speed.
        """
        known = {(one.host, one.stated): one.believed for one in self.speeds}
        hosts = (
            replace(host, speed=known.get((host.name, host.speed), host.speed))
            for host in cluster.hosts
        )
        return replace(cluster, hosts=tuple(hosts))

    def _phase(self, phase: Phase, program: str, sizes: Sizes | None) -> Phase:
        tasks, learned = phase.tasks, self.memory.get((program, phase.name))
        if learned is not None and sizes is not None:
            of = [sizes] if isinstance(sizes, int) else sizes
            tasks = replace(tasks, memory=learned.estimate_all(of))
        rate = self.by_phase.get((program, phase.name))
        if rate is not None and sizes is not None:
            each = rate.seconds_per_byte
            known = sizes * each if isinstance(sizes, int) else tuple(s * each for s in sizes)
            tasks = replace(tasks, work=known)
        return phase if tasks is phase.tasks else replace(phase, tasks=tasks)


def estimate_rates(observations: Iterable[Observation]) -> Rates:
    """Rates of programs and speeds of hosts from finished tasks.

    The model: a task needs bytes x rate / speed seconds. In logarithms this is a sum, whose
    terms are estimated by alternating medians (Tukey's median polish). The medians are weighted
    by bytes, since the total work of a phase matters and small tasks consist mostly of
    overhead. Outliers with less than half of the bytes of a phase or host do not spoil its
    estimate. Only quotients of rates and speeds are observed, so speeds are anchored: in each
    group of hosts that have run the same phases, directly or through other hosts, the median of
    the work ran at the stated speed.

    Tasks without bytes or seconds are ignored. O(n log n) per sweep for n tasks, at most
    `MAX_SWEEPS` sweeps.
    """
    observed = list(observations)
    memory = _learned_memory(observed)
    seen = [o for o in observed if o.bytes > 0 and o.seconds > 0]
    if not seen:
        return Rates(memory=memory)
    # A host with several stated speeds counts as several hosts.
    names, phase_of = _numbered([(o.program, o.phase) for o in seen])
    hosts, host_of = _numbered([(o.host, o.speed) for o in seen])
    cost = np.log([o.seconds * o.speed / o.bytes for o in seen])
    weight = np.array([o.bytes for o in seen], dtype=float)
    rates, slowness = _polished(cost, weight, phase_of, host_of)
    for group in _compared(phase_of, host_of):
        # The median of these tasks ran at the stated speed of its host.
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
    return Rates(by_phase, speeds, memory)


def _numbered(keys: list[Any]) -> tuple[list[Any], Groups]:
    """The distinct keys in order, and the index of each key."""
    distinct = sorted(set(keys))
    number = {key: k for k, key in enumerate(distinct)}
    return distinct, np.array([number[key] for key in keys], dtype=np.intp)


def _learned_memory(observed: Sequence[Observation]) -> dict[tuple[str, str], LearnedMemory]:
    """What peaks teach of each phase; the newest observation of each host comes first."""
    learned: dict[tuple[str, str], LearnedMemory] = {}
    for one in reversed(observed):
        if one.peak is not None:
            of_phase = learned.setdefault((one.program, one.phase), LearnedMemory())
            of_phase.note(one.peak, one.bytes)
    return learned


def _polished(
    cost: Floats, weight: Floats, phase_of: Groups, host_of: Groups
) -> tuple[Floats, Floats]:
    """The logarithms of rates and of slowness, fitted by alternating medians."""
    slowness = np.zeros(host_of.max() + 1)
    rates = _medians(cost, weight, phase_of)
    for _ in range(MAX_SWEEPS):
        before = slowness
        slowness = _medians(cost - rates[phase_of], weight, host_of)
        rates = _medians(cost - slowness[host_of], weight, phase_of)
        if np.abs(slowness - before).max() < SETTLED:
            break
    return rates, slowness


def _medians(values: Floats, weight: Floats, group_of: Groups) -> Floats:
    """The weighted median of each group; no group is empty."""
    order = np.lexsort((values, group_of))
    ends = np.cumsum(np.bincount(group_of))[:-1]
    groups = zip(np.split(values[order], ends), np.split(weight[order], ends), strict=True)
    return np.array([_median(ordered, weights) for ordered, weights in groups])


def _median(ordered: Floats, weight: Floats) -> float:
    """The weighted median of ordered values; midway if it lies between two values."""
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
    """The number of equal weights with the same precision (Kish's effective sample size)."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def _spread(off: Floats, weight: Floats, chosen: NDArray[np.bool_]) -> tuple[float, int]:
    """The spread that contains half of the chosen bytes (`Rate`), and the number of tasks."""
    number = int(np.count_nonzero(chosen))
    order = np.argsort(off[chosen])
    return float(np.expm1(_median(off[chosen][order], weight[chosen][order]))), number
