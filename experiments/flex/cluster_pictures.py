"""The pictures of the cluster figures: mean response under FAIR and FLEX, panel by panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import MUTED, RUNS

if TYPE_CHECKING:
    from experiments.flex.cluster_row import ClusterRow

COLOURS = {"FAIR": RUNS[0], "FLEX": RUNS[2]}

SENTENCE = (
    "Means of all experiments with one standard deviation;"
    " below FLEX: its improvement over FAIR."
)

WIDTH, HEIGHT = 520, 280
"""Sizes of all panels together, and of each, in pixels."""

MIN_WIDTH = 240


def draw_responses(name: str, title: str, axis: str, rows: Sequence[ClusterRow]) -> Picture:
    """Two lines over the axis, in a panel for each case, all on the same y axis."""
    panels = list(dict.fromkeys(row.panel for row in rows))
    top = max(row.fair + row.fair_deviation for row in rows)
    datasets = {}
    charts = []
    for number, panel in enumerate(panels):
        key = f"panel_{number}"
        datasets[key] = [part for row in rows if row.panel == panel for part in _points(row)]
        chart = _panel(key, axis, top, sorted({row.x for row in rows}), number == 0)
        width = max(MIN_WIDTH, WIDTH // len(panels))
        properties: dict[str, Any] = {"width": width, "height": HEIGHT}
        if panel:
            properties["title"] = alt.TitleParams(panel, fontSize=12, offset=6)
        charts.append(chart.properties(**properties))
    heading = alt.TitleParams(
        title, subtitle=SENTENCE, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = alt.hconcat(*charts, spacing=18).properties(title=heading)
    return Picture(name, title, SENTENCE, chart, datasets)


def _points(row: ClusterRow) -> Rows:
    values = (("FAIR", row.fair, row.fair_deviation), ("FLEX", row.flex, row.flex_deviation))
    return [
        {
            "x": row.x,
            "scheme": scheme,
            "y": value,
            "low": value - deviation,
            "high": value + deviation,
            "better": f"{100 * row.better:.0f} %" if scheme == "FLEX" else "",
        }
        for scheme, value, deviation in values
    ]


def _panel(key: str, axis: str, top: float, places: list[float], is_first: bool) -> Any:
    room = 0.06 * (places[-1] - places[0])
    x = alt.X(
        field="x",
        type="quantitative",
        title=axis,
        scale=alt.Scale(domain=[places[0] - room, places[-1] + room], nice=False, zero=False),
        axis=alt.Axis(grid=False, values=places, format="~g"),
    )
    y = alt.Y(
        field="y",
        type="quantitative",
        title="mean response (min)" if is_first else None,
        scale=alt.Scale(domain=[0, top], nice=True),
    )
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    legend = alt.Legend(title=None, orient="top", symbolType="circle", symbolOpacity=1)
    colour = alt.Color(field="scheme", type="nominal", scale=scale, legend=legend)
    base = alt.Chart(source(key)).encode(x=x, color=colour)
    low, high = alt.Y(field="low", type="quantitative"), alt.Y2(field="high")
    return alt.layer(
        base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(y=low, y2=high),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_circle(size=45, opacity=1).encode(y=y),
        base.mark_text(dy=11, fontSize=10).encode(y=low, text="better:N"),
    )
