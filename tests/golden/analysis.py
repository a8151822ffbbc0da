"""Golden analyses: all that is computed from a log, for logs of every feature."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import slotwise
from experiments.measured import measured_jobs
from golden import documented, drawn, features
from golden.golden import Case
from golden.runs import COMPACT
from slotwise import InputError, Result
from slotwise.core.log import Log
from slotwise.insight.metrics import traffic_of
from slotwise.insight.report.tables import comparison_table, jobs_table, wait_lines
from slotwise.insight.timeline import StepFunction, Timeline, timeline_of
from slotwise.policy.scheduler import ALLOCATORS, QUEUEINGS

PAGES = ("workload-file-large-fair", "requests-fair-0")
"""The cases of which a page is made, too: drawing takes longer than all the rest."""

EXPLAINED = 4
"""How many jobs of a log are explained: each explanation follows the log from its beginning."""

BUNDLE = re.compile(r"<script>(?!const PICTURES).*?</script>", re.S)
"""The drawing library in a page."""


def cases() -> dict[str, Case]:
    """The analysis of the logs of some cases, by their names."""
    every = documented.cases() | drawn.cases() | features.cases()
    chosen = [f"drawn-{name}-{seed}" for name in (*ALLOCATORS, *QUEUEINGS) for seed in range(2)]
    chosen += [name for name in every if re.search(r"-(?<!on-)fair(-0)?$", name)]
    chosen += [f"near-input-fair-{assigner}" for assigner in ("greedy", "delay", "flow")]
    chosen += [f"requests-{name}-1" for name in ("fifo", "flex", "flowflex-fast")]
    chosen += ["drawn-flex-5", "near-input-dmrs-greedy", "gated-flex"]
    # The logs of many jobs take long.
    titles = dict.fromkeys(
        name for name in chosen if name not in ("many-fair", "many-hidden-fair", "later-fair")
    )
    return {f"of-{name}": partial(_analyse, name, every[name]) for name in titles}


def _analyse(name: str, case: Case, target: Path) -> None:
    """Write the log of a case beside the target, and its analysis into the target."""
    path = target.with_name(f"{name}.log")
    case(path)
    with path.open() as file:
        if file.readline() == "refused\n":
            target.write_text("refused\n")
            return
    read = slotwise.read_log(path)
    log = Log(read.header, list(read.turns))
    result = Result.of_log(log)
    parts = [*_parts(log, result)]
    if name in PAGES:
        page = target.with_name("page.html")
        result.report(page)
        parts.append(BUNDLE.sub("<script></script>", page.read_text()))
        page.unlink()
    path.unlink()
    target.write_text("\n".join(parts) + "\n")


def _parts(log: Log, result: Result) -> Iterator[str]:
    yield _json(result.to_plain())
    replayed = slotwise.replay(log)
    yield f"{replayed.decisions} decisions in {replayed.turns} turns: {replayed.difference}"
    waits = slotwise.explain(log)
    yield from (_json(wait.to_plain()) for wait in waits)
    yield from wait_lines(waits)
    line = timeline_of(log)
    for job in [*result.jobs][:EXPLAINED]:
        for part in (0.2, 0.5, 0.9):
            yield from _explained(log, job, part * line.end)
    yield from _timeline(line)
    traffic = traffic_of(log)
    yield _json([_steps(traffic.rack), _steps(traffic.core)])
    yield from map(_text, (comparison_table([result.reported]), jobs_table(result.reported)))
    yield _measured(log)


def _explained(log: Log, job: str, at: float) -> Iterator[str]:
    try:
        explained = slotwise.explain(log, job, at)
    except InputError:
        yield f"{job} at {at}: refused"
    else:
        yield str(explained)
        yield _json(explained.to_plain())


def _timeline(line: Timeline) -> Iterator[str]:
    """The numbers of the pictures."""
    for title, steps in (
        ("held by job", line.held_by_job),
        ("held by pool", line.held_by_pool),
    ):
        for name, function in steps.items():
            yield _json([title, name, _steps(function), function.area(0.0, line.end)])
    for one in line.attempts:
        yield f"{one.attempt} {one.slot_kind} {one.lane}"
    yield _json([line.end, line.gave_up, line.idle])
    yield from map(str, line.unresponsive)


def _steps(function: StepFunction) -> list[Sequence[float]]:
    return [list(function.times), list(function.values)]


def _measured(log: Log) -> str:
    """The measured work of each task, if all have succeeded."""
    try:
        return "\n".join(
            _json([job.id, [[phase.name, phase.tasks.work] for phase in job.phases]])
            for job in measured_jobs(log)
        )
    except InputError:
        return "not measured"


def _text(table: Table) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(table)
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written


def _json(plain: Any) -> str:
    return json.dumps(plain, separators=COMPACT)
