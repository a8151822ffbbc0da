"""The command behind `scripts/figures`: reproduces the published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.printed import list_figures, show_reproduction, showing_progress
from experiments.reproduce import FIGURES, ON_DASK, figure_named, reproduce
from experiments.reproduction import check_folder
from slotwise.cli.application import Application, errors, exit_codes
from slotwise.cli.parsing import Json

app = Application(add_completion=False)


@app.command()
def figures(
    name: Annotated[
        str | None, typer.Argument(metavar="FIGURE", help=f"{', '.join(FIGURES)}.")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="Experiments for each point; each figure has its own number."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other jobs.")] = 0,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder to write into.")
    ] = Path("out/figures"),
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    on_dask: Annotated[
        bool,
        typer.Option("--dask", help=f"Run live on a Dask cluster: {', '.join(ON_DASK)}."),
    ] = False,
    is_list: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce a figure of a paper: its experiments, a table (CSV) and pictures (PNG, SVG).

    Without FIGURE, all of them; with --dask, those with live runs, on a Dask cluster of
    processes on this machine. `scripts/figures flex-5a -o figures`
    """
    with exit_codes():
        every = ON_DASK if on_dask else FIGURES
        if is_list:
            list_figures(every, as_json)
            return
        if name is not None:
            figure_named(name, on_dask)  # Refuses what is unknown.
        names = list(every) if name is None else [name]
        check_folder(output)
        for each in names:
            with showing_progress(errors(), each) as progress:
                reproduction = reproduce(each, runs, seed, processes, progress, on_dask)
            show_reproduction(reproduction, output, as_json)


if __name__ == "__main__":
    app(prog_name="scripts/figures")
