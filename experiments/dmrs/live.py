"""DMRS and its rivals live: real jobs on hosts of two speeds, which this machine emulates.

Two hosts, one of them slowed, whose speeds are stated; or four hosts of a Dask cluster, all of
them slowed, so that they fit on two processors, whose speeds are learned from earlier jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import slotwise
from experiments.dask_cluster import dask_cluster
from experiments.dmrs.experiment import (
    DMRS,
    OURS,
    WEIGHTS,
    bound_of,
    completion_of,
)
from experiments.dmrs.profiles import MB, REDUCES, write_input
from experiments.measured import measured_jobs
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.history import append_history, read_history
from slotwise.core.job import Observation
from slotwise.core.rates import estimate_rates
from slotwise.workload.workload import ProgramJob, Workload

SCHEDULERS = (OURS, DMRS, "fifo", "identical-machine", "map-only")

FAST, SLOW = "fast", "slow"
SLOW_SPEED = 0.5

SPLIT_BYTES = 4 * MB
"""Of a map."""

SIZES = {
    "wordcount": (5 * MB, 10 * MB),
    "sort": (10 * MB, 30 * MB),
    "terasort": (10 * MB, 30 * MB),
}
"""Input of a small and of a large job of each benchmark, chosen for about equal durations."""

JOBS_EACH = 4
"""Jobs of each benchmark, half of them small."""

SECOND_RELEASE = 3.0
"""The arrival of the second half of the jobs, in seconds."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The results of the jobs under one scheduler.

    value, bound  total weighted completion time, weight x seconds, and its lower bound for the
                  task durations of this run
    speed         of the slow host relative to the fast one, measured by the tasks of this run
    """

    scheduler: str
    value: float
    bound: float
    speed: float


def live_runs(
    seed: int,
    number: int,
    schedulers: Sequence[str] = SCHEDULERS,
    scale: float = 1.0,
    hosts: Cluster | None = None,
) -> list[LiveRun]:
    """The same jobs under each scheduler, one run after another; about a minute and a half.

    Small jobs come first; all schedulers use their history of the programs, and on a Dask
    cluster of `hosts` of the speeds. Each experiment begins with another scheduler. `scale`
    multiplies the sizes of the inputs.
    """
    turn = number % len(schedulers)
    with TemporaryDirectory(prefix="slotwise-") as name, ExitStack() as stack:
        folder = Path(name)
        inputs = _write_inputs(folder, scale)
        known = folder / "known.db"
        where: Mapping[str, Any] = {"emulate_hosts": True}
        if hosts is None:
            slotwise.run(_samples(inputs, folder), "fifo", slots=1, history=known)
        else:
            where = {"dask": stack.enter_context(dask_cluster(hosts))}
            samples = _samples(inputs, folder, DASK_SAMPLES)
            slotwise.run(samples, "fifo", history=known, **where)
        jobs = draw_jobs(inputs, np.random.default_rng([seed, number]), scale)
        runs = [
            _run(jobs, scheduler, folder, known, where)
            for scheduler in (*schedulers[turn:], *schedulers[:turn])
        ]
    return sorted(runs, key=lambda run: schedulers.index(run.scheduler))


CLUSTER = Cluster((Host(FAST, {ANY_KIND: 1}), Host(SLOW, {ANY_KIND: 1}, speed=SLOW_SPEED)))

DASK_HOSTS = Cluster(
    tuple(
        Host(f"{name}-{number}", {ANY_KIND: 1}, speed=speed)
        for name, speed in ((FAST, 0.5), (SLOW, 0.5 * SLOW_SPEED))
        for number in (1, 2)
    )
)
"""They need one and a half processors together; the rest is for the manager and Dask."""

DASK_SAMPLES = 10
"""Small jobs of each benchmark that come first, so that the speed of each host is learned."""


def draw_jobs(
    inputs: dict[tuple[str, int], str], rng: np.random.Generator, scale: float = 1.0
) -> list[ProgramJob]:
    """The jobs in random order, without outputs; a random half of them arrives later."""
    kinds = [
        (benchmark, size)
        for benchmark, sizes in SIZES.items()
        for size in sizes * (JOBS_EACH // len(sizes))
    ]
    weights = rng.integers(*WEIGHTS, size=len(kinds), endpoint=True).tolist()
    order = rng.permutation(len(kinds)).tolist()
    late = set(rng.permutation(len(kinds))[len(kinds) // 2 :].tolist())
    return [
        slotwise.mapreduce(
            kinds[kind][0],
            inputs[kinds[kind]],
            id=f"{kinds[kind][0]}-{place:02}",
            arrival=SECOND_RELEASE * scale if place in late else 0.0,
            weight=float(weight),
            reducers=REDUCES[kinds[kind][0]],
            split_bytes=SPLIT_BYTES,
        )
        for place, (kind, weight) in enumerate(zip(order, weights, strict=True))
    ]


def _run(
    jobs: Sequence[ProgramJob],
    scheduler: str,
    folder: Path,
    known: Path,
    where: Mapping[str, Any],
) -> LiveRun:
    outputs = folder / scheduler
    history = folder / f"{scheduler}.db"
    # No scheduler may use the observations of a run under another one.
    earlier = read_history(known)
    append_history(history, earlier)
    mine = tuple(replace(job, output=str(outputs / job.id)) for job in jobs)
    result = slotwise.run(Workload(mine, cluster=CLUSTER), scheduler, history=history, **where)
    assert not result.failed, result.failed
    # The hosts with their speeds, as stated or as learned before the run.
    really = Workload(measured_jobs(result.log), cluster=result.log.header.true_cluster)
    ends = completion_of(result)
    value = sum(job.weight * ends[job.id] for job in jobs)
    seen = Counter(read_history(history)) - Counter(earlier)
    return LiveRun(scheduler, value, bound_of(really), _speed_of_slow(seen.elements()))


def _speed_of_slow(seen: Iterable[Observation]) -> float:
    """The mean speed of the slow hosts, relative to that of the fast ones."""
    speeds = estimate_rates(seen).speeds
    slow, fast = (
        fmean(speed.speed for speed in speeds if speed.host.startswith(name))
        for name in (SLOW, FAST)
    )
    return slow / fast


def _write_inputs(folder: Path, scale: float) -> dict[tuple[str, int], str]:
    """Input of each benchmark and size; the records of two benchmarks are the same."""
    inputs = {}
    for benchmark, sizes in SIZES.items():
        for size in sizes:
            place = folder / f"{benchmark}-{size}"
            place.mkdir()
            inputs[benchmark, size] = write_input(benchmark, place, round(size * scale))
    return inputs


def _samples(
    inputs: dict[tuple[str, int], str], folder: Path, each: int = 1
) -> Iterator[ProgramJob]:
    """Small jobs of each benchmark."""
    for number in range(each):
        for benchmark, (small, _) in SIZES.items():
            name = f"sample-{benchmark}-{number}"
            yield slotwise.mapreduce(
                benchmark,
                inputs[benchmark, small],
                folder / name,
                id=name,
                reducers=REDUCES[benchmark],
                split_bytes=SPLIT_BYTES,
            )
