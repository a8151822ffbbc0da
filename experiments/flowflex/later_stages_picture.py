"""The picture of FlowFlex's second and third stage: schedules of pseudo-jobs and phases."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import altair as alt

from experiments.figure import Figure, Row
from experiments.flowflex.stage_encoding import (
    FLOW_COLOURS,
    named,
    slots_axis,
    small_title,
    time_axis,
    title_of,
)
from experiments.flowflex.stage_rows import SLOTS, completions
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, tinted

TINTS = (0.0, 0.45, 0.2, 0.6, 0.1, 0.35)
"""Tints of one flow's phases by their numbers, so that neighbours can be distinguished."""

LIGHT = 0.35
"""From this tint on, names are printed dark."""

LABEL_AREA = 0.9
"""Slots times seconds; smaller rectangles have no name in them."""


def draw_later_stages(figure: Figure, rows: Sequence[Row]) -> Picture:
    """The three schedules under each other on one time axis."""
    titles = list(dict.fromkeys(row["schedule"] for row in rows))
    end = max(row["end"] for row in rows)
    datasets: dict[str, Rows] = {}
    charts = []
    for title in titles:
        mine = [row for row in rows if row["schedule"] == title]
        datasets[title] = _tinted(mine)
        datasets[f"{title} names"] = _names(datasets[title])
        done = completions(mine)
        said = ", ".join(f"{flow} {at:.1f} s" for flow, at in sorted(done.items()))
        heading = f"{title}. Complete: {said}; together {sum(done.values()):.1f} s"
        charts.append(_schedule(title, heading, figure.axis, end, title == titles[-1]))
    order = ", ".join(dict.fromkeys(row["flow"] for row in rows))
    sentence = f"Slots held over time, stacked in order of the flows' deadlines: {order}."
    chart = alt.vconcat(*charts, spacing=14).properties(title=title_of(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def _schedule(name: str, heading: str, axis: str, end: float, is_last: bool) -> Any:
    x = time_axis("start", axis if is_last else None, end)
    y = slots_axis("low", SLOTS)
    base = alt.Chart(source(name)).mark_rect(strokeWidth=0.7, opacity=1)
    names = alt.Chart(source(f"{name} names")).mark_text(fontSize=11, fontWeight="bold")
    text = alt.Color(field="text", type="nominal", scale=None)
    colour = alt.Color(field="colour", type="nominal", scale=None)
    edge = alt.Stroke(field="colour", type="nominal", scale=None)  # Hides seams.
    return alt.layer(
        base.encode(
            x=x, x2=alt.X2(field="end"), y=y, y2=alt.Y2(field="high"), color=colour, stroke=edge
        ),
        names.encode(
            x=time_axis("x", axis if is_last else None, end),
            y=slots_axis("y", SLOTS),
            text="name:N",
            color=text,
        ),
    ).properties(width=770, height=130, title=small_title(heading))


def _tinted(rows: Sequence[Row]) -> Rows:
    """The rectangles with the colours of their flows, lighter or darker by their numbers."""
    tints = [TINTS[int(row["name"][1:]) - 1] for row in rows]
    return [
        dict(row)
        | {
            "colour": tinted(FLOW_COLOURS[row["flow"]], tint),
            "text": INK if tint >= LIGHT else "white",
        }
        for row, tint in zip(rows, tints, strict=True)
    ]


def _names(rows: Sequence[Row]) -> Rows:
    """A name in the largest rectangle of each phase, if it is large enough."""
    largest: dict[str, Row] = {}
    for row in rows:
        if _area(row) > _area(largest.get(row["name"])):
            largest[row["name"]] = row
    return [named(row) for row in largest.values() if _area(row) >= LABEL_AREA]


def _area(row: Row | None) -> float:
    if row is None:
        return -inf
    return float((row["high"] - row["low"]) * (row["end"] - row["start"]))
