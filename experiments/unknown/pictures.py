"""The picture of unknown sizes: ratios to FAIR and to FLEX that knows, by load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from experiments.unknown.experiment import Knower
from experiments.unknown.row import ALL, UnknownRow
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import MUTED, job_colours

CUT = 1.7
"""Larger ratios are not drawn, since the others would lie on one line."""

SENTENCE = (
    "Dots: the geometric mean over the draws of all workloads; circles: the worst draw."
    f" Ratios above {CUT:g} are in the table only."
)

WIDTH, HEIGHT = 330, 300
"""Size of each panel in pixels."""

PANELS = {"fair": "mean response / that of FAIR", "flex": "mean response / FLEX that knows"}


def draw_ratios(name: str, title: str, rows: Sequence[UnknownRow]) -> Picture:
    """Two panels, each with a line for an allocator and its knowledge."""
    shown = [row for row in rows if row.workload == ALL and row.load != ALL]
    names = list(dict.fromkeys(_name(row) for row in shown))
    loads = sorted({float(row.load) for row in shown})
    datasets: dict[str, Rows] = {panel: _points(shown, panel) for panel in PANELS}
    least = min(point["mean"] for points in datasets.values() for point in points) - 0.02
    charts = [
        _panel(panel, axis, names, loads, least).properties(width=WIDTH, height=HEIGHT)
        for panel, axis in PANELS.items()
    ]
    heading = alt.TitleParams(
        title, subtitle=SENTENCE, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = alt.hconcat(*charts, spacing=24).properties(title=heading)
    return Picture(name, title, SENTENCE, chart, datasets)


def _name(row: UnknownRow) -> str:
    return str(Knower(row.allocator, row.knowledge))


def _points(rows: Sequence[UnknownRow], panel: str) -> Rows:
    return [
        {
            "x": row.load,
            "name": _name(row),
            "mean": getattr(row, f"by_{panel}"),
            "worst": getattr(row, f"by_{panel}_worst"),
        }
        for row in rows
    ]


def _panel(panel: str, axis: str, names: list[str], loads: list[float], least: float) -> Any:
    x = alt.X(
        field="x",
        type="quantitative",
        title="load",
        scale=alt.Scale(domain=[loads[0] - 0.03, loads[-1] + 0.03], nice=False, zero=False),
        axis=alt.Axis(grid=False, values=loads, format=".2~f"),
    )
    scale = alt.Scale(domain=names, range=list(job_colours(names).values()))
    legend = alt.Legend(title=None, orient="top", columns=3, symbolType="circle")
    colour = alt.Color(field="name", type="nominal", scale=scale, legend=legend)
    base = alt.Chart(source(panel)).encode(x=x, color=colour)
    ratio = alt.Scale(domain=[least, CUT], nice=False, zero=False)
    mean = alt.Y(field="mean", type="quantitative", title=axis, scale=ratio)
    worst = alt.Y(field="worst", type="quantitative", title=axis, scale=ratio)
    return alt.layer(
        base.mark_line(strokeWidth=2, clip=True).encode(y=mean),
        base.mark_circle(size=45, opacity=1, clip=True).encode(y=mean),
        base.mark_point(size=35, filled=False, clip=True).encode(y=worst),
    )
