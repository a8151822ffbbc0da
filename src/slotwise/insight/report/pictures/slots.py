"""Slot usage over time: one row per slot, one bar per attempt."""

from __future__ import annotations

from typing import Any

import altair as alt

from slotwise.core.job import PhaseId
from slotwise.insight.report.pictures.picture import (
    SENTENCE,
    WIDTH,
    Picture,
    Rows,
    coloured,
    job_colour,
    row_axis,
    source,
    time_axis,
    tooltip,
    under_each_other,
    unresponsive_marks,
    unresponsive_rows,
)
from slotwise.insight.report.reduce import Bar, bars_of
from slotwise.insight.report.reported import Scene, distinct
from slotwise.insight.report.text import BAD, JOBS, tinted
from slotwise.insight.timeline import Timeline

MAX_ROWS = 60
MAX_BARS = 15_000

_MARKS = {"failed": "×", "lost": "†", "killed": "–", "unfinished": "…"}


def is_readable(scene: Scene) -> bool:
    """Whether there are few enough slots for a row each."""
    return max(len(_slots(line)) for line in scene.timelines) <= MAX_ROWS


def draw(scene: Scene) -> Picture:
    """Draw the picture."""
    most = max(1_000, min(5_000, MAX_BARS // len(scene.runs)))
    rows: dict[str, Rows] = {}
    charts, left_out = [], 0
    for number, line in enumerate(scene.timelines):
        labels = _labels(line)
        places = {slot: row for row, slot in enumerate(labels)}
        bars, missing = bars_of(
            line.attempts,
            [places[p.attempt.host, p.slot_kind, p.lane] for p in line.attempts],
            most,
            (scene.end - scene.begin) / WIDTH,
        )
        left_out += missing
        texts = list(labels.values())
        name = f"slots{number}"
        drawn = [_row(scene, line, bar, texts[bar.row]) for bar in bars]
        rows[name] = [row for row in drawn if "mark" not in row]
        rows[f"{name}bad"] = [row for row in drawn if "mark" in row]
        rows[f"{name}silent"] = unresponsive_rows(scene, line, _texts_of_hosts(labels))
        is_last = number == len(scene.runs) - 1
        charts.append(_bars(scene, name, texts, len(bars), is_last))
    sentence = "Each bar is an attempt of a task in its slot"
    if len(scene.jobs) <= len(JOBS):
        sentence += "; later phases of a job are paler"
    ended = {p.attempt.ending for line in scene.timelines for p in line.attempts}
    if ended & _MARKS.keys():
        sentence += "; red frames mark: × failed, † lost, – killed, … still running at the end"
    sentence += "."
    if any(line.unresponsive for line in scene.timelines):
        sentence += SENTENCE.format(who="its host")
    if left_out:
        sentence += f" The {left_out:,} shortest attempts are left out."
    chart = under_each_other(scene, charts)
    return Picture("slots", "Slot usage by job", sentence, chart, rows)


def _bars(scene: Scene, name: str, texts: list[str], count: int, is_last: bool) -> Any:
    unit, height = scene.unit.symbol, _row_height(len(texts))
    tips = tooltip(
        job="job",
        phase="phase",
        task="task",
        start=f"start ({unit})",
        end=f"end ({unit})",
        host="host",
        locality="input",
        ending="ended",
    )
    at = {"x": time_axis(scene, "start", is_last), "x2": "end", "y": row_axis(texts)}
    edge = alt.value("white") if count <= 1_000 else alt.Undefined
    shade = alt.FillOpacity(field="shade", type="quantitative", scale=None, legend=None)
    done = alt.Chart(source(name)).mark_bar(strokeWidth=0.6)
    bad = alt.Chart(source(f"{name}bad"))
    fill = alt.Fill(field="fill", type="nominal", scale=None)
    return alt.layer(
        done.encode(
            **at, color=job_colour(scene), stroke=edge, fillOpacity=shade, tooltip=tips
        ),
        bad.mark_bar(stroke=BAD, strokeWidth=1.3).encode(**at, fill=fill, tooltip=tips),
        bad.transform_calculate(middle="(datum.start + datum.end) / 2")
        .mark_text(color=BAD, fontSize=11, fontWeight="bold")
        .encode(x="middle:Q", y=row_axis(texts), text="mark:N"),
        unresponsive_marks(scene, f"{name}silent", texts, height, is_last),
    ).properties(width=WIDTH, height=len(texts) * height)


def _row(scene: Scene, line: Timeline, bar: Bar, text: str) -> dict[str, Any]:
    attempt = bar.first
    job = attempt.phase.job
    row = {
        "job": job,
        "row": text,
        "start": scene.at(bar.start),
        "end": scene.at(bar.end),
        "phase": attempt.phase.phase,
        "task": str(attempt.task) if bar.count == 1 else f"{bar.count} tasks",
        "host": attempt.host,
        "locality": attempt.locality.name.lower(),
        "ending": bar.ending,
    }
    if bar.ending in _MARKS:
        pale = tinted(scene.job_colours[job], 0.75)
        return row | {"fill": pale, "mark": _MARKS[bar.ending]}
    return row | coloured(scene, job) | {"shade": _shade(scene, line, attempt.phase)}


def _shade(scene: Scene, line: Timeline, phase: PhaseId) -> float:
    """The opacity: later phases are paler, unless jobs already use tints of one hue."""
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


def _labels(line: Timeline) -> dict[tuple[str, str, int], str]:
    slots = _slots(line)
    many_kinds = len({kind for _, kind, _ in slots}) > 1
    texts = distinct(
        f"{host} {kind} {lane + 1}" if many_kinds else f"{host} · {lane + 1}"
        for host, kind, lane in slots
    )
    return dict(zip(slots, texts, strict=True))


def _texts_of_hosts(labels: dict[tuple[str, str, int], str]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for (host, _, _), text in labels.items():
        texts.setdefault(host, []).append(text)
    return texts


def _row_height(rows: int) -> int:
    return 24 if rows <= 8 else 16 if rows <= 24 else 11
