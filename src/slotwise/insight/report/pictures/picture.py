"""The class of pictures, and their common style, axes and colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt

from slotwise.insight.report.reported import Scene
from slotwise.insight.report.text import INK, MUTED, RULE

WIDTH = 770
"""Width in pixels of plots with the common time axis; with labels and legend they fit in a
window of 1,200 pixels."""

COLUMNS = 240
"""Data with more changes over time are drawn as means over this number of intervals."""

MAX_LEGEND = 20
"""Pictures with more jobs have no legend, because its colours could not be distinguished."""

_SHORT = (
    "length(datum.label) > 19"
    " ? slice(datum.label, 0, 9) + '…' + slice(datum.label, -9) : datum.label"
)
"""Shortens long names in the middle, because names often differ only at their ends."""

_LABELS = 130
_FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart with its data rows and caption. `name` is the stem of its files."""

    name: str
    title: str
    sentence: str
    chart: alt.TopLevelMixin
    rows: dict[str, Rows]

    def spec(self) -> dict[str, Any]:
        """The whole picture as a Vega-Lite specification without URLs."""
        spec: dict[str, Any] = self.chart.configure(**_config()).to_dict(validate=False)
        del spec["$schema"]
        return spec | {"datasets": self.rows}


def source(name: str) -> alt.NamedData:
    """The rows with this name in the picture."""
    return alt.NamedData(name=name)


def time_axis(scene: Scene, field: str, is_last: bool = True) -> alt.X:
    """The common time axis; only the last chart of a column has an axis title."""
    title = f"time ({scene.unit.symbol})" if is_last else None
    return alt.X(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=scene.domain, nice=False, zero=False, clamp=True),
        axis=alt.Axis(grid=True, tickCount=10),
    )


def row_axis(rows: list[str]) -> alt.Y:
    """One row for each name, in this order, including empty rows.

    The domain defines the order. A `sort` would put names from users into an expression, which
    is code.
    """
    return alt.Y(
        field="row",
        type="nominal",
        title=None,
        sort=None,
        scale=alt.Scale(domain=rows, padding=0.12),
        axis=label_axis(ticks=False, domain=False),
    )


def spans(scene: Scene, rows: list[str], is_last: bool = True) -> dict[str, Any]:
    """The channels of marks from `start` to `end` in rows."""
    return {"x": time_axis(scene, "start", is_last), "x2": "end", "y": row_axis(rows)}


def label_axis(**options: Any) -> alt.Axis:
    """A y axis with labels of the same width in every picture, so that time axes align."""
    return alt.Axis(
        minExtent=_LABELS,
        maxExtent=_LABELS,
        labelLimit=_LABELS - 8,
        labelExpr=_SHORT,
        **options,
    )


def legend(title: str, **options: Any) -> alt.Legend:
    """A legend of shortened names. Tooltips have the full names."""
    return alt.Legend(title=title, labelExpr=_SHORT, **options)


def palette(of_names: Mapping[str, str]) -> alt.Scale:
    """The scale that gives each name its colour or shape."""
    return alt.Scale(domain=list(of_names), range=list(of_names.values()))


def job_colour(scene: Scene) -> alt.Color:
    """The colour of the job, with a legend if there are few jobs."""
    if len(scene.jobs) > MAX_LEGEND:
        return alt.Color(field="colour", type="nominal", scale=None)
    names = legend("job", symbolType="square", symbolOpacity=1)
    return alt.Color(
        field="job", type="nominal", legend=names, scale=palette(scene.job_colours)
    )


def coloured(scene: Scene, job: str) -> dict[str, str]:
    """The fields of a row that `job_colour` reads."""
    if len(scene.jobs) <= MAX_LEGEND:
        return {"job": job}
    return {"job": job, "colour": scene.job_colours[job]}


def tooltip(**fields: str) -> list[alt.Tooltip]:
    """A tooltip from field=title. A title with "(" marks a number with a unit."""
    return [
        alt.Tooltip(field=field, type="quantitative", title=title, format=",.4~r")
        if "(" in title
        else alt.Tooltip(field=field, type="nominal", title=title)
        for field, title in fields.items()
    ]


def under_each_other(scene: Scene, charts: list[Any]) -> alt.VConcatChart:
    """One chart per run, titled with its name, on a common time axis."""
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
