"""Workloads of the FLEX paper's cluster experiments (FLEX 4.2), as far as it describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks

HOSTS_EACH = 13
SMALL_SLOTS, LARGE_SLOTS = 2, 4
"""Map slots of a host of 4 and of 8 cores; with as many reduce slots, there is one a core."""

SIZE_MEAN = 7.66
"""Mean work of a job, in the unit of the paper's deviations: with a deviation of 4 the smallest
of ten jobs, whose sizes are evenly spaced, is a tenth of the largest."""

SECONDS_A_MINUTE = 60.0

_NOTHING: frozenset[str] = frozenset()


def uneven_cluster() -> Cluster:
    """The paper's 26 hosts: 13 of 4 cores in one rack, 13 of 8 cores directly at the switch."""
    small = [Host(f"four-{n:02}", _slots(SMALL_SLOTS), "rack") for n in range(HOSTS_EACH)]
    large = [
        Host(f"eight-{n:02}", _slots(LARGE_SLOTS), f"switch-{n:02}") for n in range(HOSTS_EACH)
    ]
    return Cluster((*small, *large))


def _slots(count: int) -> dict[str, int]:
    return {"map": count, "reduce": count}


class Drawing(Protocol):
    """Draws the jobs of one experiment."""

    def draw(self, rng: np.random.Generator) -> list[Job]:
        """The jobs; the same for the same state of `rng`."""
        ...


@dataclass(frozen=True, slots=True)
class SpreadJobs:
    """Jobs of one program at different sizes, as in FLEX 4.2.

    As in the paper:

    jobs      their number; ten of them take about 45 minutes
    gap       mean minutes from one submission to the next, exponentially distributed
    spread    standard deviation of the sizes, in the paper's unit; 0: all equal

    Ours, since the paper does not state them: a mean job of ten has 560 maps of 30 s and 60
    reduces of 60 s, which need 10 s to copy. A larger number of jobs has proportionally smaller
    jobs, so that the total is constant. Sizes are evenly spaced, in random order; with
    `largest_first` all but the first.
    """

    jobs: int = 10
    gap: float = 0.0
    spread: float = 1.0
    maps: float = 560.0
    map_seconds: float = 30.0
    reduces: float = 60.0
    reduce_seconds: float = 60.0
    copy_seconds: float = 10.0
    largest_first: bool = False

    def draw(self, rng: np.random.Generator) -> list[Job]:
        """One workload. It draws as many random numbers whatever the parameters are."""
        order = rng.permutation(self.jobs)
        gaps = rng.exponential(size=self.jobs)
        places = np.linspace(-1.0, 1.0, self.jobs) if self.jobs > 1 else np.zeros(1)
        deviation = float(np.std(places)) or 1.0
        if self.largest_first:
            order = np.concatenate([[self.jobs - 1], order[order < self.jobs - 1]])
        sizes = 1.0 + self.spread / SIZE_MEAN * places[order] / deviation
        arrivals = self.gap * SECONDS_A_MINUTE * (np.cumsum(gaps) - gaps[0])
        part = 10 / self.jobs
        return [
            self._job(f"job-{number:02}", part * float(size), float(at))
            for number, (size, at) in enumerate(zip(sizes, arrivals, strict=True))
        ]

    def _job(self, name: str, size: float, arrival: float) -> Job:
        return map_reduce(
            name,
            arrival,
            (max(1, round(size * self.maps)), self.map_seconds),
            (max(1, round(size * self.reduces)), self.reduce_seconds),
            self.copy_seconds,
        )


@dataclass(frozen=True, slots=True)
class GridMix:
    """Jobs of the kinds of GridMix2, the benchmark of Hadoop, in three sizes.

    The paper states only their number, 172. The sizes are ours: small, medium and large jobs
    read 1, 10 and 100 % of the same 300 blocks, and kinds alternate.
    Their total work is about that of the ten jobs of the other figures.

    gap  mean seconds from one submission to the next, exponentially distributed
    """

    gap: float = 5.0
    small: int = 112
    medium: int = 44
    large: int = 16
    blocks: int = 300

    def draw(self, rng: np.random.Generator) -> list[Job]:
        """One workload, in random order."""
        sizes = [self.blocks // 100] * self.small + [self.blocks // 10] * self.medium
        sizes += [self.blocks] * self.large
        count = len(sizes)
        order, gaps = rng.permutation(count), rng.exponential(size=count)
        arrivals = self.gap * (np.cumsum(gaps) - gaps[0])
        return [
            Job(f"job-{number:03}", _KINDS[place % len(_KINDS)](sizes[place]), float(at))
            for number, (place, at) in enumerate(zip(order.tolist(), arrivals, strict=True))
        ]


Counted = tuple[int, float]
"""The number of tasks, and the seconds of work of each."""


def map_reduce(name: str, arrival: float, maps: Counted, reduces: Counted, copy: float) -> Job:
    """A job of maps and reduces."""
    return Job(name, _stage("", maps, reduces, copy), arrival)


def _stage(
    number: str, maps: Counted, reduces: Counted, copy: float, after: frozenset[str] = _NOTHING
) -> tuple[Phase, ...]:
    mapping = Phase(f"map{number}", Tasks(*maps), "map", after)
    reducing = Phase(
        f"reduce{number}", Tasks(*reduces), "reduce", frozenset({mapping.name}), copy=copy
    )
    return mapping, reducing


def _sort(maps: int) -> tuple[Phase, ...]:
    """All data is sent to the reduces and written by them."""
    return _stage("", (maps, 30.0), (max(1, maps // 5), 60.0), 10.0)


def _combine(maps: int) -> tuple[Phase, ...]:
    """A word count; the combiner leaves little data."""
    return _stage("", (maps, 30.0), (max(1, maps // 10), 20.0), 3.0)


def _select(maps: int) -> tuple[Phase, ...]:
    """A sample of few records, by one reduce."""
    return _stage("", (maps, 20.0), (1, 20.0), 2.0)


def _query(maps: int) -> tuple[Phase, ...]:
    """Three stages that each read the output of the one before: a tenth, then all of it."""
    fewer = max(1, maps // 10)
    phases = _stage("-1", (maps, 30.0), (fewer, 40.0), 5.0)
    for number in ("-2", "-3"):
        before = frozenset({phases[-1].name})
        phases += _stage(number, (fewer, 30.0), (fewer, 40.0), 5.0, before)
    return phases


_KINDS = (_sort, _combine, _select, _query, _sort)
"""Two of five sort: GridMix2 has sorts of text and of compressed records."""
