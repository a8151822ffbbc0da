"""Promises of dates when jobs state wrong times, beside EASY backfilling.

    .venv/bin/python -m experiments.promises

draws jobs whose stated times are wrong in five ways, lets a part of them ask for dates, and
prints how many dates were promised and kept under FAIR and FLEX, how many of the same dates are
met without promises and under EASY, which relies on the stated times, and what promises cost in
mean response. `--log LOG.swf` takes the first jobs of a log and what they request instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import log
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments.endings import Endings
from experiments.printed import WIDTH_ELSEWHERE
from experiments.unknown.experiment import Misinforming
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.cli.application import Application, exit_codes
from slotwise.cli.parsing import Json
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import AcceptPromise, BreakPromise
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import all_of, run
from slotwise.core.objective import is_met
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler
from slotwise.workload.swf import read_swf

SLOTS, WIDEST = 32, 16
"""The slots, and the most tasks of a job. Half of the jobs are gangs."""

JOBS = 400
"""The jobs of a draw."""

PROGRAMS = 20
"""Jobs of the same program are wrong alike."""

ASKING = 0.2
"""The part of the jobs that ask for a promise."""

SLACK = (1.5, 10.0)
"""The range of the time to the asked date, by the stated time of the job alone."""

LOADS = (0.7, 0.9)

KEEPING = ("fair", "flex")
"""The schedulers that keep promises."""

COSTS = ("cost", "by_easy", "plain_by_easy")
"""The fields of a row that are means by draw."""

Numbers = np.random.Generator
Factors = np.ndarray


def _spread(deviation: float, rng: Numbers, programs: np.ndarray) -> Factors:
    """Half of the variance of the logarithm is that of the program."""
    each = deviation / 2**0.5
    of_program = rng.normal(0, each, PROGRAMS)[programs]
    factors: Factors = np.exp(of_program + rng.normal(0, each, len(programs)))
    return factors


def _adversarial(rng: Numbers, programs: np.ndarray) -> Factors:
    """A quarter of the programs is honest first, and later states a tenth of the truth."""
    turns = rng.random(PROGRAMS) < 0.25
    is_late = np.arange(len(programs)) > len(programs) / 2
    honest = np.exp(rng.normal(0, 0.3, len(programs)))
    return np.where(turns[programs] & is_late, 10.0, 1.0) * honest


ERRORS: Mapping[str, Callable[[Numbers, np.ndarray], Factors]] = MappingProxyType(
    {
        "exact": lambda rng, programs: np.ones(len(programs)),
        "spread 0.5": partial(_spread, 0.5),
        "spread 1": partial(_spread, 1.0),
        "limits": lambda rng, programs: rng.uniform(0.05, 1.0, len(programs)),
        "adversarial": _adversarial,
    }
)
"""How the true times of jobs are drawn, by those that they state."""


@dataclass(frozen=True, slots=True)
class PromisesRow:
    """What became of promises under one scheduler, and of the same dates otherwise.

    kept, plain, easy  the parts of the accepted dates that were met: with promises, under the
                       same scheduler without promises, and under EASY
    cost               the mean response by that of the same scheduler without promises
    by_easy            the mean response by that under EASY
    plain_by_easy      the same without promises
    """

    errors: str
    load: float
    scheduler: str
    asked: int
    accepted: int
    kept: float
    plain: float
    easy: float
    cost: float
    by_easy: float
    plain_by_easy: float


class _Answers:
    """A record for the loop: the accepted promises, and those that were broken."""

    def __init__(self) -> None:
        self.accepted: dict[str, float] = {}
        self.broken: set[str] = set()

    def __call__(
        self, now: float, events: Iterable[object], decisions: Iterable[object]
    ) -> None:
        for decision in decisions:
            if isinstance(decision, AcceptPromise):
                self.accepted[decision.job] = decision.at
            elif isinstance(decision, BreakPromise):
                self.broken.add(decision.job)


def drawn(errors: str, load: float, numbers: Sequence[int]) -> tuple[list[Job], list[Job]]:
    """The jobs of a draw as they are, and as they state it."""
    rng = np.random.default_rng([*numbers, list(ERRORS).index(errors)])
    programs = rng.integers(PROGRAMS, size=JOBS)
    usual = np.exp(rng.normal(3.0, 1.0, PROGRAMS))[programs]
    stated = np.clip(usual * np.exp(rng.normal(0, 0.5, JOBS)), 1.0, 1000.0)
    true = stated * ERRORS[errors](rng, programs)
    widths = np.minimum(WIDEST, 2 ** rng.integers(0, 5, JOBS))
    gangs = rng.random(JOBS) < 0.5
    gap = float((true * widths).mean()) / (SLOTS * load)
    arrivals = np.cumsum(rng.exponential(gap, JOBS))
    jobs = [
        Job(
            f"job-{number:03}",
            (Phase("phase", Tasks(int(widths[number]), work), gang=bool(gangs[number])),),
            float(arrivals[number]),
            program=f"program-{programs[number]}",
            time_requested=work,
        )
        for number, work in enumerate(stated.tolist())
    ]
    told = asking(jobs, rng)
    return [_taking(job, float(work)) for job, work in zip(told, true, strict=True)], told


def asking(jobs: Sequence[Job], rng: Numbers) -> list[Job]:
    """The jobs, of which a part asks for promises by what they state."""
    asks = rng.random(len(jobs)) < ASKING
    slack = np.exp(rng.uniform(log(SLACK[0]), log(SLACK[1]), len(jobs)))
    return [
        replace(job, promise=job.arrival + float(factor) * _alone(job)) if one else job
        for job, one, factor in zip(jobs, asks, slack, strict=True)
    ]


def _alone(job: Job) -> float:
    """The time that a job states."""
    work = job.phases[0].tasks.work
    assert isinstance(work, float), "all tasks of a job are equal here"
    return work


def _taking(job: Job, work: float) -> Job:
    phase = job.phases[0]
    return replace(job, phases=(replace(phase, tasks=replace(phase.tasks, work=work)),))


def measured(errors: str, load: float, seed: int, number: int) -> list[PromisesRow]:
    """The rows of one draw."""
    true, told = drawn(errors, load, (seed, number))
    return compared(errors, load, true, told, Cluster.of_slots(SLOTS))


def compared(
    errors: str, load: float, true: Sequence[Job], told: Sequence[Job], cluster: Cluster
) -> list[PromisesRow]:
    """The rows of these jobs, of which the schedulers are told otherwise."""
    without = [replace(job, promise=None) for job in told]
    easy, _ = _simulated("easy", true, without, cluster)
    rows = []
    for name in KEEPING:
        ends, answers = _simulated(name, true, told, cluster)
        plain, _ = _simulated(name, true, without, cluster)

        def met(completed: Mapping[str, float], answers: _Answers = answers) -> float:
            due = answers.accepted.items()
            return fmean([is_met(at, completed[job]) for job, at in due]) if due else 1.0

        def mean(completed: Mapping[str, float]) -> float:
            return fmean(completed[job.id] - job.arrival for job in true)

        assert {j for j, at in answers.accepted.items() if not is_met(at, ends[j])} == (
            answers.broken
        ), "a promise is broken if its date is missed"
        asked = sum(job.promise is not None for job in told)
        parts = met(ends), met(plain), met(easy)
        costs = [mean(a) / mean(b) for a, b in ((ends, plain), (ends, easy), (plain, easy))]
        rows.append(
            PromisesRow(errors, load, name, asked, len(answers.accepted), *parts, *costs)
        )
    return rows


def _simulated(
    name: str, true: Sequence[Job], told: Sequence[Job], cluster: Cluster
) -> tuple[dict[str, float], _Answers]:
    """When each job ended, and what became of promises."""
    state, answers = State(cluster), _Answers()
    endings = Endings(state)
    backend = Misinforming(SimulatedBackend(cluster, true), {job.id: job for job in told})
    run(make_scheduler(name), backend, state, all_of([endings, answers]))
    return endings.completed, answers


def of_log(path: Path, first: int, seed: int) -> list[PromisesRow]:
    """The rows of the first jobs of a log, which state what they request."""
    told, true = (read_swf(path, true_times=known, first=first) for known in (False, True))
    jobs = asking(
        [
            _taking(job, job.time_requested or _alone(job)) if job.phases else job
            for job in told.jobs
        ],
        np.random.default_rng(seed),
    )
    return compared(path.stem, 0.0, true.jobs, jobs, told.cluster)


def summed(rows: Sequence[PromisesRow]) -> list[PromisesRow]:
    """One row for each kind of errors, load and scheduler: sums, and means by draw."""
    found = []
    for key in dict.fromkeys((row.errors, row.load, row.scheduler) for row in rows):
        same = [row for row in rows if (row.errors, row.load, row.scheduler) == key]
        accepted = sum(row.accepted for row in same)
        parts = [
            sum(row.accepted * getattr(row, part) for row in same) / max(1, accepted)
            for part in ("kept", "plain", "easy")
        ]
        costs = [fmean(getattr(row, cost) for row in same) for cost in COSTS]
        asked = sum(row.asked for row in same)
        found.append(PromisesRow(*key, asked, accepted, *parts, *costs))
    return found


def table_of(rows: Sequence[PromisesRow]) -> Table:
    """All rows."""
    table = Table(title="Dates promised, and met", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("stated times", "load", "scheduler"):
        table.add_column(heading)
    for heading in ("asked", "accepted", "kept", "met without", "met by EASY"):
        table.add_column(heading, justify="right")
    for heading in ("response / without", "/ EASY", "without / EASY"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            *(row.errors, f"{row.load:g}" if row.load else "", row.scheduler),
            *(str(row.asked), str(row.accepted)),
            *(f"{part:.1%}" for part in (row.kept, row.plain, row.easy)),
            *(f"{cost:.3f}" for cost in (row.cost, row.by_easy, row.plain_by_easy)),
        )
    return table


app = Application(add_completion=False)


@app.command()
def promises(
    runs: Annotated[int, typer.Option(min=1, help="Draws for each row.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other jobs.")] = 0,
    swf: Annotated[
        Path | None, typer.Option("--log", help="A log in SWF, instead of draws.")
    ] = None,
    first: Annotated[int, typer.Option(min=1, help="The first jobs of the log.")] = 2000,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    as_json: Json = False,
) -> None:
    """Promise dates to jobs that state wrong times, and count what is kept."""
    with exit_codes():
        if swf is not None:
            rows = of_log(swf, first, seed)
        else:
            cases = [(e, x, seed, n) for e in ERRORS for x in LOADS for n in range(runs)]
            with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
                found = pool.map(measured, *zip(*cases, strict=True))
                rows = summed([row for rows in found for row in rows])
        if as_json:
            print(json.dumps([asdict(row) for row in rows]))
        else:
            Console(width=None if Console().is_terminal else WIDTH_ELSEWHERE).print(
                table_of(rows)
            )


if __name__ == "__main__":
    app()
