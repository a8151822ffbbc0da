"""One experiment of the DMRS paper (section VI): its jobs, its cluster, and all schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

import slotwise
from experiments.dmrs.profiles import MB, REDUCES, Profile
from experiments.dmrs.waiting import map_only_eager
from experiments.measured import measured_jobs
from slotwise.backends.simulated.backend import Simulation
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import PoolTree
from slotwise.policy.dmrs.jobs import related_machines
from slotwise.policy.dmrs.planning import PLANNERS
from slotwise.policy.search.budget import Budget
from slotwise.results import Result
from slotwise.workload.workload import Workload

GB = 1 << 30

WEIGHTS = (1, 5)
"""Weights are whole numbers from 1 to 5, uniformly distributed."""

STEPS = 500
"""Search steps of `dmrs-best`: a number of steps gives the same schedule on every machine."""

ROUNDING = 1e-9

DMRS, OURS = "dmrs", "dmrs-best"
EAGER = "map-only, eager"
RIVALS = ("fifo", "identical-machine", "map-only", EAGER)

AT_RUN_TIME = "dmrs at run time"
NOISY = "dmrs at run time, noisy"

NOISES: Mapping[str, float] = MappingProxyType({AT_RUN_TIME: 0.0, NOISY: 0.25})
"""DMRS in a simulated run (DMRS V), and the spread of the true task durations. The second half
of the jobs is unknown until their release."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Equal jobs: their number, the input of each in bytes, and the input of each map."""

    jobs: int
    input_bytes: int
    task_bytes: int


@dataclass(frozen=True, slots=True)
class DmrsSetting:
    """The numbers missing from the text of the paper; the defaults are the middle of the sweep.

    machines  their number; each runs one task at a time
    fast      the fraction of fast machines
    ratio     the speed of a fast machine over that of a slow one, which is as fast as this
              machine
    interval  between the two releases, as a fraction of the time that all machines need for
              20 GB, the work of all jobs of Fig. 2 (a): at 1/2, the first group can just finish
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
    setting: DmrsSetting = DmrsSetting()


@dataclass(frozen=True, slots=True)
class DmrsTotals:
    """Total weighted completion times by scheduler, weight x seconds, and their bounds.

    The bound is the same for all schedulers, unless task durations differ from the estimates.
    """

    values: dict[str, float]
    bounds: dict[str, float]


def experiment(
    case: Case, profile: Profile, schedulers: Sequence[str], seed: int, number: int
) -> DmrsTotals:
    """The value of each scheduler for the same jobs; deterministic for the same arguments.

    Each schedule is checked. The bound is the one that `slotwise plan` prints.
    """
    jobs = draw_jobs(case, profile, np.random.default_rng([seed, number]))
    workload = Workload(tuple(jobs), cluster=case.setting.cluster)
    bound = bound_of(workload)
    values, bounds = {}, {}
    for name in schedulers:
        if name in NOISES:
            truth = Simulation(seed=1000 * seed + number, noise=NOISES[name])
            values[name], bounds[name] = _at_run_time(workload, truth)
        else:
            values[name], bounds[name] = _planned(workload, name), bound
        assert values[name] >= bounds[name] * (1 - ROUNDING)
    return DmrsTotals(values, bounds)


def bound_of(workload: Workload) -> float:
    """A lower bound on the total weighted completion time of these jobs."""
    return slotwise.plan_tasks(workload, DMRS).bound


def weighted_completion(jobs: Sequence[Job], completion: Mapping[str, float]) -> float:
    """The total weighted completion time."""
    return sum(job.weight * completion[job.id] for job in jobs)


def _planned(workload: Workload, name: str) -> float:
    jobs, cluster = _jobs(workload), workload.cluster
    assert cluster is not None
    problem = related_machines(jobs, cluster, PoolTree().with_pools(job.pool for job in jobs))
    if name == EAGER:
        runs = map_only_eager(problem)
    else:
        runs = PLANNERS[name](problem, Budget(STEPS))
    runs.check(problem)
    return problem.value(runs.completion)


def _at_run_time(workload: Workload, truth: Simulation) -> tuple[float, float]:
    """The value of a simulated run, and the bound for its true task durations."""
    result = slotwise.simulate(workload, DMRS, simulation=truth)
    really = replace(workload, jobs=measured_jobs(result.log))
    return weighted_completion(_jobs(workload), completion_of(result)), bound_of(really)


def completion_of(result: Result) -> dict[str, float]:
    """The completion time of each job of a run in which all jobs completed."""
    ends = {name: job["completion"] for name, job in result.jobs.items()}
    return {name: end for name, end in ends.items() if end is not None}


def _jobs(workload: Workload) -> list[Job]:
    return [job for job in workload.jobs if isinstance(job, Job)]


def draw_jobs(case: Case, profile: Profile, rng: np.random.Generator) -> list[Job]:
    """The jobs in random order; a random half of them arrives with the second release.

    For one state of `rng` all cases with the same number of jobs get the same weights and
    groups, at the same positions; only the kinds of jobs differ.
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
    """The jobs of Fig. 3: the given number of elephants; the others are mice."""
    batches = (
        Batch(elephants, 2 * GB, 64 * MB),
        Batch(ELEPHANTS_OF - elephants, GB // 2, 64 * MB),
    )
    return tuple(batch for batch in batches if batch.jobs)
