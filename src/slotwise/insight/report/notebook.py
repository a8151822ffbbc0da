"""HTML of results for notebooks: tables, and pictures without scripts."""

from __future__ import annotations

import io
import sys
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from slotwise.core.decisions import Decision
from slotwise.core.errors import MissingExtraError
from slotwise.core.events import Event
from slotwise.insight.report.grid import framed_html, grid_html
from slotwise.insight.report.page import require_plots
from slotwise.insight.report.progress import REDRAW_SECONDS, Progress
from slotwise.insight.report.reported import ReportedRun, conditions_of, run_names, scene_of
from slotwise.insight.report.tables import job_columns, metrics_in_short
from slotwise.insight.report.text import printable
from slotwise.insight.timeline import StepFunction

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture
    from slotwise.jobs.dataflow.stages import StagedGraph


MAX_ROWS = 30
"""The maximum number of jobs in a table in a notebook."""


def runs_html(runs: Sequence[ReportedRun]) -> str:
    """HTML of one run: metrics, jobs and job timelines; or of several: a comparison."""
    objectives = " or ".join(dict.fromkeys(run.objective for run in runs))
    columns = {"scheduler": run_names(runs)}
    columns |= {metric.title: metric.cells(runs) for metric in metrics_in_short(runs)}
    facts = f"{conditions_of(runs)}; the value is the {objectives}"
    parts = [f"<p>{escape(facts)}</p>", grid_html(columns)]
    if len(runs) == 1:
        jobs = job_columns(runs[0], most=MAX_ROWS)
        if not any(runs[0].outcome.failed):
            del jobs["failed because"]
        parts += [grid_html(jobs), _left_out(len(runs[0].outcome.jobs), "jobs")]

    def draw() -> list[Picture]:
        pictures = import_module("slotwise.insight.report.pictures.gallery")
        found: list[Picture] = pictures.draw_first(scene_of(runs))
        return found

    return framed_html([*parts, *_pictures(draw)])


def plan_html(
    facts: str, completion: Mapping[str, float], held: Mapping[str, StepFunction]
) -> str:
    """HTML of a plan: its value, the completion of each job, and its slots over time."""
    order = sorted(completion, key=lambda job: (completion[job], job))
    columns = {
        "job": order[:MAX_ROWS],
        "completion (s)": [f"{completion[job]:.3f}" for job in order[:MAX_ROWS]],
    }
    parts = [f"<p>{escape(facts)}</p>", grid_html(columns), _left_out(len(order), "jobs")]

    def draw() -> list[Picture]:
        picture = import_module("slotwise.insight.report.pictures.jobs")
        return [picture.draw_plan({job: held[job] for job in order if job in held})]

    return framed_html([*parts, *_pictures(draw)])


def dataflow_html(staged: StagedGraph) -> str:
    """HTML of the picture of a dataflow."""
    from slotwise.insight.report.dataflow.svg import svg_of

    return framed_html([_embedded(svg_of(staged), "dataflow")])


def _pictures(draw: Callable[[], Sequence[Picture]]) -> list[str]:
    """Pictures with their captions, or a message if the extra `plots` is missing."""
    try:
        require_plots("a picture")
    except MissingExtraError as error:
        return [f"<p>{escape(str(error))}</p>"]
    return [_image(picture) for picture in draw()]


def _image(picture: Picture) -> str:
    """A picture as an image with embedded data: no scripts, styles or requests."""
    svg: str = import_module("vl_convert").vegalite_to_svg(picture.spec())
    return (
        f"<p><strong>{escape(picture.title)}.</strong> {escape(picture.sentence)}</p>"
        + _embedded(svg, picture.title)
    )


def _embedded(svg: str, title: str) -> str:
    data = b64encode(svg.encode("utf-8", "backslashreplace")).decode()
    return (
        f'<img alt="{escape(title)}" style="max-width: 100%; background: white"'
        f' src="data:image/svg+xml;base64,{data}">'
    )


def _left_out(count: int, what: str) -> str:
    return f"<p>{MAX_ROWS} of {count:,} {what} are listed.</p>" if count > MAX_ROWS else ""


# Progress of a run in a notebook cell: a table with bars, redrawn in place.

Show = Callable[[str], None]
"""Shows HTML in place of what it showed before."""

MAX_JOBS = 20
"""The maximum number of jobs listed during a run."""

WIDTH = 110
"""The width of the table, in characters."""

MAX_MESSAGES = 5
"""The number of recent messages shown below the table."""

_FRAME = '<pre style="line-height: 1.3; white-space: pre">{code}</pre>'


class NotebookProgress(Progress):
    """The table of a terminal as HTML, shown by `show` and removed at the end of the run.

    A run that ends before the first redraw shows nothing.
    """

    def __init__(self, show: Show, *titles: str) -> None:
        super().__init__(_console(), *titles)
        self._show = show
        self._messages: deque[str] = deque(maxlen=MAX_MESSAGES)
        self._is_shown = False
        self._drawn = time.monotonic()

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Count one turn, and draw in this thread, which is that of the cell."""
        super().__call__(now, events, decisions)
        if time.monotonic() - self._drawn > REDRAW_SECONDS:
            self._draw()
            self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_shown:
            self._show("")

    @property
    def _is_redrawn(self) -> bool:
        return True

    def _draw(self) -> None:
        console = _console()
        console.print(self.screen(WIDTH, MAX_JOBS))
        self._messages += self.taken_lines()
        for text in self._messages:
            console.print(printable(text, lines=True), markup=False, highlight=False)
        self._show(console.export_html(code_format=_FRAME, inline_styles=True))
        self._is_shown = True


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
    """Return a function that shows HTML in the current cell, or None outside a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not hasattr(shell, "kernel"):  # A terminal has no kernel.
        return None
    shown: list[Any] = []

    def show(html: str) -> None:
        content = ipython.display.HTML(html)
        if shown:
            shown[0].update(content)
        else:
            shown.append(ipython.display.display(content, display_id=True))

    return show
