"""Where a wait begins after a launch away from the input: both settings, by two figures.

`slides-levels` compares response and locality of the jobs of the slides, and of jobs whose
whole input is on five of the hundred nodes. `slides-analysis` repeats the setting of the
analysis of delay scheduling (EuroSys 2010, section 4): every slot is equally likely to become
free next, and the job that waits is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from experiments.slides.cluster import (
    COPIES,
    HOSTS,
    MAP_SLOTS,
    NETWORK,
    WAITS,
    JobType,
    TaskTimings,
    Trial,
)
from experiments.slides.delay_analysis import locality_of_job, wait_for_skips
from experiments.slides.figure import WITHOUT, SlidesFigure, SlidesPoint, SlidesRow, percent
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event
from slotwise.core.job import Block, Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.assignment.delay import LEVELS, Delay
from slotwise.policy.scheduler import Scheduler, make_allocator

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

HOT = 5
"""The hosts that hold all blocks of hot jobs."""

TASKS, TASK_SECONDS, APART, JOBS = 20, 100.0, 400.0, 150
"""Tasks of a job that is observed, their mean time, the least time between two such jobs, and
their number in an experiment."""

SKIPS = (10, 24, 40)
"""What the waits of the analysis are worth."""

SCHEMES = (WITHOUT, *LEVELS)


def levels_points(types: Sequence[JobType], crowd: JobType) -> tuple[SlidesPoint, ...]:
    """The jobs of the slides together, and hot jobs alone and beside those of others."""
    hot = JobType("hot scan", maps=200, users=1, pool="hot", hot=HOT)
    trials = {
        "together": (tuple(types), 1_600.0),
        "alone": ((hot,), 1_600.0),
        "beside others": ((crowd, hot), 3_200.0),
    }
    points = []
    for where, (kinds, seconds) in trials.items():
        for scheme in SCHEMES:
            waits = None if scheme == WITHOUT else WAITS
            levels = scheme if scheme in LEVELS else LEVELS[0]
            trial = Trial(kinds, "fair", waits, seconds, network=NETWORK, levels=levels)
            points += [
                SlidesPoint(f"{kind.name}, {where}", scheme, trial, kind.name)
                for kind in kinds
                if kind is not crowd
            ]
    return tuple(points)


def levels_table(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Table:
    """Locality and response of each type of job under each setting."""
    table = Table()
    table.add_column(figure.axis, vertical="bottom")
    for scheme in SCHEMES:
        table.add_column(f"{scheme}\nnode / rack, s", justify="right")
    found = {(row.x, row.scheme): row for row in rows}
    for x in dict.fromkeys(row.x for row in rows):
        cells = []
        for row in (found[x, scheme] for scheme in SCHEMES):
            cells.append(f"{percent(row.node)} / {percent(row.rack)}, {row.response or 0:.1f}")
        table.add_row(str(x), *cells)
    return table


def draw_levels(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    """Response and locality as bars."""
    from experiments.slides.pictures import draw_levels

    return draw_levels(figure, rows)


def analysis_points() -> tuple[SlidesPoint, ...]:
    """Waits worth each number of skips, under both settings, with l(D)."""
    points = []
    for skips in SKIPS:
        wait = wait_for_skips(skips, HOSTS, MAP_SLOTS, TASK_SECONDS)
        expected = locality_of_job(TASKS, skips, HOSTS, COPIES)
        for levels in LEVELS:
            trial = Trial((JobType("job", TASKS, 1),), waits=(wait, wait), levels=levels)
            points.append(SlidesPoint(skips, levels, trial, "job", expected))
    return tuple(points)


def observe_analysis(trial: Trial, seed: int, number: int) -> Mapping[str, TaskTimings]:
    """The launches of jobs of 20 tasks that come one after another to a busy cluster.

    The tasks of another job keep all slots busy. They and those observed end at random
    (exponentially). The weight of their pool lets the jobs observed be asked first.
    """
    assert trial.waits, "the analysis is of waits"
    rng = np.random.default_rng([seed, number])
    apart = APART + 3 * TASKS * trial.waits[0] / 10
    count = int(1.3 * apart * JOBS * HOSTS * MAP_SLOTS / TASK_SECONDS)
    hosts = tuple(Host(f"h{n}", {"task": MAP_SLOTS}) for n in range(HOSTS))
    jobs = [Job("crowd", (Phase("map", Tasks(count, _lengths(rng, count))),))]
    for job in range(JOBS):
        homes = [rng.choice(HOSTS, COPIES, replace=False) for _ in range(TASKS)]
        blocks = tuple(Block(frozenset(f"h{n}" for n in of_task)) for of_task in homes)
        phase = Phase("map", Tasks(TASKS, _lengths(rng, TASKS), blocks))
        jobs.append(Job(f"job-{job}", (phase,), 2 * TASK_SECONDS + apart * job, "observed"))
    cluster, seen = Cluster(hosts), TaskTimings(seconds=apart * JOBS)

    def count_launches(
        now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        for one in decisions:
            if isinstance(one, Launch) and one.phase.job != "crowd":
                seen.launches[one.locality] += 1

    scheduler = Scheduler(make_allocator("fair"), Delay(*trial.waits, trial.levels), 1e6)
    state = State(cluster, [Pool("observed", weight=1e6)])
    run(scheduler, SimulatedBackend(cluster, jobs, Simulation()), state, count_launches)
    assert seen.launches.total() == JOBS * TASKS
    return {"job": seen}


def _lengths(rng: np.random.Generator, count: int) -> tuple[float, ...]:
    return tuple(rng.exponential(TASK_SECONDS, count).tolist())
