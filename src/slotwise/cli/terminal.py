"""Results and messages of plans and runs on the terminal."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isinf
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from slotwise import api
from slotwise.backends.local.backend import names_hosts
from slotwise.cli.application import print_json, show_message
from slotwise.cli.defaults import Defaults
from slotwise.cli.options import OutputOptions
from slotwise.insight.report.tables import (
    MAX_WIDTH,
    comparison_table,
    critical_path,
    fit_columns,
    jobs_table,
    memory_table,
)
from slotwise.insight.report.text import in_short, in_states, printable
from slotwise.results import Plan, Result, RunStopped, TaskPlan
from slotwise.run_folder import RunFolder
from slotwise.sources import Source, read_source

MAX_ROWS, MIN_ROWS = 50, 5
"""The maximum number of jobs in the table outside a terminal, and the minimum on one."""

OTHER_LINES = 16
"""The lines of a terminal that are left for the rest of what a command prints."""

MAX_FAILED = 20
"""The number of failed jobs of which the reasons are printed."""


def _finish(results: Sequence[Result], source: Source, output: OutputOptions) -> None:
    """Print failures and results, write the report, and exit with 1 if a job failed."""
    for result in results:
        _show_failures(result)
    try:
        _print_results(results, source, output.as_json)
        sys.stdout.flush()
    finally:  # The report is written even if printing fails.
        if output.report is not None:
            api.write_report(results, output.report)
            show_message(f"report: {output.report}")
    if any(result.failed for result in results):
        raise typer.Exit(1)


def _show_failures(result: Result) -> None:
    """Print the reason of each failure in a line, and where its output is."""
    states = result.outcome.states
    named = sorted(result.failed, key=lambda job: states[job] != "failed")
    for job in named[:MAX_FAILED]:
        what = f"slotwise: {result.scheduler}: job {printable(job)} {states[job]}"
        why = in_short(result.failed[job])
        show_message(f"{what}: {why}{_place_of_output(result, job)}")
    if more := Counter(states[job] for job in named[MAX_FAILED:]):
        what = f"slotwise: {result.scheduler}: and {more.total():,} more jobs"
        show_message(f"{what} ({in_states(more)}); --json names all")


def _place_of_output(result: Result, job: str) -> str:
    """Where the output of the tasks of a failed job is, unless the reason names it."""
    if result.folder is None:
        return ""
    kept = RunFolder(result.folder).logs(job)
    is_new = kept.is_dir() and str(kept) not in result.failed[job]
    return f"; what its tasks printed is in {kept}" if is_new else ""


def _print_results(results: Sequence[Result], source: Source, as_json: bool) -> None:
    if as_json:
        for result in results:
            print_json(result.to_plain())
        return
    reported = [result.reported for result in results]
    console = Console() if sys.stdout.isatty() else Console(width=MAX_WIDTH)
    if len(results) == 1:
        rows = console.height - OTHER_LINES if sys.stdout.isatty() else MAX_ROWS
        is_live = results[0].backend == "live"
        order = [entry.id for entry in source.workload.jobs] if is_live else None
        _print_table(console, jobs_table(reported[0], max(MIN_ROWS, rows), order))
        if is_live and (path := critical_path(reported[0])):
            print(path)
        # Those who state no memory need not read of it.
        if any(one.peak and not one.is_learned for one in results[0].memory):
            _print_table(console, memory_table(reported[0], MIN_ROWS))
    _print_table(console, comparison_table(reported))


@contextmanager
def results_shown(
    file: Path, output: OutputOptions, defaults: Defaults | None = None
) -> Iterator[tuple[Source, list[Result]]]:
    """Read a workload, and show the results that the block adds to the list.

    Live work has `defaults`.
    Without results nothing is shown. Exits with 1 if a job failed. If a run is stopped, lost
    or not fully recorded, shows the results so far before the error message.
    """
    stated = None if defaults is None else defaults.workload
    source = read_source(file, is_live=defaults is not None, defaults=stated)
    results = list[Result]()
    output.check(file)
    try:
        yield source, results
    except RunStopped as stop:
        with suppress(typer.Exit):
            _finish([*stop.earlier, stop.result], source, output)
        raise
    if results:
        _finish(results, source, output)


def cluster_left_out(source: Source, emulate_hosts: bool, dask: str | None = None) -> str:
    """Return a notice if the run does not use the cluster of the workload, or ""."""
    cluster = source.workload.cluster
    if cluster is None or emulate_hosts:
        return ""
    has_hosts = names_hosts(cluster)
    count = len(cluster.hosts) if has_hosts else sum(cluster.capacity.values())
    what = f"{count} {'host' if has_hosts else 'slot'}{'s' if count > 1 else ''}"
    left_out = f"slotwise: the cluster of the workload ({what}) is for"
    if dask is not None:
        return f"{left_out} runs without --dask; this run uses the slots of the Dask cluster"
    if not has_hosts:
        return ""
    return (
        f"{left_out} simulations; this run uses the slots of this machine; add --emulate-hosts"
        " to emulate the hosts on it"
    )


def last_run() -> RunFolder:
    """The last run that is kept; says which one if it began in another folder.

    InputError if there is none.
    """
    found = RunFolder.last()
    about = found.about()
    is_same = False
    with suppress(OSError):  # The folder may have been removed.
        is_same = os.path.samefile(str(about.get("folder")), ".")
    if not is_same:
        what = f" of {about['workload']}" if about.get("workload") else ""
        show_message(f"slotwise: this is run {found.id}{what}, begun in {about.get('folder')}")
    return found


def show_defaults(defaults: Defaults) -> None:
    """Print which files of defaults a run uses."""
    if defaults.files:
        show_message(f"slotwise: defaults are from {defaults}")


def show_unknown(source: Source) -> None:
    """Print a notice about work that is guessed because the history has no record of it."""
    if source.history is not None and (unknown := source.unknown()):
        names = ", ".join(map(str, unknown))
        show_message(
            f"slotwise: history {str(source.history)!r} has no record of {names}: this work is"
            " estimated as it is stated; run it once with --history"
        )


def show_plan(plan: Plan | TaskPlan) -> None:
    """Print a plan as text."""
    print(plan.summary())
    if isinstance(plan, Plan):
        _show_effort(plan)
    completion = plan.schedule.completion() if isinstance(plan, Plan) else plan.completion
    for job, at in sorted(completion.items(), key=lambda item: item[1]):
        print(f"  {at:12.3f} s  {printable(job)}")


def _show_effort(plan: Plan) -> None:
    """Print what could find a better plan."""
    if plan.may_improve:
        assert plan.short_of is not None
        by_clock = isinf(plan.short_of)
        more = (
            "a larger --budget-seconds"
            if by_clock
            else f"--budget-steps above {plan.short_of:.0f}"
        )
        print(f"the search spent its budget; {more} could find better")
    elif plan.allocator == "flex" and not plan.is_whole and not plan.is_exact:
        print(
            "flex decided again whenever a phase ended, and no budget changes that; --allocator"
            " flowflex searches for a better plan"
        )


def _print_table(console: Console, table: Table) -> None:
    """Print a table on stdout, on a terminal without the last columns that do not fit."""
    if console.width < MAX_WIDTH:
        fit_columns(table, console.width)
    with console.capture() as captured:
        console.print(table)
    print(captured.get(), end="")
