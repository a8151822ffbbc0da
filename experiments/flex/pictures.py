"""The pictures of the FLEX figures; they need the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from experiments.ratios import BEST_ORDER, BOUND, RatioFigure, RatioRow
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import BAD, MUTED, RULE, RUNS, number

COLOURS = {"fifo": RUNS[1], "fair": RUNS[0], "flex": RUNS[2]}
LABELS = {"fifo": "FIFO", "fair": "FAIR", "flex": "FLEX"}

CUT = 10.0
"""Ratios above this are drawn as arrows, with the number next to them."""

DIGITS = 6
"""Decimal places: smaller differences are rounding errors, and would stretch the axis."""

_LEAST = 0.88  # The axis of ratios begins here: FLEX can do better than the best order.
_DASH = [5, 4]

HEIGHT, HEIGHT_CLOSER, LABEL_HEIGHT = 300, 130, 14
"""Sizes of the two parts of a picture and of a label, in pixels."""


def draw_lines(figure: RatioFigure, rows: Sequence[RatioRow]) -> Picture:
    """Ratios over a numeric axis, and below it FLEX alone, enlarged."""
    by_order = [
        part
        for row in rows
        if row.yardstick == BEST_ORDER
        for part in _points(row, LABELS[row.scheme], COLOURS[row.scheme], 0.0, 1.0)
    ]
    near = {BEST_ORDER: COLOURS["flex"], BOUND: BAD}
    closer = [
        part
        for row in rows
        if row.scheme == "flex"
        for part in _points(row, f"by the {row.yardstick}", near[row.yardstick], 1.0, 100.0)
    ]
    published = [
        {"x": said.x, "y": ratio, "colour": COLOURS[said.scheme]}
        for said in figure.published
        for ratio in (said.mean, said.worst)
    ]
    tops = _extent([*by_order, *published])
    datasets = {
        "ratios": by_order,
        "ratios_ends": _ends(by_order, tops, HEIGHT),
        "published": published,
        "closer": closer,
        "closer_ends": _ends(closer, _extent(closer), HEIGHT_CLOSER),
    }
    ratios = _lines(
        "ratios", figure, by_order, tops, HEIGHT, "ratio to the best priority order"
    )
    sentence = "The mean of all experiments is drawn solid, the worst of them dashed."
    if published:
        ratios = alt.layer(ratios, _diamonds("published"))
        sentence += " Diamonds are the paper's numbers."
    below = _lines(
        "closer",
        figure,
        closer,
        _extent(closer),
        HEIGHT_CLOSER,
        "FLEX above the reference (%)",
    )
    chart = alt.vconcat(ratios, below, spacing=24).properties(
        title=_heading(figure.title, sentence)
    )
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def draw_metrics(figure: RatioFigure, rows: Sequence[RatioRow]) -> Picture:
    """Ratios of each metric on a logarithmic axis, by the best order and by the bound."""
    panels = {"order": (BEST_ORDER, "ratio to the best priority order")}
    panels["bound"] = (BOUND, "ratio to the optimum, or to its lower bound")
    datasets = {
        name: [_span(row) for row in rows if row.yardstick == yardstick and row.mean]
        for name, (yardstick, _) in panels.items()
    }
    metrics = list(dict.fromkeys(str(row.x) for row in rows))
    datasets["bands"] = [{"metric": metric} for metric in metrics[::2]]
    charts = [
        _spans(name, title, metrics, is_first=name == "order")
        for name, (_, title) in panels.items()
    ]
    sentence = (
        "Dots: means of all experiments; lines end at the worst."
        f" Ratios above {CUT:.0f} are cut off and given as numbers."
    )
    chart = alt.hconcat(*charts, spacing=20).properties(title=_heading(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def _heading(title: str, sentence: str) -> alt.TitleParams:
    return alt.TitleParams(
        title, subtitle=sentence, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )


def _points(row: RatioRow, name: str, colour: str, zero: float, unit: float) -> Rows:
    """The mean and the worst of a row as points of two lines."""
    if row.mean is None or row.worst is None:
        return []
    return [
        {
            "x": row.x,
            "y": round(unit * (y - zero), DIGITS),
            "name": name,
            "colour": colour,
            "which": which,
        }
        for which, y in (("mean", row.mean), ("worst", row.worst))
    ]


def _ends(points: Rows, extent: tuple[float, float], height: int) -> Rows:
    """The label of each line at its end; lines that meet there share one.

    Labels that would still overlap are moved up.
    """
    line = LABEL_HEIGHT / height * (extent[1] - extent[0])
    ends = {
        (p["name"], p["which"]): p | {"label": f"{p['name']}, {p['which']}"} for p in points
    }
    for name in dict.fromkeys(p["name"] for p in points):
        mean, worst = ends[name, "mean"], ends[name, "worst"]
        if worst["y"] - mean["y"] < line:
            mean["label"] = f"{name}, mean and worst"
            del ends[name, "worst"]
    labels = sorted(ends.values(), key=lambda end: float(end["y"]))
    for below, above in pairwise(labels):
        above["y"] = max(above["y"], below["y"] + line)
    return labels


def _extent(points: Rows) -> tuple[float, float]:
    """The range of the y axis. It is at least a tenth, even if all values are nearly equal."""
    low, high = (extreme((p["y"] for p in points), default=0.0) for extreme in (min, max))
    return low, max(high, low + 0.1)


def _diamonds(name: str) -> Any:
    mark = alt.Chart(source(name)).mark_point(
        shape="diamond", size=70, fill="white", strokeWidth=1.5, opacity=1
    )
    return mark.encode(
        x=alt.X(field="x", type="quantitative"),
        y=alt.Y(field="y", type="quantitative"),
        stroke=alt.Stroke(field="colour", type="nominal", scale=None),
    )


def _lines(
    name: str,
    figure: RatioFigure,
    points: Rows,
    extent: tuple[float, float],
    height: int,
    title: str,
) -> Any:
    x = alt.X(
        field="x",
        type="quantitative",
        title=figure.axis,
        scale=alt.Scale(type="log" if figure.is_log else "linear", nice=False, zero=False),
        axis=alt.Axis(grid=False, values=sorted({p["x"] for p in points})),
    )
    heights = alt.Scale(domain=list(extent), zero=False, nice=True)
    y = alt.Y(field="y", type="quantitative", title=title, scale=heights)
    colour = alt.Color(field="colour", type="nominal", scale=None)
    dash = alt.StrokeDash(
        field="which",
        type="nominal",
        scale=alt.Scale(domain=["mean", "worst"], range=[[1, 0], _DASH]),
        legend=None,
    )
    lines = alt.Chart(source(name)).encode(
        x=x, y=y, color=colour, strokeDash=dash, detail="name:N"
    )
    texts = alt.Chart(source(f"{name}_ends")).encode(x=x, y=y, color=colour, text="label:N")
    return alt.layer(
        lines.mark_line(strokeWidth=2),
        texts.mark_text(align="left", dx=8, fontSize=11),
    ).properties(width=520, height=height)


def _span(row: RatioRow) -> dict[str, Any]:
    assert row.mean is not None
    assert row.worst is not None
    beyond = row.worst > CUT
    return {
        "metric": row.x,
        "scheme": LABELS[row.scheme],
        "mean": min(max(row.mean, _LEAST), CUT),
        "worst": min(max(row.worst, _LEAST), CUT),
        "cut": f"{number(row.mean)}, worst {number(row.worst)}" if beyond else "",
    }


def _spans(name: str, title: str, metrics: list[str], is_first: bool) -> Any:
    schemes = list(LABELS.values())
    rows = alt.Scale(domain=metrics, paddingInner=0.2, paddingOuter=0.1)
    axis = alt.Axis(ticks=False, domain=False, labelLimit=170, labelPadding=10)
    y = alt.Y(
        field="metric",
        type="nominal",
        sort=None,
        title=None,
        scale=rows,
        axis=axis if is_first else None,
    )
    offset = alt.YOffset(field="scheme", type="nominal", scale=alt.Scale(domain=schemes))
    scale = alt.Scale(type="log", domain=[_LEAST, CUT], nice=False)
    ticks = alt.Axis(values=[1, 1.5, 2, 3, 5, CUT], format="~g")
    x = alt.X(field="mean", type="quantitative", title=title, scale=scale, axis=ticks)
    end = alt.X(field="worst", type="quantitative")
    colours = alt.Scale(domain=schemes, range=list(COLOURS.values()))
    legend = alt.Legend(title=None, symbolType="circle", symbolOpacity=1, orient="top")
    colour = alt.Color(field="scheme", type="nominal", scale=colours, legend=legend)
    base = alt.Chart(source(name)).encode(y=y, yOffset=offset, color=colour)
    bands = alt.Chart(source("bands")).mark_bar(color=RULE, opacity=0.28, height={"band": 1.25})
    return alt.layer(
        bands.encode(y=y),
        base.mark_rule(strokeWidth=2, opacity=0.55).encode(x=x, x2="worst"),
        base.mark_tick(thickness=2, bandSize=8).encode(x=end),
        base.mark_circle(size=48, opacity=1).encode(x=x),
        base.mark_text(align="left", dx=6, fontSize=9).encode(x=end, text="cut:N"),
    ).properties(width=330, height=42 * len(metrics))
