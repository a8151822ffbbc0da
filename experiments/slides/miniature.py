"""Locality by the size of a job, live and small: a Dask cluster on the hosts of a MooseFS.

Four hosts have two slots and a chunk server each. Every map reads a file of one block, which
MooseFS has put on one of them, and then sleeps. Users of two pools keep all slots busy, as in
the simulated figure.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import slotwise
from experiments import locators
from experiments.dask_cluster import dask_cluster
from experiments.moosefs import MOUNT, address, lacks, run_on_moosefs
from experiments.slides.cluster import NOISE, JobType, TaskTimings, Trial, count_tasks
from experiments.slides.delay_analysis import locality_of_launch
from experiments.slides.paced_read import PacedRead
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.decisions import Decision
from slotwise.core.errors import InputError
from slotwise.core.events import Event
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool
from slotwise.workload.workload import ProgramJob

HOSTS, SLOTS, COPIES = 4, 2, 1
"""Hosts, and the slots of each. With more copies, a block would be on every second host."""

BLOCKS, BLOCK_BYTES = 80, 1 << 18
"""The files from which the maps of a job are drawn. A file is a block of its size."""

MAP_SECONDS = 0.3

WAITS = (0.2, 0.2)
"""Seconds until a job takes any slot; there is one rack. About five slots become free in it."""

SIZES = (1, 2, 4, 8)
"""Maps of a job."""

CROWD = JobType("crowd", 2 * HOSTS * SLOTS, 2, MAP_SECONDS, pool="crowd", reads=False)
"""Other users' jobs: each has twice as many maps as there are slots, and no input."""

GIVEN, FOUND = "trial.pickle", "seen.pickle"
"""Files by which the process in the namespaces gets a trial and returns its results."""

ROOT = Path(__file__).parents[2]


def trial_of(maps: int, scheduler: str, waits: tuple[float, float] | None) -> Trial:
    """Jobs of this number of maps among those of others."""
    users = max(1, min(2, HOSTS // maps))
    job = JobType("job", maps, users, MAP_SECONDS, pool="observed")
    return Trial((CROWD, job), scheduler, waits, seconds=20.0, warm_up=3.0)


def expected_locality(maps: int, waits: tuple[float, float] | None) -> float:
    """The locality of such jobs by the analysis, if slots become free at random.

    `locality_of_job` is for many hosts. Here K blocks may be on the same ones of few.
    """
    skips = waits[0] * HOSTS * SLOTS / MAP_SECONDS if waits else 0.0
    parts = (1 - (1 - COPIES / HOSTS) ** left for left in range(1, maps + 1))
    return fmean(locality_of_launch(part, skips + 1) for part in parts)


def observe_on_moosefs(trial: Trial, seed: int, number: int) -> dict[str, TaskTimings]:
    """Run a trial on a Dask cluster and a MooseFS of its own; what the jobs of each type did.

    InputError if MooseFS cannot run on this machine.
    """
    if reason := lacks():
        raise InputError(f"MooseFS cannot run here: it {reason}")
    with TemporaryDirectory(prefix="slotwise-") as name:
        folder = Path(name)
        (folder / GIVEN).write_bytes(pickle.dumps((trial, seed, number)))
        command = [sys.executable, "-m", "experiments.slides.miniature"]
        path = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        run_on_moosefs(command, folder, HOSTS, COPIES, path)
        seen: dict[str, TaskTimings] = pickle.loads((folder / FOUND).read_bytes())
    return seen


def main() -> None:
    """Run the trial that is given in this folder, which `run_on_moosefs` has begun."""
    trial, seed, number = pickle.loads(Path(GIVEN).read_bytes())
    blocks = write_blocks(Path(MOUNT))
    hosts = [
        Host(f"host-{n}", {ANY_KIND: SLOTS}, addresses=(address(n),)) for n in range(HOSTS)
    ]
    with dask_cluster(Cluster(tuple(hosts))) as scheduler:
        seen = observe_live(trial, scheduler, blocks, 1_000_003 * seed + number)
    Path(FOUND).write_bytes(pickle.dumps(seen))


def write_blocks(folder: Path) -> list[Path]:
    """Files of a line each, and so of a map each; MooseFS chooses where."""
    blocks = [folder / f"block-{number:03}.txt" for number in range(BLOCKS)]
    for block in blocks:
        with block.open("w") as file:
            file.write("x" * (BLOCK_BYTES - 1) + "\n")
            file.flush()
            os.fsync(file.fileno())  # MooseFS tells of blocks that it has.
    return blocks


def observe_live(
    trial: Trial, scheduler: str, blocks: Sequence[Path], seed: int
) -> dict[str, TaskTimings]:
    """What the jobs of each type do in the time of the trial, on this Dask cluster."""
    seen = {kind.name: TaskTimings(seconds=trial.seconds) for kind in trial.types}
    end = trial.warm_up + trial.seconds

    def count_turn(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        if trial.warm_up <= now < end:
            count_tasks(seen, events, decisions)

    with slotwise.Session(
        dask=scheduler,
        scheduler=trial.scheduler,
        pools=[Pool(kind.pool) for kind in trial.types],
        assigner="delay" if trial.waits else "greedy",
        waits=trial.waits,
        progress=count_turn,
    ) as session:
        users = [
            threading.Thread(
                target=use, args=(session, kind, blocks, end, random.Random(f"{seed} {user}"))
            )
            for kind in trial.types
            for user in range(kind.users)
        ]
        for user in users:
            user.start()
        for user in users:
            user.join()
    return seen


def use(
    session: slotwise.Session,
    kind: JobType,
    blocks: Sequence[Path],
    end: float,
    chance: random.Random,
) -> None:
    """Run one job of a type after another until this time of the session.

    All maps of a job that reads take the same time; those of others differ.
    """
    for number in count():
        if session.now >= end:
            return
        seconds = [
            kind.map_seconds * chance.lognormvariate(-(NOISE**2) / 2, NOISE)
            for _ in range(kind.maps)
        ]
        phase = Phase("map", Tasks(kind.maps, tuple(seconds)), kind="map")
        arriving: Job | ProgramJob = Job(f"{kind.name}-{number}", (phase,), pool=kind.pool)
        if kind.reads:
            arriving = slotwise.mapreduce(
                PacedRead,
                list(map(str, chance.sample(blocks, kind.maps))),
                f"out-{kind.name}-{threading.get_ident()}-{number}",
                id=arriving.id,
                pool=kind.pool,
                input_hosts=locators.moosefs,
                parameters={"line_seconds": seconds[0]},
            )
        session.run(arriving).result()


if __name__ == "__main__":
    main()
