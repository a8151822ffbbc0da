"""What all commands share: how they end, and what they print where.

Exit codes: 0 done, 1 a job failed, 2 bad input, 130 interrupted. Results go to stdout,
everything else to stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from slotwise import api
from slotwise.model.errors import SlotwiseError
from slotwise.report.reasons import in_short
from slotwise.report.tables import comparison_table, jobs_table
from slotwise.results import Plan, Result, RunInterrupted, RunUnrecorded, TaskPlan
from slotwise.runtime.live.world import ENDING
from slotwise.sources import Source, read_source

WIDTH_ELSEWHERE = 10_000
"""Columns of a table that goes into a pipe or a file; no more are used than it has."""


def stop_once() -> None:
    """Have the first signal to end stop a run in good order, and no second one disturb that."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # As nohup has it, and a shell's `&`.
            signal.signal(number, _stop)


@contextmanager
def door() -> Iterator[None]:
    """Turn what a user can cause into one message and an exit code."""
    try:
        with _printing():
            yield
    except SlotwiseError as error:
        errors().print(f"slotwise: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from error
    except RunInterrupted as stop:
        result = stop.result
        done = [name for name, times in result.jobs.items() if times["completion"] is not None]
        errors().print(
            f"slotwise: {f'{result.scheduler}: ' if stop.earlier else ''}interrupted after"
            f" {result.metrics['tasks_done']} tasks; done: {', '.join(done) or 'no job'}"
            + ("; what was not done has been taken back" if result.world == "live" else ""),
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from stop
    except KeyboardInterrupt as stop:
        errors().print("slotwise: interrupted")
        raise typer.Exit(130) from stop


@contextmanager
def _printing() -> Iterator[None]:
    """Print to stdout as long as somebody reads it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads our output has seen enough; there is nobody to tell more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def finish(results: Sequence[Result], as_json: bool, report: Path | None) -> None:
    """Print results, write the report, and exit with 1 if a job failed."""
    with _printing():
        if as_json:
            for result in results:
                print_json(result.to_plain())
        else:
            reported = [result.reported for result in results]
            if len(results) == 1:
                _print_table(jobs_table(reported))
            _print_table(comparison_table(reported))
    if report is not None:
        api.write_report(results, report)
        errors().print(f"report: {report}", markup=False, soft_wrap=True)
    if any(result.failed for result in results):
        for result in results:
            for name, reason in result.failed.items():
                errors().print(
                    f"slotwise: {result.scheduler}: job {name} failed: {in_short(reason)}",
                    markup=False,
                    soft_wrap=True,
                )
        raise typer.Exit(1)


@contextmanager
def showing_what_came(as_json: bool, report: Path | None) -> Iterator[None]:
    """If a run is stopped, or could not all be recorded, show what came of it, and of those
    before it, before that is told."""
    try:
        yield
    except (RunInterrupted, RunUnrecorded) as stop:
        with suppress(typer.Exit):
            finish([*stop.earlier, stop.result], as_json, report)
        raise


def show_unknown(source: Source, history: Path | None) -> None:
    """Tell of what had to be guessed since the history does not know it."""
    if history is None:
        return
    if unknown := read_source(source, history).unknown():
        names = ", ".join(map(str, unknown))
        errors().print(
            f"slotwise: history {str(history)!r} does not know {names}: that work is guessed"
            " from what the program states; run it once with --history to know it",
            markup=False,
            soft_wrap=True,
        )


def show_plan(plan: Plan) -> None:
    """A plan as people read it, on stdout."""
    print(plan.summary())
    for job, at in sorted(plan.schedule.completion().items(), key=lambda item: item[1]):
        print(f"  {at:12.3f} s  {job}")


def show_task_plan(plan: TaskPlan) -> None:
    """A plan of whole tasks as people read it, on stdout."""
    print(plan.summary())
    for job, at in sorted(plan.completion.items(), key=lambda item: item[1]):
        print(f"  {at:12.3f} s  {job}")


def print_json(plain: Any) -> None:
    """One object on a line of its own, on stdout."""
    print(json.dumps(plain, allow_nan=False), flush=True)


def errors() -> Console:
    """Stderr, for messages and progress."""
    return Console(stderr=True)


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop: workers end and temporary files go, which no second signal may cut off."""
    for other in ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def _print_table(table: Table) -> None:
    """On stdout; where that is no terminal, a table takes the width it needs."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_ELSEWHERE)
    with console.capture() as captured:
        console.print(table)
    print(captured.get(), end="")
