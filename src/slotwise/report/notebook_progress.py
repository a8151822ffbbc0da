"""Progress of a run in a notebook cell: a table with bars, redrawn in place."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from rich.console import Console
from rich.table import Table

from slotwise.report.progress import JobLine, Progress

Show = Callable[[str], None]
"""Shows HTML and replaces what it showed before."""

MAX_JOBS = 20
"""The maximum number of unfinished jobs listed."""

WIDTH = 110
"""The width of the table, in characters."""

MAX_SAID = 5
"""The number of recent messages shown below the table."""

_FRAME = '<pre style="line-height: 1.3; white-space: pre">{code}</pre>'


class NotebookProgress(Progress):
    """The table of a terminal as HTML, shown by `show` and removed at the end of the run.

    A run that ends before the first redraw shows nothing.
    """

    def __init__(self, show: Show, *titles: str) -> None:
        super().__init__(_console(), *titles)
        self._show = show
        self._said: list[str] = []
        self._is_shown = False
        self._drawn = time.monotonic()

    @property
    def _is_redrawn(self) -> bool:
        return True

    def _begin(self) -> None:
        pass

    def _draw(self, table: Table) -> None:
        console = _console()
        console.print(table)
        for text in self._said[-MAX_SAID:]:
            console.print(text, markup=False, highlight=False)
        self._show(console.export_html(code_format=_FRAME, inline_styles=True))
        self._is_shown = True

    def _end(self) -> None:
        if self._is_shown:
            self._show("")

    def _say(self, text: str) -> None:
        self._said.append(text)

    def _listed(self) -> Iterable[JobLine]:
        under_way = (line for line in self._lines.values() if not line.ended)
        return islice(under_way, MAX_JOBS)


def _console() -> Console:
    """A console that records its output and displays nothing."""
    return Console(
        file=io.StringIO(),
        width=WIDTH,
        record=True,
        force_jupyter=False,
        color_system="truecolor",
    )


def notebook_display() -> Show | None:
    """A function that shows HTML in the current cell; None outside a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not hasattr(shell, "kernel"):  # IPython in a terminal has none.
        return None
    shown: list[Any] = []

    def show(html: str) -> None:
        content = ipython.display.HTML(html)
        if shown:
            shown[0].update(content)
        else:
            shown.append(ipython.display.display(content, display_id=True))

    return show
