"""The commands that read logs: `slotwise report`, `replay` and `explain`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slotwise import api
from slotwise.cli.application import print_json
from slotwise.cli.following import server_with
from slotwise.cli.parsing import Json, Server, seconds_option
from slotwise.cli.service import complete_jobs
from slotwise.cli.terminal import last_run
from slotwise.core.dependencies import in_order
from slotwise.core.errors import InputError, suggestion
from slotwise.core.files import open_to_write, refuse_foreign
from slotwise.core.history import read_history
from slotwise.core.job import Job
from slotwise.core.log import RULES, following
from slotwise.core.rates import COMMAND_MARK, Rate, Rates, Speed, estimate_rates
from slotwise.insight.report.text import count, number, percent, printable
from slotwise.results import Result
from slotwise.service.clients.transport import Transport, job_path
from slotwise.sources import read_source
from slotwise.workload.workload import DataflowJob, Described, PhasedJob

if TYPE_CHECKING:
    from slotwise.jobs.dataflow.stages import StagedGraph


LogPath = Annotated[
    Path | None,
    typer.Argument(
        metavar="[LOG]", help="A log written by --log [default: that of the last run]."
    ),
]


def report_logs(
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")],
    logs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[LOG...]", help="Logs to show [default: that of the last run]."
        ),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Also write PNG and SVG.")] = False,
) -> None:
    """Write a page that works offline from the logs of one or several runs.

    `slotwise report fifo.jsonl flex.jsonl -o report.html --pictures`
    """
    with ExitStack() as stack:
        read = [stack.enter_context(following(log)) for log in logs or [last_run().log]]
        results = [Result.of_log(log) for log in read]
        written = api.write_report(results, output, pictures=pictures)
    for path in written:
        print(printable(str(path)))


def replay_log(
    log: LogPath = None,
    as_json: Json = False,
) -> None:
    """Repeat all decisions of a log and compare them one by one.

    Exit code 1 if a decision differs.

    `slotwise replay`

    `slotwise replay run.jsonl`
    """
    replay = api.replay(log or last_run().log)
    found = replay.difference
    if as_json:
        print_json(
            {
                "identical": replay.is_identical,
                "turns": replay.turns,
                "decisions": replay.decisions,
                "rules": replay.rules,
                "difference": None
                if found is None
                else {
                    "now": found.now,
                    "turn": found.turn,
                    "recorded": repr(found.recorded),
                    "decided": repr(found.decided),
                },
            }
        )
    elif found is None:
        print(f"identical: {replay.decisions} decisions in {replay.turns} turns")
    else:
        print(f"first difference in turn {found.turn} at {found.now} s:")
        print(f"  recorded: {found.recorded}\n  decided:  {found.decided}")
        if replay.rules != RULES:
            print(
                f"the log was decided by rules {replay.rules}, and this slotwise decides by"
                f" rules {RULES}: that alone may be the difference"
            )
    raise typer.Exit(0 if replay.is_identical else 1)


def explain_log(
    log: Annotated[
        str | None,
        typer.Argument(
            metavar="[LOG|ID]",
            help="A log, or a job of the server [default: the log of the last run].",
            autocompletion=complete_jobs,
        ),
    ] = None,
    at: Annotated[float | None, seconds_option("An instant, in seconds.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="A job.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Explain which jobs waited longest for slots, which held them, and what would have helped.

    With `--job`, what held this job from its arrival to its end, in intervals: the slots that
    it held and wanted, the reason, and whose slots they were. With `--at` as well, why it holds
    its slots at that instant: the shares of its pools, its demand, the jobs that hold the
    slots, and the jobs that are served before it and after it.

    An argument that is not the path of a file is a job of the server: why it waits now.

    `slotwise explain`

    `slotwise explain 17`

    `slotwise explain run.jsonl --job q1`

    `slotwise explain run.jsonl --at 12.5 --job q1`
    """
    if log is not None and (server is not None or not os.path.exists(log)):
        transport = server_with(log, server)
        if transport is not None:
            _explain_now(transport, log, as_json)
            return
    question: Any = job, at  # An instant without a job is refused.
    found: Any = api.explain(log or last_run().log, *question)
    if as_json:
        print_json(found.to_plain())
    else:
        print("\n".join(map(printable, found.lines())))


def _explain_now(transport: Transport, job: str, as_json: bool) -> None:
    """Print why a job of the server waits, or holds its slots."""
    found = transport.get(job_path(job, "explain"))
    if as_json:
        print_json(found)
    else:
        print(printable(found["text"], lines=True))


# The command `slotwise history`.

DEFAULT = Path("history.db")
"""The default database."""

MEGA = 1e6

COMMAND_WIDTH = 60
"""The maximum number of characters of a command in the table, with one space between words."""


def show_history(
    database: Annotated[
        Path,
        typer.Argument(metavar="[DB]", help="A database written by `run --history`."),
    ] = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show rates of programs, times of commands and speeds of hosts of earlier runs.

    Half of the measurements, weighted by bytes, are within the spread of the value shown.

    `slotwise history history.db`
    """
    rates = estimate_rates(read_history(database))
    if as_json:
        print_json(_plain(rates))
    elif not rates.by_phase:
        print("no measurements yet")
    else:
        tables = _of_programs(rates), _of_commands(rates), _of_hosts(rates)
        shown = ["\n".join(map(printable, _aligned(rows))) for rows in tables if len(rows) > 1]
        print("\n\n".join(shown))


def _plain(rates: Rates) -> dict[str, Any]:
    return {
        "programs": [
            {
                "program": program,
                "phase": phase,
                "seconds_per_byte": rate.seconds_per_byte,
                "spread": rate.spread,
                "tasks": rate.count,
            }
            for (program, phase), rate in rates.by_phase.items()
            if not program.startswith(COMMAND_MARK)
        ],
        "commands": [
            {
                "command": program.removeprefix(COMMAND_MARK),
                "seconds": rate.seconds_per_byte,
                "spread": rate.spread,
                "tasks": rate.count,
            }
            for (program, _), rate in rates.by_phase.items()
            if program.startswith(COMMAND_MARK)
        ],
        "hosts": [
            {
                "host": speed.host,
                "stated": speed.stated,
                "speed": speed.speed,
                "spread": speed.spread,
                "tasks": speed.count,
            }
            for speed in rates.speeds
        ],
    }


def _of_programs(rates: Rates) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("program", "phase", "MB/s a slot", "spread", "tasks")]
    for (program, phase), rate in rates.by_phase.items():
        if not program.startswith(COMMAND_MARK):
            speed = number(1 / rate.seconds_per_byte / MEGA)
            rows.append((program, phase, speed, *_measured(rate)))
    return rows


def _of_commands(rates: Rates) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("command", "seconds a task", "spread", "tasks")]
    for (program, _), rate in rates.by_phase.items():
        if program.startswith(COMMAND_MARK):
            command = shorten(program.removeprefix(COMMAND_MARK), COMMAND_WIDTH)
            rows.append((command, number(rate.seconds_per_byte), *_measured(rate)))
    return rows


def _of_hosts(rates: Rates) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("host", "stated", "speed", "spread", "tasks")]
    for host in rates.speeds:
        rows.append((host.host, number(host.stated), number(host.speed), *_measured(host)))
    return rows


def _measured(rate: Rate | Speed) -> tuple[str, str]:
    """The spread and the number of tasks; for one task, 0 % would suggest certainty."""
    return percent(rate.spread if rate.count > 1 else None), count(rate.count)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Align the columns of rows: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers_from = len(rows[0]) - 3
    return [
        "  ".join(
            cell.ljust(width) if place < numbers_from else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# The command `slotwise show`.


def show_dataflow(
    what: Annotated[
        str,
        typer.Argument(
            metavar="APP", help="app.py:name, app.py or module:name; or a workload file."
        ),
    ],
    job: Annotated[
        str | None, typer.Option("--job", help="A job of the workload file [default: all].")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the picture.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture as SVG.")] = None,
    as_json: Json = False,
) -> None:
    """Draw the jobs that wait for others, or the graph of a dataflow. Nothing is run.

    `slotwise show jobs.yaml --html jobs.html`

    `slotwise show app.py:flow --svg flow.svg`

    `slotwise show jobs.yaml --job words`
    """
    from slotwise.insight.report.dataflow.svg import MARK, page_of, svg_of
    from slotwise.insight.report.dataflow.texts import dataflow_lines, dataflow_plain
    from slotwise.insight.report.page import BEGIN

    if jobs := _dependent_jobs(what, job):
        _show_workflow(what, jobs, html, svg, as_json=as_json)
        return
    graphs = _graphs(what, job)
    if svg is not None:
        if len(graphs) > 1:
            raise InputError(
                f"--svg holds one picture, and {what} has {len(graphs)} dataflows:"
                f" {', '.join(graphs)}; add --job, or use --html"
            )
        _write(svg, svg_of(*graphs.values()), MARK)
    if html is not None:
        drawn = [(name, svg_of(staged)) for name, staged in graphs.items()]
        _write(html, page_of(drawn), BEGIN)
    for name, staged in graphs.items():
        if as_json:
            print_json({"job": name, **dataflow_plain(staged)})
        elif svg is None and html is None:
            print(printable(f"dataflow {name}"))
            print("\n".join(map(printable, dataflow_lines(staged))))


def _dependent_jobs(what: str, job: str | None) -> list[Job | Described]:
    """The jobs of a workload file if some of them or their phases wait; otherwise none.

    With `job` only those that it waits for, and those that wait for it, also by way of others.
    """
    if not what.endswith((".yaml", ".yml", ".json")):
        return []
    jobs = {one.id: one for one in read_source(what, is_live=True).workload.jobs}
    if job is not None and job not in jobs:
        raise InputError(f"--job {job!r}: no such job; {suggestion(job, jobs)}")
    if job is None:
        drawn = any(one.predecessors or isinstance(one, PhasedJob) for one in jobs.values())
        return list(jobs.values()) if drawn else []
    if isinstance(jobs[job], DataflowJob):
        return []
    before, after = {job}, {job}
    for one in reversed(in_order(list(jobs.values()))):
        before |= one.predecessors if one.id in before else set()
    for one in in_order(list(jobs.values())):
        after |= {one.id} if one.predecessors & after else set()
    kept = before | after
    return [
        replace(one, after=one.after & kept, after_each=one.after_each & kept)
        for one in jobs.values()
        if one.id in kept
    ]


def _show_workflow(
    what: str,
    jobs: list[Job | Described],
    html: Path | None,
    svg: Path | None,
    *,
    as_json: bool,
) -> None:
    """Draw jobs that wait for others."""
    from slotwise.insight.report.dataflow import workflow
    from slotwise.insight.report.dataflow.svg import MARK, page_of
    from slotwise.insight.report.page import BEGIN

    if svg is not None:
        _write(svg, workflow.workflow_svg(jobs), MARK)
    if html is not None:
        _write(html, page_of([(what, workflow.workflow_svg(jobs))], "Workflow"), BEGIN)
    if as_json:
        print_json({"jobs": workflow.workflow_plain(jobs)})
    elif svg is None and html is None:
        print("\n".join(map(printable, workflow.workflow_lines(jobs))))


def _graphs(what: str, job: str | None) -> dict[str, StagedGraph]:
    """The dataflows by the names of their jobs, or one by its place in Python."""
    from slotwise.jobs.dataflow.planning import check_fits, staged_graph

    if not what.endswith((".yaml", ".yml", ".json")) and (".py" in what or ":" in what):
        if job is not None:
            raise InputError(
                f"--job is for workload files; write {what.partition(':')[0]}:name"
            )
        return {what: staged_graph(what, None)}
    workload = read_source(what, is_live=True).workload
    jobs = {one.id: one for one in workload.jobs if isinstance(one, DataflowJob)}
    if not jobs:
        raise InputError(f"{what}: no job has a dataflow; add one, or name app.py:flow")
    found = {}
    for name in jobs if job is None else (job,):
        try:
            found[name] = staged_graph(jobs[name].flow, workload.folder)
            if workload.cluster is not None:
                for stage in found[name].stages:
                    check_fits(stage, workload.cluster)
        except InputError as error:
            raise InputError(f"job {name!r}: {error}") from None
    return found


def _write(path: Path, text: str, mark: str) -> None:
    """Write a picture. InputError if it cannot be written or would replace a foreign file."""
    refuse_foreign(path, mark.encode(), f"picture {str(path)!r}")
    try:
        with open_to_write(path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise InputError(
            f"picture {str(path)!r}: {error.strerror}; name another file"
        ) from error
    print(printable(str(path)))
