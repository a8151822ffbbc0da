"""The picture of FlowFlex's second stage: deadlines by a minimum cost flow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import Any

import altair as alt

from experiments.figure import Figure, Row
from experiments.flowflex.stage_encoding import DASH, FLOW_COLOURS, NODE_AREA, title_of
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, MUTED, RULE

ROUNDING = 1e-9
"""Relative; an interval that ends within this of a whole second counts as ending with it."""

_FLOW_AT = {"B": 0.2, "C": 0.5, "A": 0.8}
"""Positions of the flows above the network, as fractions of its width."""


def draw_network(figure: Figure, rows: Sequence[Row]) -> Picture:
    """The network, its intervals grouped by seconds, and the work counted over time."""
    flows = {row["flow"]: row for row in rows}
    last = ceil(max(row["end"] for row in rows))
    middle = last / 2
    at = {flow: _FLOW_AT[flow] * last for flow in flows}
    sent: dict[tuple[str, int], float] = {}
    for row in rows:
        key = row["flow"], ceil(row["end"] * (1 - ROUNDING)) - 1
        sent[key] = sent.get(key, 0.0) + row["counted"]
    boxes: Rows = [
        {"x": n, "x2": n + 1.0, "y": -0.1, "y2": 0.1, "mid": n + 0.5} for n in range(last)
    ]
    datasets: dict[str, Rows] = {
        "boxes": boxes,
        "first": [{"x": middle, "y": 2.0, "x2": x, "y2": 1.25} for x in at.values()],
        "may": [
            {"x": x, "y": 1.25, "x2": second + 0.5, "y2": 0.1}
            for flow, x in at.items()
            for second in range(ceil(flows[flow]["soonest"]) - 1, last)
        ],
        "sent": [
            {"flow": flow, "x": at[flow], "y": 1.25, "x2": second + 0.5, "y2": 0.1}
            | {"width": counted}
            for (flow, second), counted in sent.items()
        ],
        "out": [{"x": box["mid"], "y": -0.1, "x2": middle, "y2": -0.85} for box in boxes],
        "back": [{"x": later["x"], "y": 0.0} for _, later in pairwise(boxes)],
        "flows": [
            {"flow": flow, "x": x, "y": 1.25, "label": f"{flows[flow]['work']:g} s of work"}
            for flow, x in at.items()
        ],
        "ends": [
            {"x": middle, "y": 2.0, "label": "source"},
            {"x": middle, "y": -0.85, "label": "sink"},
        ],
        "counted": _cumulated(rows, last),
        "half": [{"y": 0.5}],
        "due": [
            {
                "flow": flow,
                "x": row["deadline"],
                "y": 0.86,
                "label": f"{flow} due at {row['deadline']:.1f} s",
            }
            for flow, row in flows.items()
        ],
    }
    sentence = (
        "Grey: when a flow's work may count, from its least time on. Coloured: when it counts"
        " at least cost; the width is the work. A flow is due when half of it is counted."
        " Boxes are intervals of time, here by seconds; arrows: work may be done earlier."
    )
    charts = [_arcs(last), _counted(figure.axis, last)]
    heading = title_of(figure.title, *_two_lines(sentence))
    chart = alt.vconcat(*charts, spacing=12).properties(title=heading)
    return Picture(figure.name, figure.title, sentence, chart, datasets)


def _arcs(last: int) -> Any:
    scale = alt.Scale(domain=[0, last], nice=False)
    x = alt.X(field="x", type="quantitative", axis=None, scale=scale)
    heights = alt.Scale(domain=[-1.05, 2.2], nice=False)
    y = alt.Y(field="y", type="quantitative", axis=None, scale=heights)
    x2, y2 = alt.X2(field="x2"), alt.Y2(field="y2")

    def lines(name: str, colour: str, width: float) -> Any:
        mark = alt.Chart(source(name)).mark_rule(color=colour, strokeWidth=width)
        return mark.encode(x=x, y=y, x2=x2, y2=y2)

    sent = alt.Chart(source("sent")).mark_rule(strokeCap="round", opacity=0.9)
    width = alt.Size(
        field="width",
        type="quantitative",
        legend=None,
        scale=alt.Scale(domain=[0, 20], range=[0.6, 9]),
    )
    flows = alt.Chart(source("flows")).encode(x=x, y=y)
    ends = alt.Chart(source("ends")).encode(x=x, y=y)
    boxes = alt.Chart(source("boxes")).mark_rect(fill="white", stroke=MUTED, strokeWidth=1)
    back = alt.Chart(source("back")).mark_text(text="◂", color=MUTED, fontSize=11)
    return alt.layer(
        lines("first", MUTED, 1.2),
        lines("may", RULE, 0.8),
        lines("out", RULE, 0.8),
        sent.encode(x=x, y=y, x2=x2, y2=y2, size=width, color=_flow_colour(None)),
        boxes.encode(x=x, x2=x2, y=y, y2=y2),
        back.encode(x=x, y=y),
        ends.mark_circle(size=NODE_AREA, color=MUTED, opacity=1),
        ends.mark_text(dx=20, align="left", fontSize=11, color=INK).encode(text="label:N"),
        flows.mark_circle(size=NODE_AREA, opacity=1).encode(color=_flow_colour(None)),
        flows.mark_text(color="white", fontSize=12, fontWeight="bold").encode(text="flow:N"),
        flows.mark_text(dx=20, align="left", fontSize=11, color=INK).encode(text="label:N"),
    ).properties(width=770, height=270)


def _counted(axis: str, last: int) -> Any:
    scale = alt.Scale(domain=[0, last], nice=False)
    x = alt.X(
        field="x",
        type="quantitative",
        title=axis,
        scale=scale,
        axis=alt.Axis(grid=False, tickCount=last),
    )
    y = alt.Y(
        field="y",
        type="quantitative",
        title="counted, part of the flow",
        scale=alt.Scale(domain=[0, 1.0], nice=False),
        axis=alt.Axis(values=[0, 0.5, 1], format="%"),
    )
    curves = alt.Chart(source("counted")).mark_line(strokeWidth=2.2)
    half = alt.Chart(source("half")).mark_rule(strokeDash=DASH, color=INK, strokeWidth=0.8)
    due = alt.Chart(source("due"))
    return alt.layer(
        half.encode(y=y),
        due.mark_rule(strokeDash=DASH, strokeWidth=1.2).encode(x=x, color=_flow_colour(None)),
        curves.encode(x=x, y=y, color=_flow_colour(None)),
        due.mark_text(align="right", dx=-6, fontSize=11).encode(
            x=x, y=y, text="label:N", color=_flow_colour(None)
        ),
    ).properties(width=770, height=120)


def _cumulated(rows: Sequence[Row], last: int) -> Rows:
    """The fraction of each flow counted over time, evenly within an interval."""
    points: Rows = []
    for flow in dict.fromkeys(row["flow"] for row in rows):
        total = 0.0
        points.append({"flow": flow, "x": 0.0, "y": 0.0})
        for row in (row for row in rows if row["flow"] == flow):
            points.append({"flow": flow, "x": row["begin"], "y": total})
            total += row["counted"] / row["work"]
            points.append({"flow": flow, "x": row["end"], "y": total})
        points.append({"flow": flow, "x": last, "y": total})
    return points


def _flow_colour(legend: alt.Legend | None) -> alt.Color:
    scale = alt.Scale(domain=list(FLOW_COLOURS), range=list(FLOW_COLOURS.values()))
    return alt.Color(field="flow", type="nominal", scale=scale, legend=legend)


def _two_lines(sentence: str) -> list[str]:
    """A long sentence in two lines of about the same length."""
    middle = sentence.index(". ", len(sentence) // 3) + 1
    return [sentence[:middle], sentence[middle + 1 :]]
