"""Who held which slot: one row a slot, or a group of hosts where there are many slots."""

from __future__ import annotations

from typing import Any

import altair as alt

from slotwise.analysis.timeline import Timeline
from slotwise.model.cluster import Cluster
from slotwise.report.bars import Bar, bars_of
from slotwise.report.cells import SHADES, cells_of
from slotwise.report.palette import BAD
from slotwise.report.pictures.picture import (
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
)
from slotwise.report.reported import distinct
from slotwise.report.scene import Scene

ROWS_MOST = 60
BARS_MOST = 15_000
COLUMNS = 240

_ENDINGS = {"failed": "×", "lost": "†", "killed": "–", "unfinished": "…"}
_MARKS = "framed in red: × failed, † lost with its slot, – killed, … still running at the end"


def draw(scene: Scene) -> Picture:
    """The picture: by slot while every slot can have a row, else by group of hosts."""
    lanes = {key for line in scene.timelines for key in _slots(line)}
    return _by_slot(scene) if len(lanes) <= ROWS_MOST else _by_group(scene)


def _by_slot(scene: Scene) -> Picture:
    most = max(1_000, min(5_000, BARS_MOST // len(scene.runs)))
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
        rows[name] = [_row(scene, line, bar, texts[bar.row]) for bar in bars]
        rows[f"{name}bad"] = [row for row in rows[name] if row["mark"]]
        rows[name] = [row for row in rows[name] if not row["mark"]]
        is_last = number == len(scene.runs) - 1
        charts.append(_bars(scene, name, texts, len(bars), is_last))
    sentence = (
        "Each bar is an attempt of a task in its slot; later phases of a job are paler;"
        f" {_MARKS}."
    )
    if left_out:
        sentence += f" The {left_out:,} shortest attempts are left out."
    chart = under_each_other(scene, charts)
    return Picture("slots", "Who held which slot", sentence, chart, rows)


def _bars(scene: Scene, name: str, texts: list[str], count: int, is_last: bool) -> Any:
    unit = scene.unit.symbol
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
    colour = job_colour(scene)
    return alt.layer(
        done.encode(**at, color=colour, stroke=edge, fillOpacity=shade, tooltip=tips),
        bad.mark_bar(stroke=BAD, strokeWidth=1.3, fillOpacity=0.25).encode(
            **at, fill=_filled(colour), tooltip=tips
        ),
        bad.transform_calculate(middle="(datum.start + datum.end) / 2")
        .mark_text(color=BAD, fontSize=11, fontWeight="bold")
        .encode(x="middle:Q", y=row_axis(texts), text="mark:N"),
    ).properties(width=WIDTH, height=len(texts) * _row_height(len(texts)))


def _filled(colour: alt.Color) -> alt.Fill:
    """The same colour, for marks whose stroke has another."""
    options: dict[str, Any] = dict(colour.to_dict())
    return alt.Fill(**options | {"legend": None})


def _row(scene: Scene, line: Timeline, bar: Bar, text: str) -> dict[str, Any]:
    attempt = bar.first
    phases = [phase.name for phase in line.jobs[attempt.phase.job].job.topological()]
    place = phases.index(attempt.phase.phase)
    return coloured(scene, attempt.phase.job) | {
        "row": text,
        "start": scene.at(bar.start),
        "end": scene.at(bar.end),
        "phase": attempt.phase.phase,
        "task": str(attempt.task) if bar.count == 1 else f"{bar.count} tasks",
        "host": attempt.host,
        "locality": attempt.locality.name.lower(),
        "ending": bar.ending,
        "mark": _ENDINGS.get(bar.ending, ""),
        "shade": (1.0, 0.68, 0.45)[min(place, 2)],
    }


def _slots(line: Timeline) -> list[tuple[str, str, int]]:
    """All slots in order of the cluster, with those that only the record shows at the end."""
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


def _row_height(rows: int) -> int:
    return 24 if rows <= 8 else 16 if rows <= 24 else 11


def _by_group(scene: Scene) -> Picture:
    rows: dict[str, Rows] = {}
    charts = []
    for number, line in enumerate(scene.timelines):
        group_of, texts, slots = _groups(line.cluster)
        groups = [group_of[p.attempt.host] for p in line.attempts]
        name = f"slots{number}"
        width = (scene.end - scene.begin) / COLUMNS
        rows[name] = [
            coloured(scene, cell.job)
            | {
                "row": texts[cell.row],
                "start": scene.at(scene.begin + cell.start * width),
                "end": scene.at(scene.begin + cell.end * width),
                "shade": cell.shade / SHADES,
            }
            for cell in cells_of(line.attempts, groups, slots, scene.begin, scene.end, COLUMNS)
        ]
        rows[f"{name}bad"] = _bad_marks(scene, line, groups, texts)
        charts.append(_cells(scene, name, texts, number == len(scene.runs) - 1))
    sentence = (
        "Each row is a host, or neighbouring hosts where there are many; its colour is the job"
        " that held most of its slots, the paler the more of them were idle. Red crosses are"
        " attempts that failed, were lost or killed."
    )
    chart = under_each_other(scene, charts)
    return Picture("slots", "Who held which hosts", sentence, chart, rows)


def _cells(scene: Scene, name: str, texts: list[str], is_last: bool) -> Any:
    unit = scene.unit.symbol
    y = row_axis(texts)
    tips = tooltip(
        row="hosts",
        job="mostly job",
        start=f"start ({unit})",
        end=f"end ({unit})",
        shade="slots held (share)",
    )
    opacity = alt.FillOpacity(field="shade", type="quantitative", scale=None, legend=None)
    cells = (
        alt.Chart(source(name))
        .mark_bar()
        .encode(
            x=time_axis(scene, "start", is_last),
            x2="end",
            y=y,
            color=job_colour(scene),
            fillOpacity=opacity,
            tooltip=tips,
        )
    )
    bad = alt.Chart(source(f"{name}bad")).mark_text(text="×", color=BAD, fontWeight="bold")
    crosses = bad.encode(
        x=time_axis(scene, "end", is_last), y=y, tooltip=tooltip(count="ended badly")
    )
    return alt.layer(cells, crosses).properties(width=WIDTH, height=11 * len(texts))


def _groups(cluster: Cluster) -> tuple[dict[str, int], list[str], list[int]]:
    """The group of each host; the text and the number of slots of each group."""
    hosts = cluster.hosts
    size = -(-len(hosts) // ROWS_MOST)
    parts = [hosts[at : at + size] for at in range(0, len(hosts), size)]
    group_of = {host.name: row for row, part in enumerate(parts) for host in part}
    texts = [
        part[0].name if len(part) == 1 else f"{part[0].name} – {part[-1].name}"
        for part in parts
    ]
    slots = [max(1, sum(sum(host.slots.values()) for host in part)) for part in parts]
    return group_of, distinct(texts), slots


def _bad_marks(scene: Scene, line: Timeline, groups: list[int], texts: list[str]) -> Rows:
    """One cross for all attempts that ended badly in a row within one column."""
    width = (scene.end - scene.begin) / COLUMNS
    counts: dict[tuple[int, int], int] = {}
    for group, placed in zip(groups, line.attempts, strict=True):
        if placed.attempt.ending in ("failed", "lost", "killed"):
            key = group, int((placed.attempt.end - scene.begin) / width)
            counts[key] = counts.get(key, 0) + 1
    return [
        {
            "row": texts[group],
            "end": scene.at(scene.begin + column * width),
            "count": f"{count} attempts",
        }
        for (group, column), count in counts.items()
    ]
