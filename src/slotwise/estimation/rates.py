"""Rates of programs and speeds of hosts, from the finished tasks of earlier runs (FLEX 2.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.model.job import Job, Phase
from slotwise.model.observation import Observation, Sizes

SWEEPS_MOST = 50
"""How often rates and speeds are set right in turn, at most; a few times do as a rule."""

SETTLED = 1e-9
"""A change of all logarithms below this is none."""

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
    """How fast a host is; `stated` is what it was said to be, the rest as in a Rate."""

    host: str
    stated: float
    speed: float
    spread: float
    count: int


@dataclass(frozen=True, slots=True)
class Rates:
    """All that is known: rates by program and phase, and speeds of hosts."""

    by_phase: Mapping[tuple[str, str], Rate] = field(default_factory=dict)
    speeds: tuple[Speed, ...] = ()

    def job(self, job: Job, program: str, sizes: Mapping[str, Sizes]) -> Job:
        """The job of a program with the work of its tasks as known; else as it was."""
        phases = [self._phase(phase, program, sizes.get(phase.name)) for phase in job.phases]
        return replace(job, phases=tuple(phases))

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


def _spread(off: Floats, weight: Floats, chosen: NDArray[np.bool_]) -> tuple[float, int]:
    """The factor above 1 within which half of the chosen bytes are, and the tasks of these."""
    number = int(np.count_nonzero(chosen))
    order = np.argsort(off[chosen])
    return float(np.expm1(_median(off[chosen][order], weight[chosen][order]))), number
