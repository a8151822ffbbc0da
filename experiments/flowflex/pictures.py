"""The pictures of the FlowFlex figures: bars. They need the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.flowflex.experiment import ALONE, FLOWFLEX
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import MUTED, RULE, RUNS, number

if TYPE_CHECKING:
    from experiments.flowflex.rows import FlowClusterRow, FlowRow

LABELS = {
    FLOWFLEX: "FlowFlex",
    ALONE: "the paper's method alone",
    "fair": "FAIR",
    "fifo": "FIFO",
}
COLOURS = dict(zip(LABELS.values(), (RUNS[2], RUNS[4], RUNS[0], RUNS[1]), strict=True))

CUT = 10.0
"""Bars are cut here; the values are written next to all bars."""

BAR, WIDTH = 13, 300
"""The height of a bar and the width of a panel, in pixels."""


def draw_ratios(name: str, title: str, rows: Sequence[FlowRow]) -> Picture:
    """Ratios to the best bound on a logarithmic axis from 1: the average, and next to it the
    worst."""
    panels = {"average": "average ratio to the bound", "worst": "worst ratio to the bound"}
    metrics = list(dict.fromkeys(row.metric for row in rows))
    datasets = {
        "average": [_bar(row, row.mean) for row in rows],
        "worst": [_bar(row, row.worst) for row in rows],
        "bands": [{"metric": metric} for metric in metrics[::2]],
    }
    charts = [_panel(key, said, metrics, key == "average") for key, said in panels.items()]
    sentence = (
        f"Of {rows[0].experiments} experiments. No schedule has a ratio below 1."
        f" Bars that end at {CUT:.0f} are cut off there."
    )
    heading = alt.TitleParams(
        title, subtitle=sentence, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = alt.hconcat(*charts, spacing=34).properties(title=heading)
    return Picture(name, title, sentence, chart, datasets)


def draw_improvements(name: str, title: str, rows: Sequence[FlowClusterRow]) -> Picture:
    """The gain of FlowFlex over FAIR and FIFO: a panel for each way of arrival."""
    ways = list(dict.fromkeys(row.arrivals for row in rows))
    metrics = list(dict.fromkeys(row.metric for row in rows))
    datasets = {
        f"way_{n}": [bar for row in rows if row.arrivals == way for bar in _better(row)]
        for n, way in enumerate(ways)
    }
    ends = [bar[end] for bars in datasets.values() for bar in bars for end in ("least", "most")]
    extent = (min(0.0, *ends), max(ends))
    charts = [
        _improvements(f"way_{n}", f"flows arrive {way}", metrics, extent, n == 0)
        for n, way in enumerate(ways)
    ]
    sentence = (
        f"Means of {rows[0].sets} sets of flows; lines show their range."
        " FlowFlex plans for the metric that is measured."
    )
    heading = alt.TitleParams(
        title, subtitle=sentence, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = alt.hconcat(*charts, spacing=24).properties(title=heading)
    return Picture(name, title, sentence, chart, datasets)


def _better(row: FlowClusterRow) -> Rows:
    """The bars of a row, in percent."""
    over = {
        "over FAIR": (row.better_fair, row.better_fair_least, row.better_fair_most),
        "over FIFO": (row.better_fifo, row.better_fifo_least, row.better_fifo_most),
    }
    return [
        {
            "metric": row.metric,
            "scheme": name,
            "better": 100 * mean,
            "least": 100 * least,
            "most": 100 * most,
            "base": 0.0,
            "written": f"{100 * mean:.0f} %",
        }
        for name, (mean, least, most) in over.items()
    ]


def _improvements(
    key: str, title: str, metrics: list[str], extent: tuple[float, float], is_first: bool
) -> Any:
    names = {"over FAIR": RUNS[0], "over FIFO": RUNS[1]}
    x = alt.X(
        field="metric", type="nominal", sort=None, title=None, axis=alt.Axis(labelAngle=0)
    )
    offset = alt.XOffset(field="scheme", type="nominal", scale=alt.Scale(domain=list(names)))
    y = alt.Y(
        field="base",
        type="quantitative",
        title="FlowFlex is better by (%)" if is_first else None,
        scale=alt.Scale(domain=list(extent), nice=True),
    )
    colours = alt.Scale(domain=list(names), range=list(names.values()))
    legend = alt.Legend(title=None, orient="top", symbolType="square")
    colour = alt.Color(field="scheme", type="nominal", scale=colours, legend=legend)
    base = alt.Chart(source(key)).encode(x=x, xOffset=offset)
    most = alt.Y(field="most", type="quantitative")
    return alt.layer(
        base.mark_bar(opacity=1).encode(y=y, y2="better", color=colour),
        base.mark_rule(strokeWidth=1.5).encode(
            y=alt.Y(field="least", type="quantitative"), y2="most"
        ),
        base.mark_text(dy=-7, fontSize=10).encode(y=most, text="written:N"),
    ).properties(width=95 * len(metrics), height=260, title=alt.TitleParams(title, fontSize=12))


def _bar(row: FlowRow, ratio: float) -> dict[str, Any]:
    written = f"{ratio:.2f}" if ratio < CUT else number(ratio)
    return {
        "metric": row.metric,
        "scheme": LABELS[row.scheme],
        "ratio": min(max(ratio, 1.0), CUT),
        "base": 1.0,
        "written": written,
    }


def _panel(key: str, title: str, metrics: list[str], is_first: bool) -> Any:
    schemes = list(LABELS.values())
    axis = alt.Axis(ticks=False, domain=False, labelLimit=190, labelPadding=10)
    y = alt.Y(
        field="metric",
        type="nominal",
        sort=None,
        title=None,
        scale=alt.Scale(domain=metrics, paddingInner=0.25, paddingOuter=0.15),
        axis=axis if is_first else None,
    )
    offset = alt.YOffset(field="scheme", type="nominal", scale=alt.Scale(domain=schemes))
    x = alt.X(
        field="base",
        type="quantitative",
        title=title,
        scale=alt.Scale(type="log", domain=[1, CUT], nice=False),
        axis=alt.Axis(values=[1, 1.25, 1.5, 2, 3, 5, CUT], format="~g"),
    )
    end = alt.X(field="ratio", type="quantitative")
    colours = alt.Scale(domain=schemes, range=[COLOURS[scheme] for scheme in schemes])
    legend = alt.Legend(title=None, orient="top", symbolType="square", labelLimit=220)
    colour = alt.Color(field="scheme", type="nominal", scale=colours, legend=legend)
    base = alt.Chart(source(key)).encode(y=y, yOffset=offset)
    bands = alt.Chart(source("bands")).mark_bar(color=RULE, opacity=0.28, height={"band": 1.25})
    return alt.layer(
        bands.encode(y=y),
        base.mark_bar(opacity=1).encode(x=x, x2="ratio", color=colour),
        base.mark_text(align="left", dx=4, fontSize=9).encode(x=end, text="written:N"),
    ).properties(width=WIDTH, height=(BAR * len(schemes) + 14) * len(metrics))
