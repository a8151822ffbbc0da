"""Host usage over time, for clusters with too many slots for a row each."""

from __future__ import annotations

from typing import Any

import altair as alt

from slotwise.core.cluster import Cluster
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
from slotwise.insight.report.reduce import SHADES, cells_of
from slotwise.insight.report.reported import Scene, distinct
from slotwise.insight.report.text import BAD
from slotwise.insight.timeline import Timeline

MAX_ROWS = 60
COLUMNS = 240
ROW_HEIGHT = 11


def draw(scene: Scene) -> Picture:
    """Draw the picture."""
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
        places = {host: [texts[group]] for host, group in group_of.items()}
        rows[f"{name}silent"] = unresponsive_rows(scene, line, places)
        charts.append(_cells(scene, name, texts, number == len(scene.runs) - 1))
    sentence = (
        "Each row is a host, or several neighbouring hosts if there are many. The colour is the"
        " job that held most of the slots; paler colours mean more idle slots. Red crosses are"
        " attempts that failed, were lost or were killed."
    )
    if any(line.unresponsive for line in scene.timelines):
        sentence += SENTENCE.format(who="a host in the row")
    chart = under_each_other(scene, charts)
    return Picture("slots", "Host usage by job", sentence, chart, rows)


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
        x=time_axis(scene, "end", is_last), y=y, tooltip=tooltip(count="unsuccessful")
    )
    silent = unresponsive_marks(scene, f"{name}silent", texts, ROW_HEIGHT, is_last)
    height = ROW_HEIGHT * len(texts)
    return alt.layer(cells, crosses, silent).properties(width=WIDTH, height=height)


def _groups(cluster: Cluster) -> tuple[dict[str, int], list[str], list[int]]:
    """The group of each host; the text and the number of slots of each group."""
    hosts = cluster.hosts
    size = -(-len(hosts) // MAX_ROWS)
    parts = [hosts[at : at + size] for at in range(0, len(hosts), size)]
    group_of = {host.name: row for row, part in enumerate(parts) for host in part}
    texts = [
        part[0].name if len(part) == 1 else f"{part[0].name} – {part[-1].name}"
        for part in parts
    ]
    slots = [max(1, sum(sum(host.slots.values()) for host in part)) for part in parts]
    return group_of, distinct(texts), slots


def _bad_marks(scene: Scene, line: Timeline, groups: list[int], texts: list[str]) -> Rows:
    """One cross for all unsuccessful attempts in a row within one column."""
    width = (scene.end - scene.begin) / COLUMNS
    counts: dict[tuple[int, int], int] = {}
    last = None
    for group, placed in zip(groups, line.attempts, strict=True):
        if placed.attempt is last:
            continue  # A further slot of the same attempt.
        last = placed.attempt
        if last.ending in ("failed", "lost", "killed"):
            key = group, int((last.end - scene.begin) / width)
            counts[key] = counts.get(key, 0) + 1
    return [
        {
            "row": texts[group],
            "end": scene.at(scene.begin + column * width),
            "count": f"{count} attempts",
        }
        for (group, column), count in counts.items()
    ]
