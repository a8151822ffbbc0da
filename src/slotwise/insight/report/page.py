"""Write the report of runs: one HTML page that works offline, and its pictures as files."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotwise.core.errors import InputError, MissingExtraError, check_path
from slotwise.core.files import open_to_write, refuse_foreign
from slotwise.insight.report.grid import is_numeric
from slotwise.insight.report.reported import (
    Scene,
    among,
    conditions_of,
    has_differing_bounds,
    has_differing_work,
)
from slotwise.insight.report.tables import (
    FAILED_BECAUSE,
    NAMES,
    Columns,
    failures_section,
    job_columns,
    memory_columns,
    metrics_in_full,
    waits_section,
)
from slotwise.insight.report.text import DARK, MISSING, counted, seconds

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture
    from slotwise.insight.report.reported import ReportedRun, Scene


ENDINGS = (".html", ".htm")
"""The allowed suffixes of a page."""

_PNG_SCALE = 2.0


def write_report(
    runs: Sequence[ReportedRun], path: str | Path, pictures: bool = False
) -> list[Path]:
    """Write the page to `path`, with `pictures` also its pictures; return all paths.

    The page is self-contained and makes no requests. Raises MissingExtraError without the extra
    `plots`, and InputError for no runs and for the reasons of `check_report`.
    """

    check_report(path)
    path = Path(path)
    scene, drawn = _draw(runs)
    bundle = importlib.import_module("vl_convert").javascript_bundle()
    specs = [picture.spec() for picture in drawn]
    _write(path, page(scene, drawn, specs, bundle).encode("utf-8", "backslashreplace"))
    written = [path]
    if pictures:
        written += _save(drawn, specs, path.parent, f"{path.stem}-")
    return written


def check_report(path: str | Path) -> None:
    """Check before a run that its report can be written.

    Raises MissingExtraError without the extra `plots`, and InputError for a name without the
    suffix of a page and for a path that cannot be written.
    """
    require_plots()
    check_path("the path of a report", path, optional=False)
    with _input_errors(Path(path)):
        _check_path(Path(path))


def _check_path(path: Path) -> None:
    place = f"report {str(path)!r}"
    if path.is_dir():
        raise InputError(f"{place}: is a directory; name another file")
    folder = path.absolute().parent
    if not folder.exists():
        raise InputError(f"{place}: {str(folder)!r} is missing; name a folder that exists")
    if not folder.is_dir():
        raise InputError(f"{place}: {str(folder)!r} is not a directory; name another file")
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{place}: a report is a web page; use a name that ends in .html")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{place}: it cannot be written; name another file")
    with _input_errors(path):
        refuse_foreign(path, BEGIN.encode(), place)


def write_pictures(runs: Sequence[ReportedRun], folder: str | Path) -> list[Path]:
    """Write the pictures of a report into a folder, each as PNG and SVG; return all paths.

    The folder is created if it is missing. Raises InputError and MissingExtraError as
    `write_report` does.
    """
    drawn = _draw(runs)[1]
    specs = [picture.spec() for picture in drawn]
    with _input_errors(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return _save(drawn, specs, Path(folder), "")


def _draw(runs: Sequence[ReportedRun]) -> tuple[Scene, list[Picture]]:
    if not runs:
        raise InputError("a report needs at least 1 run; give one")
    require_plots()
    from slotwise.insight.report.pictures.gallery import draw_all
    from slotwise.insight.report.reported import scene_of

    scene = scene_of(runs)
    return scene, draw_all(scene)


def require_plots(what: str = "a report") -> None:
    """Raise MissingExtraError if the extra that draws pictures is not installed."""
    try:
        importlib.import_module("vl_convert")
        importlib.import_module("altair")
    except ImportError as error:
        raise MissingExtraError(what, "plots") from error


def _save(
    drawn: Sequence[Picture], specs: Sequence[dict[str, Any]], folder: Path, prefix: str
) -> list[Path]:
    converter = importlib.import_module("vl_convert")
    written = []
    for picture, spec in zip(drawn, specs, strict=True):
        svg = converter.vegalite_to_svg(spec)
        for ending, content in (
            ("png", converter.svg_to_png(svg, scale=_PNG_SCALE)),
            ("svg", svg.encode()),
        ):
            target = folder / f"{prefix}{picture.name}.{ending}"
            _write(target, content)
            written.append(target)
    return written


def _write(path: Path, content: bytes) -> None:
    with _input_errors(path), open_to_write(path) as file:
        file.write(content)


@contextmanager
def _input_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"report {str(path)!r}: {error.strerror}; name another file"
        ) from error


# The HTML of the page: headline, pictures, tables, and the script that draws.

MAX_JOBS = 500
"""The maximum number of jobs in a table of jobs."""

MAX_LABELS = 4
"""The maximum number of schedulers named in the title."""


def page(
    scene: Scene, pictures: Sequence[Picture], specs: Sequence[dict[str, Any]], bundle: str
) -> str:
    """Return the page. All text from users is escaped; `bundle` is the drawing library."""
    data = {
        picture.name: spec
        | {"datasets": {name: _packed(rows) for name, rows in spec["datasets"].items()}}
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
            failures_section(scene),
            *map(_section, compared),
            _metrics(scene),
            *map(_section, over_time[:1]),
            waits_section(scene),
            *map(_section, over_time[1:]),
            *_memory_tables(scene),
            *_job_tables(scene),
            "</main>",
            f"<script>{bundle}</script>",
            f"<script>const PICTURES = {script_json(data)}, DARK = {script_json(DARK)};"
            f"{DRAW}</script>",
            "</body></html>",
        ]
    )


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element, whatever strings it contains."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _packed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Pack rows with the same fields as one table, at a third of the size.

    `words` has the distinct strings of each column of strings, which then contains their
    indices, and None for other columns.
    """
    fields = list(rows[0]) if rows else []
    columns, words = [], []
    for field in fields:
        column = [row[field] for row in rows]
        found = None
        if all(isinstance(value, str) for value in column):
            found = list(dict.fromkeys(column))
            numbers = {word: number for number, word in enumerate(found)}
            column = [numbers[word] for word in column]
        columns.append(column)
        words.append(found)
    table = [list(row) for row in zip(*columns, strict=True)]
    return {"fields": fields, "words": words, "rows": table}


def _headline(scene: Scene) -> str:
    header = scene.runs[0].log.header
    cluster = header.cluster
    slots = " + ".join(
        counted(count, f"{kind} slot" if len(cluster.capacity) > 1 else "slot")
        for kind, count in cluster.capacity.items()
        if count
    )
    changing = " at first" if any(line.slots.changes for line in scene.timelines) else ""
    jobs = {job: line.jobs[job].job for line in scene.timelines for job in line.jobs}
    tasks = sum(phase.tasks.count for job in jobs.values() for phase in job.phases)
    objectives = " or ".join(dict.fromkeys(run.objective for run in scene.runs))
    facts = [
        counted(len(jobs), "job"),
        counted(tasks, "task"),
        f"{slots} on {counted(len(cluster.hosts), 'host')}{changing}",
        f"objective: {objectives}",
        conditions_of(scene.runs),
        f"over {seconds(scene.end - scene.begin)}",
    ]
    if len(scene.runs) > 1:
        facts.insert(0, counted(len(scene.runs), "run"))
    notices = "".join(f'<p class="notice">{escape(text)}</p>' for text in _interrupted(scene))
    return (
        f"<header><h1>{escape(_title(scene))}</h1>"
        f'<p class="facts">{" · ".join(escape(fact) for fact in facts)}</p>{notices}</header>'
    )


def _title(scene: Scene) -> str:
    """The names of the schedulers, or their number if there are many."""
    labels = list(dict.fromkeys(run.label for run in scene.runs))
    names = _listed(labels) if len(labels) <= MAX_LABELS else f"{len(labels)} schedulers"
    return f"{names} compared" if len(scene.runs) > 1 else f"Run of {names}"


def _interrupted(scene: Scene) -> Iterator[str]:
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
                f" when {over} of {counted(expected, 'job')} had ended."
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
        text += f" The best value{among(scene.runs)} is bold."
    if has_differing_bounds(scene.runs):
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
        # The headline has the values that are equal for all runs.
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
        summary = f"{name}: {counted(count, 'job')}" + (
            f", {failed:,} failed" if failed else ""
        )
        if count > MAX_JOBS:
            summary += f"; {MAX_JOBS} are listed"
        is_open = " open" if count <= 12 else ""
        table = _table(columns)
        parts.append(f"<details{is_open}><summary>{escape(summary)}</summary>{table}</details>")
    return [*parts, "</section>"]


def _memory_tables(scene: Scene) -> list[str]:
    """What phases requested and used of memory, for each run with such phases."""
    found = [
        pair for pair in zip(scene.names, scene.runs, strict=True) if pair[1].outcome.memory
    ]
    if not found:
        return []
    text = (
        "The most that an attempt got, stated or learned from finished tasks, and the largest"
        " peak of one. Unused is what attempts got and did not use, times hours. Stopped are"
        " those that failed when they had used more than they got: of them, all counts."
    )
    parts = [f"<section><h2>Memory requested and used</h2><p>{text}</p>"]
    for name, run in found:
        summary = f"{name}: {counted(len(run.outcome.memory), 'phase')}"
        table = _table(memory_columns(run, MAX_JOBS))
        is_open = " open" if len(run.outcome.memory) <= 12 else ""
        parts.append(f"<details{is_open}><summary>{escape(summary)}</summary>{table}</details>")
    return [*parts, "</section>"]


def _table(columns: Columns) -> str:
    """A table of the non-empty columns."""
    shown = {title: cells for title, cells in columns.items() if set(cells) - {"", MISSING}}
    kinds = [
        "reason" * (title == FAILED_BECAUSE)
        or "number" * (title not in NAMES and is_numeric(cells))
        for title, cells in shown.items()
    ]
    head = "".join(_cell("th", title, kind) for title, kind in zip(shown, kinds, strict=True))
    body = ""
    for row in zip(*shown.values(), strict=True):
        cells = zip(row, kinds, strict=True)
        body += f"<tr>{''.join(_cell('td', text, kind) for text, kind in cells)}</tr>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="table">{table}</div>'


def _cell(tag: str, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<{tag}{attribute}>{escape(text)}</{tag}>"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# The style sheet of the page.

BEGIN = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="generator" content="slotwise">"""
"""Marks a page as written by slotwise, so that it may be replaced."""

STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --muted: #616e7c; --rule: #e4e7eb;
  --paper: #f5f7fa; --card: white; --bad: #c1121f; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --muted: #9aa6b2; --rule: #3a4551; --paper: #12171d;
    --card: #1b222b; --bad: #ff7b72; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; }
main { max-width: 1600px; margin: 0 auto; padding: 28px 24px 60px; }
header { margin: 0 4px 22px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 2px; }
p { margin: 0 0 14px; color: var(--muted); max-width: 130ch;
  overflow-wrap: anywhere; }
.facts { font-size: 15px; }
.notice { color: var(--ink); border-left: 4px solid var(--bad); padding: 2px 12px; }
.failures { border-left: 4px solid var(--bad); }
ul { margin: 4px 0 12px; padding-left: 20px; max-width: 130ch; }
li { margin: 0 0 6px; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 20px 24px; margin: 0 0 18px; }
.picture, .table { overflow-x: auto; }
.picture.vega-embed { display: block; padding-right: 30px; }
.picture.vega-embed summary { background: var(--card); color: var(--ink); }
table { border-collapse: separate; border-spacing: 0; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: normal; text-align: left; vertical-align: bottom; }
th, td { padding: 5px 22px 5px 0; border-bottom: 1px solid var(--rule); }
td { overflow-wrap: break-word; max-width: 60ch; }
.table :is(th, td):first-child { position: sticky; left: 0; background: var(--card); }
.reason { min-width: 28ch; }
tbody tr:last-child > * { border-bottom: 0; }
.best { font-weight: bold; }
.number { text-align: right; white-space: nowrap; }
summary { cursor: pointer; padding: 6px 0; overflow-wrap: anywhere; }
li summary { padding: 0; color: var(--muted); }
pre { margin: 6px 0; font-size: 12px; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; }
details .table { margin: 4px 0 14px; }
@media (max-width: 800px) {
  main { padding: 18px 10px 40px; }
  section { padding: 14px 14px; }
  h1 { font-size: 23px; }
  .picture.vega-embed { padding-right: 0; }
  th, td { padding-right: 14px; }
  .table :is(th, td):first-child { min-width: 13ch; max-width: 36vw;
    overflow-wrap: anywhere; }
}
@media print { body { background: white; } section { break-inside: avoid; border: 0; } }
"""


# The script of the page, which draws its pictures at the available width.

DRAW = """
const unpack = table => table.rows.map(row => Object.fromEntries(table.fields.map(
  (field, at) => [field, table.words[at] ? table.words[at][row[at]] : row[at]])));
for (const {datasets} of Object.values(PICTURES))
  for (const rows in datasets) datasets[rows] = unpack(datasets[rows]);

// Plots take the width of the page, with legends above. On a narrow page labels are narrower,
// too, and panels stand below each other.
const WIDE = 760, LABELS = 130, NARROW_LABELS = 84, BESIDE = 56, MENU = 30, SPACING = 30;
function resize(node, width, isNarrow) {
  for (const [key, value] of Object.entries(node)) {
    if (key === "width" && value > 100) node.width = width;
    else if (isNarrow && (key === "minExtent" || key === "maxExtent"))
      node[key] = NARROW_LABELS;
    else if (isNarrow && key === "labelLimit") node[key] = NARROW_LABELS - 6;
    else if (isNarrow && key === "tickCount") node[key] = Math.min(value, 5);
    else if (value && typeof value === "object" && key !== "datasets")
      resize(value, width, isNarrow);
  }
}
function fit(spec, room) {
  const isNarrow = room < WIDE;
  let width = room - BESIDE - (isNarrow ? NARROW_LABELS : LABELS + MENU);
  if (spec.hconcat && isNarrow) {
    const axis = spec.hconcat[0].layer[0].encoding.y.axis;
    for (const panel of spec.hconcat)
      for (const layer of panel.layer) layer.encoding.y.axis = structuredClone(axis);
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
  } else if (spec.hconcat) width = width / spec.hconcat.length - SPACING;
  resize(spec, Math.max(120, width), isNarrow);
  const columns = Math.max(2, Math.floor(room / 150));
  Object.assign(spec.config.legend, {orient: "top", columns});
}

// On a dark page, the colours of text and paper are replaced; those of data are lighter.
function lit(colour) {
  if (DARK[colour] || !/^#[0-9a-f]{6}$/.test(colour)) return DARK[colour] ?? colour;
  const channels = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
  return `rgb(${channels.map(channel => Math.round(0.75 * channel + 64))})`;
}
function darken(node) {
  for (const [key, value] of Object.entries(node)) {
    if (key === "datasets") for (const row of Object.values(value).flat())
      { if (row.colour) row.colour = lit(row.colour); }
    else if (typeof value === "string") { if (key !== "title") node[key] = lit(value); }
    else if (value && key !== "domain") darken(value);  // Domains have names of users.
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");
let drawn = "";
function draw() {
  const room = document.querySelector(".picture").offsetWidth, isDark = dark.matches;
  if (`${room} ${isDark}` === drawn) return;
  drawn = `${room} ${isDark}`;
  for (const [name, picture] of Object.entries(PICTURES)) {
    const spec = structuredClone(picture);
    fit(spec, room);
    if (isDark) darken(spec);
    vegaEmbed("#" + name, spec, {
      mode: "vega-lite", renderer: "canvas", tooltip: {theme: isDark ? "dark" : "light"},
      actions: room >= WIDE &&
        {export: true, source: false, compiled: false, editor: false}});
  }
}
draw();
addEventListener("resize", draw);
dark.addEventListener("change", draw);
"""
"""Uses `PICTURES`, the specifications by name, `DARK` and vegaEmbed."""
