"""The command that draws dataflows: `slotwise show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slotwise.cli.options import Json
from slotwise.cli.terminal import exit_codes, print_json
from slotwise.model.errors import InputError
from slotwise.opening import open_to_write
from slotwise.record.own_files import refuse_foreign
from slotwise.report.printable import printable
from slotwise.sources import read_source
from slotwise.workload.workload import DataflowJob

if TYPE_CHECKING:
    from slotwise.programs.dataflow.stages import StagedGraph


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
    """Draw the graph of a dataflow: its nodes, groups and bundles. Nothing is run.

    `slotwise show app.py:flow --svg flow.svg`

    `slotwise show jobs.yaml --job words`
    """
    from slotwise.report.dataflow.svg import MARK, page_of, svg_of
    from slotwise.report.dataflow.texts import dataflow_lines, dataflow_plain
    from slotwise.report.style import BEGIN

    with exit_codes():
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


def _graphs(what: str, job: str | None) -> dict[str, StagedGraph]:
    """The dataflows by the names of their jobs, or one by its place."""
    from slotwise.programs.dataflow.planning import check_fits, staged_graph

    if not what.endswith((".yaml", ".yml", ".json")) and (".py" in what or ":" in what):
        if job is not None:
            raise InputError(
                f"--job is for workload files; write {what.partition(':')[0]}:name"
            )
        return {what: staged_graph(what, None)}
    workload = read_source(what).workload
    jobs = {one.id: one for one in workload.jobs if isinstance(one, DataflowJob)}
    if not jobs:
        raise InputError(f"{what}: no job has a dataflow; add one, or name app.py:flow")
    if job is not None and job not in jobs:
        raise InputError(f"--job {job!r}: no such job has a dataflow; known: {', '.join(jobs)}")
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
    """Write a picture. InputError for a file that slotwise has not written, or cannot write."""
    refuse_foreign(path, mark.encode(), f"picture {str(path)!r}")
    try:
        with open_to_write(path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise InputError(
            f"picture {str(path)!r}: {error.strerror}; name another file"
        ) from error
    print(printable(str(path)))
