"""The HTML text of the page: headline, pictures, tables, and the script that draws."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from slotwise.report.drawing import DRAW
from slotwise.report.numbers import MISSING, seconds
from slotwise.report.packing import packed
from slotwise.report.printable import printable
from slotwise.report.reported import (
    conditions_of,
    has_bounds_apart,
    has_differing_work,
)
from slotwise.report.scene import Scene
from slotwise.report.style import BEGIN, STYLE
from slotwise.report.tables import (
    FAILED_BECAUSE,
    Columns,
    is_numeric,
    job_columns,
    metrics_in_full,
)
from slotwise.report.waits import waits_section

if TYPE_CHECKING:
    from slotwise.report.pictures.picture import Picture

MAX_JOBS = 500
"""The maximum number of jobs in a table of jobs."""

MAX_LABELS = 4
"""The maximum number of schedulers named in the title."""


def page(
    scene: Scene, pictures: Sequence[Picture], specs: Sequence[dict[str, Any]], bundle: str
) -> str:
    """The whole page. All text from users is escaped; `bundle` is the drawing library."""
    data = {
        picture.name: spec
        | {"datasets": {name: packed(rows) for name, rows in spec["datasets"].items()}}
        for picture, spec in zip(pictures, specs, strict=True)
    }
    compared = [picture for picture in pictures if picture.name in ("comparison", "responses")]
    over_time = [picture for picture in pictures if picture not in compared]
    return "\n".join(
        [
            BEGIN,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(f'slotwise: {_title(scene)}')}</title>",
            f"<style>{STYLE}</style>",
            "</head><body><main>",
            _headline(scene),
            *map(_section, compared),
            _metrics(scene),
            *map(_section, over_time[:1]),
            waits_section(scene),
            *map(_section, over_time[1:]),
            *_job_tables(scene),
            "</main>",
            f"<script>{bundle}</script>",
            f"<script>const PICTURES = {script_json(data)};{DRAW}</script>",
            "</body></html>",
        ]
    )


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element, whatever strings it contains."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _headline(scene: Scene) -> str:
    header = scene.runs[0].log.header
    cluster = header.cluster
    slots = " + ".join(
        _counted(count, f"{kind} slot" if len(cluster.capacity) > 1 else "slot")
        for kind, count in cluster.capacity.items()
        if count
    )
    changing = " at first" if any(line.slots.changes for line in scene.timelines) else ""
    jobs = {job: line.jobs[job].job for line in scene.timelines for job in line.jobs}
    tasks = sum(phase.tasks.count for job in jobs.values() for phase in job.phases)
    objectives = " or ".join(dict.fromkeys(run.objective for run in scene.runs))
    facts = [
        _counted(len(jobs), "job"),
        _counted(tasks, "task"),
        f"{slots} on {_counted(len(cluster.hosts), 'host')}{changing}",
        f"objective: {objectives}",
        conditions_of(scene.runs),
        f"over {seconds(scene.end - scene.begin)}",
    ]
    if len(scene.runs) > 1:
        facts.insert(0, _counted(len(scene.runs), "run"))
    notices = "".join(f'<p class="notice">{escape(text)}</p>' for text in _interrupted(scene))
    return (
        f"<header><h1>{escape(_title(scene))}</h1>"
        f'<p class="facts">{" · ".join(escape(fact) for fact in facts)}</p>{notices}</header>'
    )


def _title(scene: Scene) -> str:
    """The schedulers shown, each named once, or their number."""
    labels = list(dict.fromkeys(run.label for run in scene.runs))
    names = _listed(labels) if len(labels) <= MAX_LABELS else f"{len(labels)} schedulers"
    return f"{names} compared" if len(scene.runs) > 1 else f"Run of {names}"


def _interrupted(scene: Scene) -> Iterator[str]:
    """Notices about runs that were interrupted."""
    for run, line in zip(scene.runs, scene.timelines, strict=True):
        if run.is_interrupted:
            spans = line.jobs.values()
            over = sum(s.completion is not None or s.failed is not None for s in spans)
            backend = (
                f" ({run.backend})" if len({one.backend for one in scene.runs}) > 1 else ""
            )
            expected = run.log.header.jobs_expected or len(line.jobs)
            yield (
                f"{run.label}{backend} was interrupted: its record ends at {seconds(line.end)},"
                f" when {over} of {_counted(expected, 'job')} had ended."
                " Metrics and lower bound cover only completed work."
            )


def _section(picture: Picture) -> str:
    return (
        f"<section><h2>{escape(picture.title)}</h2><p>{escape(picture.sentence)}</p>"
        f'<div class="picture" id="{picture.name}"></div></section>'
    )


def _metrics(scene: Scene) -> str:
    text = (
        "Stretch is response time divided by work. Slowdown is response time divided by the"
        " minimum time of the job alone. The gap is how far the objective value is above"
        " the lower bound. Wasted slot-seconds are those of attempts without a result."
    )
    if any(run.outcome.metrics.get("jobs_tardy") is not None for run in scene.runs):
        text += (
            " Lateness is completion minus deadline; tardiness is lateness if positive, else 0."
            " Both cover jobs with a deadline."
        )
    if len(scene.runs) > 1:
        text += " The best value is bold."
    if has_bounds_apart(scene.runs):
        text += " Each lower bound applies to the work of its own run."
    if has_differing_work(scene.runs):
        text += (
            " The live runs measured different work for the same jobs, because the load of the"
            " machine differed. Their times and lower bounds are not comparable."
        )
    head = "".join(_cell("th", name, "number") for name in scene.names)
    texts: Columns = {
        "backend": [run.conditions for run in scene.runs],
        "objective": [run.objective for run in scene.runs],
    }
    body = []
    for title, words in texts.items():
        # Values that are equal for all runs are in the headline.
        if len(set(words)) > 1:
            row = [_cell("td", word, "number") for word in words]
            body.append(f"<tr>{_cell('th', title)}{''.join(row)}</tr>")
    for metric in metrics_in_full(scene.runs):
        cells = zip(metric.cells(scene.runs), metric.best(scene.runs), strict=True)
        row = [_cell("td", cell, "number best" if best else "number") for cell, best in cells]
        body.append(f"<tr>{_cell('th', metric.title)}{''.join(row)}</tr>")
    table = (
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )
    return f'<section><h2>Metrics</h2><p>{text}</p><div class="table">{table}</div></section>'


def _job_tables(scene: Scene) -> list[str]:
    parts = ["<section><h2>Jobs</h2>"]
    for name, run in zip(scene.names, scene.runs, strict=True):
        count, failed = len(run.outcome.jobs), len(run.outcome.failed)
        columns = job_columns(run, most=MAX_JOBS)
        summary = f"{name}: {_counted(count, 'job')}" + (
            f", {failed:,} failed" if failed else ""
        )
        if count > MAX_JOBS:
            summary += f"; {MAX_JOBS} are listed"
        is_open = " open" if count <= 12 else ""
        failures = {printable(job): reason for job, reason in run.outcome.failed.items()}
        table = _table(columns, failures)
        parts.append(f"<details{is_open}><summary>{escape(summary)}</summary>{table}</details>")
    return [*parts, "</section>"]


def _table(columns: Columns, failed: Mapping[str, str]) -> str:
    """A table of the non-empty columns. `failed` has the whole reason for each job as shown."""
    shown = {title: cells for title, cells in columns.items() if set(cells) - {"", MISSING}}
    kinds = [
        "number" if title != "job" and is_numeric(cells) else ""
        for title, cells in shown.items()
    ]
    head = "".join(_cell("th", title, kind) for title, kind in zip(shown, kinds, strict=True))
    body = ""
    for job, *row in zip(columns["job"], *shown.values(), strict=True):
        cells = zip(shown, row, kinds, strict=True)
        tds = (
            _reason(text, failed.get(job, ""))
            if title == FAILED_BECAUSE
            else _cell("td", text, kind)
            for title, text, kind in cells
        )
        body += f"<tr>{''.join(tds)}</tr>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="table">{table}</div>'


def _reason(short: str, whole: str) -> str:
    """A reason in one line; a click opens the rest."""
    if short == whole.strip():
        return _cell("td", short)
    return (
        f"<td><details><summary>{escape(short)}</summary>"
        f"<pre>{escape(whole)}</pre></details></td>"
    )


def _cell(tag: str, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<{tag}{attribute}>{escape(text)}</{tag}>"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
