"""What came out of a figure, for the terminal: a table, and progress while it is made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from slotwise.experiments.figure import BEST_ORDER, BOUND, SCHEMES, Row
from slotwise.experiments.reproduce import FIGURES, Told
from slotwise.experiments.reproduction import Reproduction
from slotwise.model.errors import MissingExtraError
from slotwise.report.numbers import MISSING

WIDTH_ELSEWHERE = 200
"""Columns for a table that goes into a pipe or a file; it takes no more than it needs."""


def show_reproduction(reproduction: Reproduction, folder: Path, as_json: bool) -> None:
    """Write the files of a figure, and print what came out and where they lie.

    Without the extra `plots` the table is still written, and stderr says what is missing.
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
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_ELSEWHERE)
    with console.capture() as captured:
        console.print(figure_table(reproduction))
    print(captured.get(), end="")
    for path in written:
        print(path)


def list_figures(as_json: bool) -> None:
    """Print the figures, each with its title."""
    if as_json:
        print(json.dumps({name: figure.title for name, figure in FIGURES.items()}))
        return
    for name, figure in FIGURES.items():
        print(f"{name}  {figure.title}")


def figure_table(reproduction: Reproduction) -> Table:
    """Mean and worst ratio of each scheme, a line for each point.

    FIFO and FAIR by the best order, as the papers have them; FLEX by the bound, too.
    """
    figure = reproduction.figure
    table = Table(
        title=f"{figure.title}: mean and worst of {reproduction.runs} experiments",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column(figure.axis, vertical="bottom")
    columns = [(scheme, BEST_ORDER) for scheme in SCHEMES] + [("flex", BOUND)]
    for scheme, yardstick in columns:
        table.add_column(f"{scheme}\nby {yardstick}", justify="right")
    for heading in ("bound is\nthe optimum", "ignored\nby order", "ignored\nby bound"):
        table.add_column(heading, justify="right")
    for point in figure.points:
        rows = {(r.scheme, r.yardstick): r for r in reproduction.rows if r.x == point.x}
        order, bound = rows["flex", BEST_ORDER], rows["flex", BOUND]
        cells = [_ratios(rows[column]) for column in columns]
        proven = f"{bound.proven} of {bound.counted}"
        table.add_row(str(point.x), *cells, proven, str(order.ignored), str(bound.ignored))
    return table


@contextmanager
def showing_progress(console: Console, name: str) -> Iterator[Told | None]:
    """A bar on a terminal, nothing elsewhere; it is told of each experiment that is done."""
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)

        def told(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield told


def _ratios(row: Row) -> str:
    if row.mean is None or row.worst is None:
        return MISSING
    return f"{_ratio(row.mean)} {_ratio(row.worst):>7}"


def _ratio(value: float) -> str:
    return (
        f"{value:.4f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    )
