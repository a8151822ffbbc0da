"""HTML of results for notebooks: tables, and pictures without scripts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING

from slotwise.analysis.timeline import StepFunction
from slotwise.model.errors import MissingExtraError
from slotwise.report.page import require_plots
from slotwise.report.reported import ReportedRun, conditions_of, run_names
from slotwise.report.scene import scene_of
from slotwise.report.tables import Columns, is_numeric, job_columns, metrics_in_short

if TYPE_CHECKING:
    from slotwise.programs.dataflow.stages import StagedGraph
    from slotwise.report.pictures.picture import Picture

MAX_ROWS = 30
"""The maximum number of jobs in a table in a notebook."""


def runs_html(runs: Sequence[ReportedRun]) -> str:
    """One run: its metrics, jobs and job timelines. Several runs: a comparison."""
    objectives = " or ".join(dict.fromkeys(run.objective for run in runs))
    columns: Columns = {"scheduler": run_names(runs)}
    columns |= {metric.title: metric.cells(runs) for metric in metrics_in_short(runs)}
    facts = f"{conditions_of(runs)}; the value is the {objectives}"
    parts = [f"<p>{escape(facts)}</p>", _table(columns)]
    if len(runs) == 1:
        jobs = job_columns(runs[0], most=MAX_ROWS)
        if not any(runs[0].outcome.failed):
            del jobs["failed because"]
        parts += [_table(jobs), _left_out(len(runs[0].outcome.jobs), "jobs")]

    def draw() -> list[Picture]:
        pictures = import_module("slotwise.report.pictures.gallery")
        found: list[Picture] = pictures.draw_first(scene_of(runs))
        return found

    return _framed([*parts, *_pictures(draw)])


def plan_html(
    facts: str, completion: Mapping[str, float], held: Mapping[str, StepFunction]
) -> str:
    """A plan: its value, the completion of each job, and the slots that it holds over time."""
    order = sorted(completion, key=lambda job: (completion[job], job))
    columns = {
        "job": order[:MAX_ROWS],
        "completion (s)": [f"{completion[job]:.3f}" for job in order[:MAX_ROWS]],
    }
    parts = [f"<p>{escape(facts)}</p>", _table(columns), _left_out(len(order), "jobs")]

    def draw() -> list[Picture]:
        picture = import_module("slotwise.report.pictures.plan")
        return [picture.draw({job: held[job] for job in order if job in held})]

    return _framed([*parts, *_pictures(draw)])


def dataflow_html(staged: StagedGraph) -> str:
    """The picture of a dataflow."""
    from slotwise.report.dataflow.svg import svg_of

    return _framed([_embedded(svg_of(staged), "dataflow")])


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


def _table(columns: Columns) -> str:
    """A table with inline styles, readable under any style sheet of the notebook."""
    sides = {
        title: "right" if title not in ("job", "scheduler") and is_numeric(cells) else "left"
        for title, cells in columns.items()
    }
    head = "".join(_cell("th", title, sides[title]) for title in columns)
    body = ""
    for row in zip(*columns.values(), strict=True):
        cells = zip(row, sides.values(), strict=True)
        body += f"<tr>{''.join(_cell('td', text, side) for text, side in cells)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'


def _left_out(count: int, what: str) -> str:
    return f"<p>{MAX_ROWS} of {count:,} {what} are listed.</p>" if count > MAX_ROWS else ""


def _framed(parts: Sequence[str]) -> str:
    return f'<div style="overflow-x: auto">{"".join(parts)}</div>'
