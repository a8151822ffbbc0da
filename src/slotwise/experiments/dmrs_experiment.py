"""One experiment of the DMRS paper (section VI): its jobs, its cluster, and all schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slotwise.allocation.search.budget import Budget
from slotwise.api import plan_tasks
from slotwise.dmrs.jobs import uneven
from slotwise.dmrs.planning import PLANNERS
from slotwise.experiments.dmrs_profiles import MB, REDUCES, Profile
from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.job import Job, Phase, Tasks
from slotwise.model.pool_tree import PoolTree
from slotwise.workload.workload import Workload

GB = 1 << 30

WEIGHTS = (1, 5)
"""Weights are whole numbers from 1 to 5, each as likely as the others."""

STEPS = 500
"""Of search for `dmrs-best`: the same schedule on every machine."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that are alike: how many, the input of each in bytes, and of each of its maps."""

    jobs: int
    input_bytes: int
    task_bytes: int


@dataclass(frozen=True, slots=True)
class Setting:
    """What the text of the paper has lost; each default is one in the middle of the sweep.

    machines  how many, each of which runs one task at a time
    fast      the part of them that is fast
    ratio     how many times as fast these are; a slow one is as fast as this machine
    interval  between the two releases, in parts of the time that all machines need for 20 GB,
              the work of all jobs of Fig. 2 (a): at 1/2, the first group could just be done
    """

    machines: int = 20
    fast: float = 1 / 2
    ratio: float = 3.0
    interval: float = 1 / 4

    @property
    def cluster(self) -> Cluster:
        """Its machines, the fast ones first."""
        fast = round(self.machines * self.fast)
        speeds = [self.ratio] * fast + [1.0] * (self.machines - fast)
        hosts = (Host(f"m{n:02}", {ANY_KIND: 1}, speed=v) for n, v in enumerate(speeds))
        return Cluster(tuple(hosts))

    def seconds(self, profile: Profile) -> float:
        """The interval between the two releases of jobs of this profile."""
        work = UNIT_BYTES * (profile.map_seconds + profile.reduce_seconds)
        return self.interval * work / sum(host.speed for host in self.cluster.hosts)


UNIT_BYTES = 20 * GB


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs of one benchmark, and where they run."""

    benchmark: str
    batches: tuple[Batch, ...]
    setting: Setting = Setting()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Total weighted completion times by scheduler, weight x seconds, and their bound."""

    values: dict[str, float]
    bound: float


def experiment(
    case: Case, profile: Profile, schedulers: Sequence[str], seed: int, number: int
) -> Outcome:
    """What each scheduler makes of the same jobs; always the same for the same numbers.

    Each schedule is checked. The bound is the one that `slotwise plan` prints.
    """
    jobs = draw_jobs(case, profile, np.random.default_rng([seed, number]))
    cluster = case.setting.cluster
    problem = uneven(jobs, cluster, PoolTree().with_pools(job.pool for job in jobs))
    values = {}
    for name in schedulers:
        runs = PLANNERS[name](problem, Budget(STEPS))
        runs.check(problem)
        values[name] = problem.value(runs.completion)
    bound = plan_tasks(Workload(tuple(jobs), cluster=cluster), "dmrs").bound
    assert all(value >= bound * (1 - ROUNDING) for value in values.values())
    return Outcome(values, bound)


def draw_jobs(case: Case, profile: Profile, rng: np.random.Generator) -> list[Job]:
    """The jobs in random order, of which one half, at random, comes with the second release.

    For one state of `rng` all cases with as many jobs get the same weights and groups, at
    the same places; only the kinds of jobs differ.
    """
    kinds = [batch for batch in case.batches for _ in range(batch.jobs)]
    weights = rng.integers(*WEIGHTS, size=len(kinds), endpoint=True).tolist()
    order = rng.permutation(len(kinds)).tolist()
    late = set(rng.permutation(len(kinds))[len(kinds) // 2 :].tolist())
    second = case.setting.seconds(profile)
    return [
        _job(
            f"{case.benchmark}-{place:02}",
            case.benchmark,
            kinds[kind],
            profile,
            second if place in late else 0.0,
            float(weight),
        )
        for place, (kind, weight) in enumerate(zip(order, weights, strict=True))
    ]


def _job(
    name: str, benchmark: str, batch: Batch, profile: Profile, release: float, weight: float
) -> Job:
    reduces = REDUCES[benchmark]
    maps = Tasks(batch.input_bytes // batch.task_bytes, batch.task_bytes * profile.map_seconds)
    reduce_each = batch.input_bytes * profile.reduce_seconds / reduces
    phases = (
        Phase("map", maps, "map"),
        Phase("reduce", Tasks(reduces, reduce_each), "reduce", frozenset({"map"})),
    )
    return Job(name, phases, arrival=release, weight=weight)


SAME = (Batch(20, GB, 64 * MB),)
"""Of Fig. 2 (a)."""

MIXED = (Batch(12, GB, 64 * MB), Batch(4, GB // 2, 32 * MB), Batch(4, 2 * GB, 128 * MB))
"""Of Fig. 2 (b)."""

MORE_MIXED = (Batch(6, GB, 64 * MB), Batch(6, GB // 2, 32 * MB), Batch(6, 2 * GB, 128 * MB))
"""Of Fig. 2 (c)."""

ELEPHANTS_OF = 18
"""Jobs of Fig. 3."""


def with_elephants(elephants: int) -> tuple[Batch, ...]:
    """The jobs of Fig. 3, so many of which are elephants and the others mice."""
    batches = (
        Batch(elephants, 2 * GB, 64 * MB),
        Batch(ELEPHANTS_OF - elephants, GB // 2, 64 * MB),
    )
    return tuple(batch for batch in batches if batch.jobs)
