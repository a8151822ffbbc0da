"""The pictures of the figures of the delay scheduling slides; they need the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.slides.figure import GAIN, WITH, WITHOUT
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, MUTED, RUNS

if TYPE_CHECKING:
    from experiments.figure import Figure, Row
    from experiments.slides.figure import SlidesFigure, SlidesRow

COLOURS = {
    f"FIFO, {WITHOUT}": RUNS[1],
    f"FAIR, {WITHOUT}": RUNS[0],
    f"FIFO, {WITH}": RUNS[3],
    f"FAIR, {WITH}": RUNS[2],
    WITHOUT: RUNS[0],
    WITH: RUNS[2],
    "persist": RUNS[2],
    "restart": RUNS[3],
}
TRAFFIC = {"from other racks": RUNS[1], "from hosts of the same rack": RUNS[4]}

WIDTH, HEIGHT = 520, 300
"""Sizes of a picture's plots together and of each, in pixels."""


def draw_localities(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    """Locality at the node over a logarithmic axis, with the values of formulas dashed."""
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    points = [
        {"x": row.x, "y": 100 * row.node, "scheme": row.scheme, **_range(row)} for row in rows
    ]
    expected = {
        (row.scheme.split(", ")[-1], row.x): {"x": row.x, "y": 100 * row.expected_node}
        for row in rows
        if row.expected_node is not None
    }
    formulas = [{"wait": wait, **point} for (wait, _), point in expected.items()]
    sentence = "Means of all experiments with a standard error; dashed: the formula."
    x = _log_axis(figure.axis, rows)
    y = _y("maps on a host of their input (%)", [0, 100])
    base = alt.Chart(source("points")).encode(x=x, color=_colour(schemes, COLOURS))
    dashed = alt.Chart(source("formulas")).mark_line(strokeDash=[5, 4], color=MUTED)
    low, high = alt.Y(field="low", type="quantitative"), alt.Y2(field="high")
    chart = alt.layer(
        dashed.encode(x=x, y=y, detail="wait:N"),
        base.mark_rule(strokeWidth=1.5).encode(y=low, y2=high),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_circle(size=42, opacity=1).encode(y=y),
    ).properties(width=WIDTH, height=HEIGHT, title=_heading(figure.title, sentence))
    return Picture(
        figure.name, figure.title, sentence, chart, {"points": points, "formulas": formulas}
    )


def draw_gains(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    """Both localities of each type of job as bars, with the slides' numbers as diamonds."""
    datasets: dict[str, Rows] = {"node": [], "rack": []}
    for row in rows:
        for level, part, said in (
            ("node", row.node, row.slides_node),
            ("rack", row.rack, row.slides_rack),
        ):
            assert said is not None
            datasets[level].append(
                {
                    "type": row.x,
                    "scheme": row.scheme,
                    "y": 100 * part,
                    "said": 100 * said,
                    "label": f"{100 * part:.0f}",
                    "top": 100 * max(part, said),
                }
            )
    types = list(dict.fromkeys(str(row.x) for row in rows))
    titles = {
        "node": "maps on a host of their input (%)",
        "rack": "maps in a rack of their input (%)",
    }
    sentence = "Bars are means of all experiments; diamonds are the slides' numbers."
    charts = [_bars(level, title, types) for level, title in titles.items()]
    chart = alt.hconcat(*charts, spacing=24).properties(title=_heading(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def draw_levels(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    """Node locality and mean response of each type of job as bars, one for each setting."""
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    datasets: dict[str, Rows] = {
        "node": [{"type": r.x, "scheme": r.scheme, "y": 100 * r.node} for r in rows],
        "response": [{"type": r.x, "scheme": r.scheme, "y": r.response} for r in rows],
    }
    titles = {"node": "maps on a host of their input (%)", "response": "mean response (s)"}
    charts = []
    for name, title in titles.items():
        place = alt.X(field="type", type="nominal", title=None, axis=alt.Axis(labelAngle=-30))
        y = alt.Y(field="y", type="quantitative", title=title)
        bars = alt.Chart(source(name)).mark_bar()
        beside = bars.encode(x=place, y=y, xOffset="scheme:N", color=_colour(schemes, COLOURS))
        charts.append(beside.properties(width=WIDTH, height=HEIGHT - 60))
    sentence = "Means of all experiments."
    chart = alt.vconcat(*charts, spacing=24).properties(title=_heading(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def draw_throughputs(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    """Maps a second over the computing time of a map, a panel for each type of job."""
    names = list(dict.fromkeys(row.type for row in rows))
    found = {(row.type, row.x, row.scheme): row.maps_per_second for row in rows}
    top = max(found.values())
    datasets: dict[str, Rows] = {name: [] for name in names}
    for (name, x, scheme), y in found.items():
        gain = round(100 * (y / found[name, x, WITHOUT] - 1))
        label = f"{gain:+d} %" if scheme == WITH else ""
        datasets[name].append({"x": x, "y": y, "scheme": scheme, "gain": label})
    said = f"The slides: {100 * GAIN:.0f} %."
    sentence = f"Means of all experiments; above the upper line, the gain. {said}"
    charts = [_panel(name, figure.axis, top, name == names[0]) for name in names]
    chart = alt.hconcat(*charts, spacing=18).properties(title=_heading(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def draw_traffic(figure: Figure, rows: Sequence[Row]) -> Picture:
    """Bytes a second over time, without waiting above and with it below."""
    kinds = {
        "from hosts of the same rack": "rack_bytes_per_second",
        "from other racks": "core_bytes_per_second",
    }
    top = max(sum(row[column] for column in kinds.values()) for row in rows) / 1e9
    datasets: dict[str, Rows] = {WITHOUT: [], WITH: []}
    for row in rows:
        datasets[row["scheme"]] += [
            {"x": row["x"], "y": row[column] / 1e9, "kind": kind}
            for kind, column in kinds.items()
        ]
    sentence = "Remote reads of maps, stacked; means of all runs."
    charts = [_area(scheme, figure.axis, top, scheme == WITH) for scheme in datasets]
    chart = alt.vconcat(*charts, spacing=14).properties(title=_heading(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def _bars(level: str, title: str, types: list[str]) -> Any:
    axis = alt.Axis(labelAngle=0, ticks=False, domain=True)
    x = alt.X(field="type", type="nominal", title=None, sort=None, axis=axis)
    scale = alt.Scale(domain=[WITHOUT, WITH])
    offset = alt.XOffset(field="scheme", type="nominal", sort=None, scale=scale)
    y = _y(title, [0, 108])
    base = alt.Chart(source(level)).encode(x=x, xOffset=offset)
    top = alt.Y(field="top", type="quantitative")
    said = alt.Y(field="said", type="quantitative")
    diamonds = base.mark_point(
        shape="diamond", size=70, fill="white", stroke="black", opacity=1
    )
    return alt.layer(
        base.mark_bar().encode(y=y, color=_colour([WITHOUT, WITH], COLOURS)),
        base.mark_text(dy=-11, fontSize=10, color=INK).encode(y=top, text="label:N"),
        diamonds.encode(y=said),
    ).properties(width=100 * len(types), height=HEIGHT - 60)


def _panel(name: str, axis: str, top: float, is_first: bool) -> Any:
    x = alt.X(
        field="x",
        type="quantitative",
        title=axis,
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(grid=False),
    )
    y = _y("maps a second" if is_first else None, [0, 1.08 * top])
    base = alt.Chart(source(name)).encode(x=x, y=y, color=_colour([WITHOUT, WITH], COLOURS))
    return alt.layer(
        base.mark_line(strokeWidth=2),
        base.mark_circle(size=42, opacity=1),
        base.mark_text(dy=-10, dx=4, align="left", fontSize=10).encode(text="gain:N"),
    ).properties(width=220, height=HEIGHT - 60, title=alt.TitleParams(name, fontSize=12))


def _area(scheme: str, axis: str, top: float, is_last: bool) -> Any:
    x = alt.X(
        field="x",
        type="quantitative",
        title=axis if is_last else None,
        scale=alt.Scale(nice=False, zero=True),
        axis=alt.Axis(grid=False),
    )
    y = alt.Y(
        field="y",
        type="quantitative",
        title="gigabytes per second",
        stack="zero",
        scale=alt.Scale(domain=[0, top], nice=True),
    )
    base = alt.Chart(source(scheme)).mark_area(interpolate="step-after", opacity=1)
    chart = base.encode(x=x, y=y, color=_colour(list(TRAFFIC), TRAFFIC))
    return chart.properties(
        width=WIDTH, height=HEIGHT // 2 - 20, title=alt.TitleParams(scheme, fontSize=12)
    )


def _range(row: SlidesRow) -> dict[str, float]:
    error = row.node_error or 0.0
    return {"low": 100 * (row.node - error), "high": 100 * (row.node + error)}


def _log_axis(title: str, rows: Sequence[SlidesRow]) -> alt.X:
    return alt.X(
        field="x",
        type="quantitative",
        title=title,
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(grid=False, values=sorted({float(row.x) for row in rows}), format=",d"),
    )


def _y(title: str | None, domain: list[float]) -> alt.Y:
    scale = alt.Scale(domain=domain, nice=False)
    return alt.Y(field="y", type="quantitative", title=title, scale=scale)


def _colour(names: list[str], colours: dict[str, str]) -> alt.Color:
    scale = alt.Scale(domain=names, range=[colours[name] for name in names])
    field = "kind" if colours is TRAFFIC else "scheme"
    legend = alt.Legend(
        title=None, orient="top", symbolType="circle", symbolOpacity=1, labelLimit=200
    )
    return alt.Color(field=field, type="nominal", scale=scale, legend=legend)


def _heading(title: str, sentence: str) -> alt.TitleParams:
    return alt.TitleParams(
        title, subtitle=sentence, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
