"""Slot usage over time: a bar for each attempt in the row of its slot, or cells if too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt

from slotwise.core.job import PhaseId
from slotwise.insight.report.pictures.picture import (
    COLUMNS,
    WIDTH,
    Picture,
    Rows,
    coloured,
    job_colour,
    row_axis,
    source,
    spans,
    tooltip,
    under_each_other,
)
from slotwise.insight.report.reported import Scene, distinct
from slotwise.insight.report.text import BAD, INK, JOBS
from slotwise.insight.timeline import PlacedAttempt, Timeline

MAX_ROWS = 60
MIN_BARS, MAX_BARS_OF_RUN, MAX_BARS = 1_000, 5_000, 15_000
"""A run with more attempts has cells. If the bars of all runs are too many, the limit of each
is lower, but at least the first number."""

_MARKS = {"failed": "×", "lost": "†", "killed": "–", "unfinished": "…"}


@dataclass(frozen=True, slots=True)
class _PictureRows:
    """The rows of one run: their labels and slots; rows of attempts and of hosts."""

    texts: list[str]
    slots: list[int]
    of_attempts: list[int]
    of_hosts: dict[str, list[str]]


def draw(scene: Scene) -> Picture:
    """Draw the picture."""
    has_slots = all(len(_slots(line)) <= MAX_ROWS for line in scene.timelines)
    most = max(MIN_BARS, min(MAX_BARS_OF_RUN, MAX_BARS // len(scene.runs)))
    has_bars = has_slots and all(len(line.attempts) <= most for line in scene.timelines)
    data: dict[str, Rows] = {}
    charts = []
    for number, line in enumerate(scene.timelines):
        rows = _slot_rows(line) if has_slots else _host_rows(line)
        name = f"slots{number}"
        data[name], data[f"{name}bad"] = (_bars if has_bars else _cells)(scene, line, rows)
        data[f"{name}silent"] = _unresponsive(scene, line, rows)
        is_crowded = not has_bars or len(line.attempts) > 1_000
        charts.append(_chart(scene, number, rows.texts, has_bars, is_crowded))
    title = "Slot usage by job" if has_slots else "Host usage by job"
    sentence = _sentence(scene, has_bars, has_slots)
    return Picture("slots", title, sentence, under_each_other(scene, charts), data)


def _sentence(scene: Scene, has_bars: bool, has_slots: bool) -> str:
    marks = ""
    if any(p.attempt.ending != "done" for line in scene.timelines for p in line.attempts):
        marks = "× failed, † lost, – killed, … still running at the end"
    if has_bars:
        sentence = "Each bar is an attempt of a task in its slot"
        if len(scene.jobs) <= len(JOBS):
            sentence += "; later phases of a job are fainter"
        sentence += f"; red frames mark: {marks}." if marks else "."
    else:
        row = "slot" if has_slots else "host, or several neighbouring hosts if there are many"
        sentence = (
            f"Each row is a {row}. The colour is the job that held most of it; fainter colours"
            " mean more idle time."
        )
        sentence += f" Red marks are attempts without a result: {marks}." if marks else ""
    if any(line.unresponsive for line in scene.timelines):
        who = "its host" if has_slots else "a host in the row"
        sentence += f" A dark line along a row means that {who} was unresponsive."
    return sentence


def _chart(
    scene: Scene, number: int, texts: list[str], has_bars: bool, is_crowded: bool
) -> Any:
    name, is_last = f"slots{number}", number == len(scene.runs) - 1
    height = 24 if len(texts) <= 8 else 16 if len(texts) <= 24 else 11
    unit = scene.unit.symbol
    times = {"start": f"start ({unit})", "end": f"end ({unit})"}
    if has_bars:
        tips = bad_tips = tooltip(
            job="job",
            phase="phase",
            task="task",
            **times,
            host="host",
            locality="input",
            ending="ended",
        )
    else:
        tips = tooltip(row="row", job="mostly job", **times, shade="slots held (share)")
        bad_tips = tooltip(count="unsuccessful")
    at = spans(scene, texts, is_last)
    bad = alt.Chart(source(f"{name}bad"))
    frames = bad.mark_bar(stroke=BAD, strokeWidth=1.3, fillOpacity=0.25).encode(
        **at, fill=alt.Fill(field="colour", type="nominal", scale=None), tooltip=bad_tips
    )
    marks = bad.transform_calculate(middle="(datum.start + datum.end) / 2").mark_text(
        color=BAD, fontSize=11, fontWeight="bold"
    )
    lines = alt.Chart(source(f"{name}silent")).mark_rule(
        color=INK, strokeWidth=2.5, yOffset=height / 2 - 1.5
    )
    return alt.layer(
        alt.Chart(source(name))
        .mark_bar(strokeWidth=0.6)
        .encode(
            **at,
            color=job_colour(scene),
            stroke=alt.Undefined if is_crowded else alt.value("white"),
            fillOpacity=alt.FillOpacity(
                field="shade", type="quantitative", scale=None, legend=None
            ),
            tooltip=tips,
        ),
        *([frames] if has_bars else []),
        marks.encode(x="middle:Q", y=row_axis(texts), text="mark:N", tooltip=bad_tips),
        lines.encode(
            **at,
            tooltip=tooltip(
                host="unresponsive host", start=f"from ({unit})", end=f"to ({unit})"
            ),
        ),
    ).properties(width=WIDTH, height=len(texts) * height)


def _unresponsive(scene: Scene, line: Timeline, rows: _PictureRows) -> Rows:
    """One data row for each unresponsive period and each row of its host."""
    return [
        {
            "row": text,
            "host": span.host,
            "start": scene.at(span.start),
            "end": scene.at(line.end if span.end is None else span.end),
        }
        for span in line.unresponsive
        for text in rows.of_hosts[span.host]
    ]


# A bar for each attempt.


def _bars(scene: Scene, line: Timeline, rows: _PictureRows) -> tuple[Rows, Rows]:
    """The bars of successful attempts, and those of others."""
    bars = [
        _bar(scene, line, placed, rows.texts[row])
        for row, placed in zip(rows.of_attempts, line.attempts, strict=True)
    ]
    return [bar for bar in bars if "mark" not in bar], [bar for bar in bars if "mark" in bar]


def _bar(scene: Scene, line: Timeline, placed: PlacedAttempt, text: str) -> dict[str, Any]:
    attempt = placed.attempt
    job = attempt.phase.job
    row = {
        "job": job,
        "row": text,
        "start": scene.at(attempt.start),
        "end": scene.at(attempt.end),
        "phase": attempt.phase.phase,
        "task": str(attempt.task),
        "host": attempt.host,
        "locality": attempt.locality.name.lower(),
        "ending": attempt.ending,
    }
    if attempt.ending in _MARKS:
        return row | {"colour": scene.job_colours[job], "mark": _MARKS[attempt.ending]}
    return row | coloured(scene, job) | {"shade": _opacity(scene, line, attempt.phase)}


def _opacity(scene: Scene, line: Timeline, phase: PhaseId) -> float:
    """The opacity: later phases are fainter, unless jobs already use tints of one hue."""
    if len(scene.jobs) > len(JOBS):
        return 1.0
    order = [other.name for other in line.jobs[phase.job].job.topological]
    return (1.0, 0.7, 0.5)[min(order.index(phase.phase), 2)]


def _slots(line: Timeline) -> list[tuple[str, str, int]]:
    """The slots in the order of the cluster, then those that only the record has."""
    slots = {
        (host.name, kind, lane): None
        for host in line.cluster.hosts
        for kind, count in host.slots.items()
        for lane in range(count)
    }
    slots |= {(p.attempt.host, p.slot_kind, p.lane): None for p in line.attempts}
    return list(slots)


def _slot_rows(line: Timeline) -> _PictureRows:
    """A row for each slot."""
    slots = _slots(line)
    has_kinds = len({kind for _, kind, _ in slots}) > 1
    texts = distinct(
        f"{host} {kind} {lane + 1}" if has_kinds else f"{host} · {lane + 1}"
        for host, kind, lane in slots
    )
    places = {slot: row for row, slot in enumerate(slots)}
    of_hosts: dict[str, list[str]] = {}
    for (host, _, _), text in zip(slots, texts, strict=True):
        of_hosts.setdefault(host, []).append(text)
    of_attempts = [places[p.attempt.host, p.slot_kind, p.lane] for p in line.attempts]
    return _PictureRows(texts, [1] * len(slots), of_attempts, of_hosts)


# Cells: for each row and time interval, the job that held most of it.


SHADES = 4
"""The number of utilisation levels that a cell can show."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Columns `start` to `end` of a row: the job that held most slots, and the utilisation.

    `shade` is from 1 (almost idle) to SHADES (all slots of the row held all the time).
    """

    row: int
    start: int
    end: int
    job: str
    shade: int


def cells_of(
    attempts: Sequence[PlacedAttempt],
    rows: Sequence[int],
    slots: Sequence[int],
    begin: float,
    end: float,
    columns: int,
) -> list[Cell]:
    """Return the non-idle cells of a grid, with equal neighbours in a row merged.

    `rows` has the row of each attempt, `slots` the slots of each row; times in seconds.
    O(n + cells touched).
    """
    width = (end - begin) / columns
    held: dict[tuple[int, int], dict[str, float]] = {}
    for row, placed in zip(rows, attempts, strict=True):
        attempt = placed.attempt
        first = max(0, int((attempt.start - begin) / width))
        last = min(columns - 1, int((attempt.end - begin) / width))
        for column in range(first, last + 1):
            left = begin + column * width
            overlap = min(attempt.end, left + width) - max(attempt.start, left)
            if overlap > 0:
                of_job, job = held.setdefault((row, column), {}), attempt.phase.job
                of_job[job] = of_job.get(job, 0.0) + overlap
    cells: list[Cell] = []
    for row, column in sorted(held):
        of_job = held[row, column]
        share = sum(of_job.values()) / (width * slots[row])
        most = min(of_job, key=lambda job: (-of_job[job], job))
        shade = max(1, min(SHADES, round(share * SHADES)))
        cell = Cell(row, column, column + 1, most, shade)
        if cells and replace(cells[-1], start=column, end=cells[-1].end + 1) == cell:
            cells[-1] = replace(cells[-1], end=cell.end)
        else:
            cells.append(cell)
    return cells


def _cells(scene: Scene, line: Timeline, rows: _PictureRows) -> tuple[Rows, Rows]:
    """The cells, and a mark for the unsuccessful attempts of a row that ended within one."""
    width = (scene.end - scene.begin) / COLUMNS

    def times(start: int, end: int) -> dict[str, float]:
        begin = scene.begin
        return {"start": scene.at(begin + start * width), "end": scene.at(begin + end * width)}

    cells = cells_of(
        line.attempts, rows.of_attempts, rows.slots, scene.begin, scene.end, COLUMNS
    )
    counts: Counter[tuple[int, int, str]] = Counter()
    last = None
    for row, placed in zip(rows.of_attempts, line.attempts, strict=True):
        mark = _MARKS.get(placed.attempt.ending)
        if mark and placed.attempt != last:
            counts[row, int((placed.attempt.end - scene.begin) / width), mark] += 1
        last = placed.attempt  # An attempt with several slots counts once.
    return [
        coloured(scene, cell.job)
        | {
            "row": rows.texts[cell.row],
            **times(cell.start, cell.end),
            "shade": cell.shade / SHADES,
        }
        for cell in cells
    ], [
        {
            "row": rows.texts[row],
            **times(column, column),
            "mark": mark,
            "count": f"{count} attempts",
        }
        for (row, column, mark), count in counts.items()
    ]


def _host_rows(line: Timeline) -> _PictureRows:
    """A row for each host, or for several neighbouring ones."""
    hosts = line.cluster.hosts
    size = -(-len(hosts) // MAX_ROWS)
    parts: list[Sequence[Any]] = [hosts[at : at + size] for at in range(0, len(hosts), size)]
    texts = distinct(
        part[0].name if len(part) == 1 else f"{part[0].name} – {part[-1].name}"
        for part in parts
    )
    row_of = {host.name: row for row, part in enumerate(parts) for host in part}
    return _PictureRows(
        texts,
        [max(1, sum(sum(host.slots.values()) for host in part)) for part in parts],
        [row_of[placed.attempt.host] for placed in line.attempts],
        {host: [texts[row]] for host, row in row_of.items()},
    )
