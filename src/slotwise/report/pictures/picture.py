"""What a picture is, and what all of them share: look, axes, colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt

from slotwise.report.palette import INK, MUTED, RULE
from slotwise.report.scene import Scene

WIDTH = 770
"""Width of the plots that share the time axis, in pixels: with labels and legend they fit a
window of 1,200."""

LEGEND_MOST = 20
"""Pictures with more jobs than this leave out the legend: nobody could tell its colours."""

_LABELS = 130
_FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart with the rows that it draws. `name` is the stem of its files."""

    name: str
    title: str
    sentence: str
    chart: alt.TopLevelMixin
    rows: dict[str, Rows]

    def spec(self) -> dict[str, Any]:
        """The whole picture as a Vega-Lite specification without any address in it."""
        spec: dict[str, Any] = self.chart.configure(**_config()).to_dict()
        del spec["$schema"]
        return spec | {"datasets": self.rows}


def source(name: str) -> alt.NamedData:
    """The rows of that name in the picture."""
    return alt.NamedData(name=name)


def time_axis(scene: Scene, field: str, is_last: bool = True) -> alt.X:
    """The time axis, the same for all runs; only the last one of a column has a title."""
    title = f"time ({scene.unit.symbol})" if is_last else None
    return alt.X(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=scene.domain, nice=False, zero=False, clamp=True),
        axis=alt.Axis(grid=True, tickCount=10),
    )


def row_axis(rows: list[str]) -> alt.Y:
    """One row for each name, in this order, none missing.

    The domain alone gives the order: a `sort` would become part of an expression, and names
    of users have no place in code.
    """
    return alt.Y(
        field="row",
        type="nominal",
        title=None,
        sort=None,
        scale=alt.Scale(domain=rows, padding=0.12),
        axis=label_axis(ticks=False, domain=False),
    )


def label_axis(**options: Any) -> alt.Axis:
    """A y axis whose labels take the same room in every picture, so that times align."""
    return alt.Axis(minExtent=_LABELS, maxExtent=_LABELS, labelLimit=_LABELS - 8, **options)


def job_colour(scene: Scene) -> alt.Color:
    """The colour of the job; with a legend while there are few."""
    if len(scene.jobs) > LEGEND_MOST:
        return alt.Color(field="colour", type="nominal", scale=None)
    scale = alt.Scale(domain=list(scene.job_colours), range=list(scene.job_colours.values()))
    legend = alt.Legend(title="job", symbolType="square", symbolOpacity=1)
    return alt.Color(field="job", type="nominal", legend=legend, scale=scale)


def coloured(scene: Scene, job: str) -> dict[str, str]:
    """The fields of a row that `job_colour` reads."""
    if len(scene.jobs) <= LEGEND_MOST:
        return {"job": job}
    return {"job": job, "colour": scene.job_colours[job]}


def tooltip(**fields: str) -> list[alt.Tooltip]:
    """A tooltip: field=title. A title with "(" in it is that of a number with its unit."""
    return [
        alt.Tooltip(field=field, type="quantitative", title=title, format=",.4~r")
        if "(" in title
        else alt.Tooltip(field=field, type="nominal", title=title)
        for field, title in fields.items()
    ]


def under_each_other(scene: Scene, charts: list[Any]) -> alt.VConcatChart:
    """One chart a run, titled with its name, all on the same time axis."""
    titled = [
        chart.properties(title=name) for chart, name in zip(charts, scene.names, strict=True)
    ]
    chart: alt.VConcatChart = alt.vconcat(*titled, spacing=26)
    return chart


def _config() -> dict[str, Any]:
    text = {"labelColor": INK, "titleColor": MUTED, "titleFontWeight": "normal"}
    axis = {"gridColor": RULE, "domainColor": RULE, "tickColor": RULE, "gridOpacity": 0.7}
    return {
        "font": _FONT,
        "background": "white",
        "padding": 6,
        "view": {"stroke": None},
        "axis": {**text, **axis, "labelPadding": 6, "labelFontSize": 11, "titleFontSize": 11},
        "legend": {**text, "orient": "right", "symbolSize": 90, "labelLimit": 105},
        "title": {"color": INK, "fontSize": 13, "anchor": "start", "offset": 8},
    }
