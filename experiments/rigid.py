"""Backfilling of a log of rigid jobs, beside the published slowdowns.

    .venv/bin/python -m experiments.rigid KTH-SP2.swf

simulates the log on one host under each scheduler, with the times that jobs requested and with
the true ones, and prints mean bounded slowdowns and waits. FLEX is also told what jobs request,
without and with promises. The published values of KTH-SP2 are those of the repository
predictsim.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments.endings import Endings
from experiments.printed import WIDTH_ELSEWHERE
from experiments.promises import Answers, asking, requesting
from experiments.unknown.experiment import Misinforming
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.cli.application import Application, exit_codes
from slotwise.cli.parsing import Json
from slotwise.core.decisions import Launch
from slotwise.core.job import Job
from slotwise.core.loop import all_of, run
from slotwise.core.state import State
from slotwise.policy.scheduler import BACKFILLINGS, make_scheduler
from slotwise.workload.swf import SwfLog, read_swf

BOUND = 10.0
"""Seconds: shorter jobs count as this long, so that a slowdown of seconds does not matter."""

PROMISES = "requested, promises"
"""A part of the jobs asks for promises of dates, by what they request."""

KNOWS = ("requested", "true", "nothing", PROMISES)
"""What a scheduler knows of run times: what jobs request, the truth, or neither."""

CASES = (
    *((name, knows) for name in BACKFILLINGS for knows in ("requested", "true")),
    *(("fair", "nothing"), ("flex", "nothing"), ("flex", "requested"), ("flex", "true")),
    ("flex", PROMISES),
)
"""The schedulers that are compared, and what they know."""

PUBLISHED = {
    ("easy", "requested"): 92.58,
    ("easy-sjbf", "requested"): 69.41,
    ("easy", "true"): 71.72,
    ("easy-sjbf", "true"): 49.85,
}
"""Mean bounded slowdowns of KTH-SP2."""


@dataclass(frozen=True, slots=True)
class RigidRow:
    """What jobs suffered under one scheduler.

    slowdown  the mean bounded slowdown
    wait      the mean wait, seconds
    jobs      the number of jobs
    seconds   what the simulation took
    promised  the number of dates that were promised, and of those that were kept
    """

    scheduler: str
    knows: str
    slowdown: float
    wait: float
    jobs: int
    seconds: float
    promised: tuple[int, int] = (0, 0)


class Starts:
    """A record for the loop: when each job started first."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}

    def __call__(
        self, now: float, events: Iterable[object], decisions: Iterable[object]
    ) -> None:
        """Note the launches of a turn."""
        for decision in decisions:
            if isinstance(decision, Launch):
                self.of.setdefault(decision.phase.job, now)


def simulated(log: SwfLog, scheduler: str, knows: str) -> RigidRow:
    """Simulate a log under a scheduler."""
    began = time.perf_counter()
    state, starts, answers = State(log.cluster), Starts(), Answers()
    endings = Endings(state)
    hidden = Simulation(hide_work=knows == "nothing")
    backend = Misinforming(
        SimulatedBackend(log.cluster, log.jobs, hidden),
        {job.id: job for job in _told(log.jobs, scheduler, knows)},
    )
    run(make_scheduler(scheduler), backend, state, all_of([endings, starts, answers]))
    waits = [starts.of[job.id] - job.arrival for job in log.jobs]
    responses = [endings.completed[job.id] - job.arrival for job in log.jobs]
    runs = [response - wait for response, wait in zip(responses, waits, strict=True)]
    slowdowns = [
        max(1.0, response / max(seconds, BOUND))
        for response, seconds in zip(responses, runs, strict=True)
    ]
    took = time.perf_counter() - began
    accepted = len(answers.accepted)
    promised = accepted, accepted - len(answers.broken)
    means = fmean(slowdowns), fmean(waits)
    return RigidRow(scheduler, knows, *means, len(log.jobs), took, promised)


def _told(jobs: Sequence[Job], scheduler: str, knows: str) -> Sequence[Job]:
    """The jobs of which a scheduler is told otherwise: FLEX reads what they request as work."""
    if scheduler in BACKFILLINGS or knows not in ("requested", PROMISES):
        return ()
    told = requesting(jobs)
    return asking(told, np.random.default_rng(0)) if knows == PROMISES else told


def row_of(path: Path, first: int | None, case: tuple[str, str]) -> RigidRow:
    """Read and simulate a log, in a process of its own."""
    scheduler, knows = case
    return simulated(read_swf(path, true_times=knows == "true", first=first), scheduler, knows)


def table_of(rows: Sequence[RigidRow], *, is_published: bool) -> Table:
    """All rows, beside the published values if it is that log."""
    table = Table(title=f"{rows[0].jobs} jobs", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("scheduler", "knows run times"):
        table.add_column(heading)
    for heading in ("slowdown", "published", "differs", "mean wait", "jobs/s", "dates kept"):
        table.add_column(heading, justify="right")
    for row in rows:
        known = PUBLISHED.get((row.scheduler, row.knows)) if is_published else None
        table.add_row(
            row.scheduler,
            row.knows,
            f"{row.slowdown:.2f}",
            "" if known is None else f"{known:.2f}",
            "" if known is None else f"{row.slowdown / known - 1:+.1%}",
            f"{row.wait:,.0f} s",
            f"{row.jobs / row.seconds:,.0f}",
            f"{row.promised[1]:,} of {row.promised[0]:,}" if row.promised[0] else "",
        )
    return table


app = Application(add_completion=False)


@app.command()
def rigid(
    file: Annotated[Path, typer.Argument(metavar="LOG", help="A log in SWF.")],
    first: Annotated[int | None, typer.Option(min=1, help="Only the first jobs.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--scheduler", help="Only this one; may be repeated.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    as_json: Json = False,
) -> None:
    """Compare backfilling with fair and flex on a log; ten minutes for KTH-SP2."""
    with exit_codes():
        log = read_swf(file, first=first)  # Refuses what is no log.
        is_published = len(log.jobs) == 28_481 and log.cluster.capacity == {"task": 100}
        cases = [case for case in CASES if not only or case[0] in only]
        with ProcessPoolExecutor(processes, get_context("spawn")) as workers:
            rows = list(workers.map(partial(row_of, file, first), cases))
        if as_json:
            print(json.dumps([asdict(row) for row in rows]))
            return
        console = Console()
        console = console if console.is_terminal else Console(width=WIDTH_ELSEWHERE)
        console.print(table_of(rows, is_published=is_published))


if __name__ == "__main__":
    app(prog_name="python -m experiments.rigid")
