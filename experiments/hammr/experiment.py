"""Hammr, Fig. 5: three pools share six slots, simulated and live (Hammr 7.3).

Each pool counts the words of the same text by six maps and one reduce. A and B begin, C arrives
after 5 s. The paper states the times of events, but not the duration of a map. Its statement
about time 55 nearly determines it: C, which gets its 3 slots at about 7, ends its fourth map
then, so two maps of C take 48 s; and B, with 2 slots, has its last two running then. Our maps
take 23 to 29 s, not all the same, so that the slots of C become free one after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import slotwise
from experiments.dask_cluster import dask_cluster
from experiments.hammr.paced_words import map_words, reduce_words, word_of
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.timeline import timeline_of
from slotwise.results import Result
from slotwise.workload.workload import DataflowJob, Workload

POOLS = ("A", "B", "C")
SLOTS = 6

DASK_HOSTS = Cluster(tuple(Host(f"host-{n}", {ANY_KIND: 2}) for n in range(1, 4)))
"""The same number of slots on three hosts."""

COMES = 5.0
"""The arrival of C, in seconds."""

MAPS = (23.0, 24.0, 25.0, 25.0, 27.0, 29.0)
REDUCE = 10.0
"""Durations of tasks, in seconds."""

FRACTION, PATIENCE, GRACE = 2 / 3, 1.0, 1.0
"""A pool below two thirds of its share for PATIENCE seconds takes slots back (Hammr 5.2); the
stopped tasks have GRACE seconds to end. The paper does not state the last two numbers."""

EPOCH = 0.5

LINE = 0.5
"""Seconds of the word count for a line of its text."""

WORDS = ("able", "acid", "also", "away", "baby", "back", "ball", "band", "bank", "base")
"""Words of equal length, so that texts with the same number of words have the same size. A
reduce takes the same time for each of them."""

WORDS_EACH = 3_000
"""Words of the text of a map, whatever the number of its lines."""


@dataclass(frozen=True, slots=True)
class Held:
    """The slots that pools hold from an instant on, in seconds of the paper's clock."""

    seconds: float
    slots: Mapping[str, float]


def simulated() -> list[Held]:
    """The shares over time on the simulated host."""
    jobs = tuple(_stated(pool) for pool in POOLS)
    result = slotwise.simulate(
        Workload(jobs, pools=_pools()),
        "fair",
        slots=SLOTS,
        preemption=_preemption(1.0),
        epoch_seconds=EPOCH,
    )
    return _held(result, 1.0)


def live(speed: float, hosts: Cluster | None = None) -> list[Held]:
    """The same for a live word count, faster by this factor, here or on hosts of Dask.

    The word count has no hook for stop requests: its maps are killed after the grace
    period, and their words are counted again. AssertionError if a count is wrong.
    """
    with TemporaryDirectory(prefix="slotwise-") as name, ExitStack() as stack:
        folder = Path(name)
        words = _write_texts(folder)
        jobs = tuple(_counting(pool, folder, speed) for pool in POOLS)
        result = slotwise.run(
            Workload(jobs, pools=_pools(), folder=folder),
            "fair",
            slots=SLOTS if hosts is None else None,
            dask=None if hosts is None else stack.enter_context(dask_cluster(hosts)),
            preemption=_preemption(speed),
            epoch_seconds=EPOCH / speed,
        )
        for job in jobs:
            assert _read_counts(Path(job.output)) == words, f"{job.id} counts every word once"
    return _held(result, speed)


def _pools() -> tuple[Pool, ...]:
    return tuple(Pool(name, float(weight)) for weight, name in enumerate(POOLS, 1))


def _preemption(speed: float) -> Preemption:
    return Preemption(fair_after=PATIENCE / speed, fraction=FRACTION, grace=GRACE / speed)


def _arrival(pool: str) -> float:
    return COMES if pool == POOLS[-1] else 0.0


def _stated(pool: str) -> Job:
    maps = Phase("map", Tasks(len(MAPS), MAPS), "map")
    reduce = Phase("reduce", Tasks(1, REDUCE), "reduce", frozenset({"map"}))
    return Job(f"words-{pool}", (maps, reduce), _arrival(pool), pool)


def _counting(pool: str, folder: Path, speed: float) -> DataflowJob:
    """The word count as a graph: a map for each text, and a reduce joined by file channels, as
    the MapReduce interface of Hammr makes it (7.2)."""
    flow = slotwise.Dataflow()
    size = (folder / "text" / "0.txt").stat().st_size
    lines = flow.read(str(folder / "text" / "*.txt"), split_bytes=size)
    maps = flow.node(map_words, lines, parameters={"line_seconds": LINE / speed})
    reduce = flow.node(
        reduce_words,
        maps.file(by=word_of, sort=True),
        parameters={"word_seconds": REDUCE / len(WORDS) / speed},
    )
    flow.write(reduce)
    return flow.job(
        f"words-{pool}",
        str(folder / f"counts-{pool}"),
        arrival=_arrival(pool) / speed,
        pool=pool,
        work_dir=str(folder / "work"),
    )


def _write_texts(folder: Path) -> Counter[str]:
    """A text for each map, all of one size, so that each is a split; and the number of
    occurrences of each word in all of them."""
    (folder / "text").mkdir()
    words = list(islice(cycle(WORDS), WORDS_EACH))
    for number, seconds in enumerate(MAPS):
        lines = round(seconds / LINE)
        text = "".join(
            " ".join(words[line * WORDS_EACH // lines : (line + 1) * WORDS_EACH // lines])
            + "\n"
            for line in range(lines)
        )
        (folder / "text" / f"{number}.txt").write_text(text, encoding="utf-8")
    return Counter({word: len(MAPS) * n for word, n in Counter(words).items()})


def _read_counts(output: Path) -> dict[str, int]:
    [part] = output.glob("part-*")
    lines = part.read_text(encoding="utf-8").splitlines()
    return {word: int(count) for word, count in (line.split("\t") for line in lines)}


def _held(result: Result, speed: float) -> list[Held]:
    steps = timeline_of(result.log).held_by_pool
    instants = sorted({instant for pool in POOLS for instant in steps[pool].times})
    held = {
        pool: dict(zip(steps[pool].times, steps[pool].values, strict=True)) for pool in POOLS
    }
    now = dict.fromkeys(POOLS, 0.0)
    course = []
    for instant in instants:
        now |= {pool: held[pool][instant] for pool in POOLS if instant in held[pool]}
        course.append(Held(instant * speed, dict(now)))
    return course


def mean_held(course: Sequence[Held], start: float, end: float) -> dict[str, float]:
    """The mean slots of each pool from `start` to `end`."""
    ends = [*(held.seconds for held in course[1:]), end]
    area = dict.fromkeys(POOLS, 0.0)
    for held, until in zip(course, ends, strict=True):
        length = min(until, end) - max(held.seconds, start)
        if length > 0:
            for pool in POOLS:
                area[pool] += length * held.slots[pool]
    return {pool: area[pool] / (end - start) for pool in POOLS}
