"""The results of a figure on the terminal: a table, and progress while it is made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from experiments.figure import Figure
from experiments.reproduce import ProgressCallback
from experiments.reproduction import Reproduction
from slotwise.core.errors import MissingExtraError

WIDTH_ELSEWHERE = 200
"""Maximum width, in columns, of a table that is written to a pipe or a file."""


def show_reproduction(reproduction: Reproduction, folder: Path, as_json: bool) -> None:
    """Write the files of a figure, and print its results and the paths of the files.

    Without the extra `plots` the table is still written, and stderr names the missing extra.
    """
    written = [reproduction.write_table(folder)]
    try:
        written += reproduction.write_pictures(folder)
    except MissingExtraError as error:
        Console(stderr=True).print(f"slotwise: {error}", markup=False, soft_wrap=True)
    if as_json:
        plain = reproduction.to_plain() | {"files": [str(path) for path in written]}
        print(json.dumps(plain, allow_nan=False))
        return
    figure = reproduction.figure
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_ELSEWHERE)
    with console.capture() as captured:
        console.print(figure.table(reproduction.rows, reproduction.runs))
    print(captured.get(), end="")
    for path in written:
        print(path)


def list_figures(figures: Mapping[str, Figure], as_json: bool) -> None:
    """Print the names of figures, each with its title."""
    if as_json:
        print(json.dumps({name: figure.title for name, figure in figures.items()}))
        return
    for name, figure in figures.items():
        print(f"{name}  {figure.title}")


@contextmanager
def showing_progress(console: Console, name: str) -> Iterator[ProgressCallback | None]:
    """A callback that updates a progress bar, or None where there is no terminal."""
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield report
