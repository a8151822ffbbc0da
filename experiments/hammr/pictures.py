"""The picture of shares over time: stacked areas, one panel for each backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from experiments.figure import Row
from experiments.hammr.experiment import COMES, POOLS, SLOTS
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, MUTED, RUNS

COLOURS = dict(zip(POOLS, RUNS, strict=False))

SPARE = 55.0
"""When the paper's pool A gets a spare slot, in seconds."""

SENTENCE = (
    "Slots held, stacked; live times are scaled to the paper's. Dashed: the arrival of C, and"
    " when A gets a spare slot in the paper."
)

WIDTH, HEIGHT = 380, 220


def draw_shares(
    name: str, title: str, axis: str, panels: Mapping[str, Sequence[Row]]
) -> Picture:
    """A panel for each of these courses, on the same axes."""
    end = max(row["seconds"] for rows in panels.values() for row in rows)
    datasets: dict[str, Rows] = {"marks": [{"seconds": COMES}, {"seconds": SPARE}]}
    charts = []
    for number, (panel, rows) in enumerate(panels.items()):
        datasets[panel] = _stacked(rows)
        charts.append(_panel(panel, axis, end, is_first=number == 0))
    heading = alt.TitleParams(
        title, subtitle=SENTENCE, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = alt.hconcat(*charts, spacing=22).properties(title=heading)
    return Picture(name, title, SENTENCE, chart, datasets)


def _stacked(rows: Sequence[Row]) -> Rows:
    """A rectangle for each pool and each interval without changes."""
    rectangles = []
    for row, later in pairwise(rows):
        low = 0.0
        for pool in POOLS:
            high = low + row[pool]
            if high > low:
                rectangles.append(
                    {
                        "pool": pool,
                        "from": row["seconds"],
                        "to": later["seconds"],
                        "low": low,
                        "high": high,
                    }
                )
            low = high
    return rectangles


def _panel(key: str, axis: str, end: float, is_first: bool) -> Any:
    x = alt.X(
        field="from",
        type="quantitative",
        title=axis,
        scale=alt.Scale(domain=[0, end], nice=False),
        axis=alt.Axis(grid=False, tickCount=8),
    )
    y = alt.Y(
        field="low",
        type="quantitative",
        title="slots" if is_first else None,
        scale=alt.Scale(domain=[0, SLOTS], nice=False),
        axis=alt.Axis(tickMinStep=1),
    )
    colour = alt.Color(
        field="pool",
        type="nominal",
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
        legend=alt.Legend(title="pool", orient="right", symbolType="square"),
    )
    areas = alt.Chart(source(key)).mark_rect(opacity=0.85)
    marks = alt.Chart(source("marks")).mark_rule(strokeDash=[4, 3], color=INK)
    return alt.layer(
        areas.encode(x=x, x2=alt.X2(field="to"), y=y, y2=alt.Y2(field="high"), color=colour),
        marks.encode(x=alt.X(field="seconds", type="quantitative")),
    ).properties(width=WIDTH, height=HEIGHT, title=alt.TitleParams(key, fontSize=12, offset=6))
