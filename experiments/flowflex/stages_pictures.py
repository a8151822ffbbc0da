"""The pictures of FlowFlex's stages; they need the extra `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import atan2, ceil, degrees, hypot, inf
from typing import Any

import altair as alt

from experiments.figure import Figure, Row
from experiments.flowflex.stage_rows import SLOTS, completions
from slotwise.report.palette import INK, JOBS, MUTED, RULE, tinted
from slotwise.report.pictures.picture import Picture, Rows, source

FLOW_COLOURS = dict(zip("ABC", JOBS, strict=False))
PHASE_COLOURS = dict(zip(("a1", "a2", "a3", "a4", "a5", "a6"), JOBS, strict=False))

TINTS = (0.0, 0.45, 0.2, 0.6, 0.1, 0.35)
"""Tints of one flow's phases by their numbers, so that neighbours can be distinguished."""

LIGHT = 0.35
"""From this tint on, names are printed dark."""

DASH = [4, 3]

ROUNDING = 1e-9
"""Relative; an interval that ends within this of a whole second counts as ending with it."""

LABEL_AREA = 0.9
"""Slots times seconds; smaller rectangles have no name in them."""


def draw_first_stage(figure: Figure, rows: Sequence[Row]) -> Picture:
    """The DAG, its pseudo-schedule, and the pseudo-jobs cut from that."""
    phases = [row for row in rows if row["part"] == "phase"]
    jobs = [row for row in rows if row["part"] != "phase"]
    ends = {row["name"]: row for row in phases}
    places = _places(phases)
    arcs = [
        {
            "x": places[before][0],
            "y": places[before][1],
            "x2": places[row["name"]][0],
            "y2": places[row["name"]][1],
        }
        for row in phases
        for before in row["after"].split()
    ]
    nodes = [
        {
            "name": name,
            "x": x,
            "y": y,
            "above": _said(ends[name]) if y > 0 else "",
            "below": "" if y > 0 else _said(ends[name]),
        }
        for name, (x, y) in places.items()
    ]
    cuts = sorted({row[end] for row in phases for end in ("start", "end")})
    tops: dict[str, dict[str, Any]] = {}
    for row in jobs:
        middle = (row["start"] + row["end"]) / 2
        top = max(row["high"], tops.get(row["part"], {"high": 0.0})["high"])
        tops[row["part"]] = {"x": middle, "high": top, "k": row["part"].split()[-1]}
    datasets: dict[str, Rows] = {
        "arcs": arcs,
        "heads": [_head(arc) for arc in arcs],
        "nodes": nodes,
        "phases": [_named(row) | {"x": _between(row, cuts)} for row in phases],
        "cuts": [{"x": cut} for cut in cuts],
        "jobs": [dict(row) for row in jobs],
        "tops": list(tops.values()),
        "slots": [{"y": SLOTS, "label": f"{SLOTS} slots"}],
    }
    sentence = (
        "Beside each phase its most slots × least time. Dashed: where a phase ends;"
        " dotted: all slots that there are."
    )
    high = max(row["high"] for row in phases) + 0.6
    charts = [
        _graph(),
        _pseudo_schedule(figure.axis, high, cuts[-1]),
        _pseudo_jobs(figure.axis, high, cuts[-1]),
    ]
    chart = alt.hconcat(*charts, spacing=26).properties(title=_heading(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


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
    heading = _heading(figure.title, *_two_lines(sentence))
    chart = alt.vconcat(*charts, spacing=12).properties(title=heading)
    return Picture(figure.name, figure.title, sentence, chart, datasets)


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
    chart = alt.vconcat(*charts, spacing=14).properties(title=_heading(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


_FLOW_AT = {"B": 0.2, "C": 0.5, "A": 0.8}
"""Positions of the flows above the network, as fractions of its width."""

_NODE = 620
"""The area of a node, square pixels."""


def _places(phases: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """The position of each node of the DAG: a column to the right of all its predecessors."""
    depth: dict[str, int] = {}
    for row in phases:
        depth[row["name"]] = 1 + max((depth[name] for name in row["after"].split()), default=-1)
    after = {row["name"]: row["after"] for row in phases}
    places: dict[str, tuple[float, float]] = {}
    for column in sorted(set(depth.values())):
        names = [name for name, at in depth.items() if at == column]
        for place, name in enumerate(names):
            y = (len(names) - 1) / 2 - place
            if len(names) == 1 and (before := after[name].split()):
                y = sum(places[other][1] for other in before) / len(before)
            places[name] = (float(column), y)
    return places


def _head(arc: Mapping[str, float]) -> dict[str, float]:
    """The position and angle of an arrow head; one unit has the same length in x and y."""
    dx, dy = (arc["x2"] - arc["x"]) * _STEP_X, (arc["y2"] - arc["y"]) * _STEP_Y
    back = 19.0 / hypot(dx, dy)
    return {
        "x": arc["x2"] - back * dx / _STEP_X,
        "y": arc["y2"] - back * dy / _STEP_Y,
        "angle": 90 - degrees(atan2(dy, dx)),
    }


_STEP_X, _STEP_Y = 68.0, 92.0
"""Pixels between two columns, and between two rows, of the DAG."""


def _said(row: Row) -> str:
    """The max share of a phase, and its least time."""
    return f"{row['high'] - row['low']:g} × {_length(row):g} s"


def _between(row: Row, cuts: Sequence[float]) -> float:
    """The middle of the longest part of a rectangle that no cut goes through."""
    inside = [cut for cut in cuts if row["start"] <= cut <= row["end"]]
    start, end = max(pairwise(inside), key=lambda part: part[1] - part[0])
    return (start + end) / 2


def _length(row: Row) -> float:
    return float(row["end"] - row["start"])


def _named(row: Row) -> dict[str, Any]:
    return dict(row) | {
        "x": (row["start"] + row["end"]) / 2,
        "y": (row["low"] + row["high"]) / 2,
    }


def _graph() -> Any:
    x = alt.X(field="x", type="quantitative", axis=None, scale=alt.Scale(domain=[-0.4, 3.4]))
    y = alt.Y(field="y", type="quantitative", axis=None, scale=alt.Scale(domain=[-1.15, 1.15]))
    arcs = alt.Chart(source("arcs")).mark_rule(color=MUTED, strokeWidth=1.4)
    heads = alt.Chart(source("heads")).mark_point(
        shape="triangle-up", size=55, color=MUTED, fill=MUTED, opacity=1
    )
    nodes = alt.Chart(source("nodes")).encode(x=x, y=y)
    colour = alt.Color(field="name", type="nominal", scale=_phase_scale(), legend=None)
    return alt.layer(
        arcs.encode(x=x, y=y, x2=alt.X2(field="x2"), y2=alt.Y2(field="y2")),
        heads.encode(x=x, y=y, angle=alt.Angle(field="angle", type="quantitative", scale=None)),
        nodes.mark_circle(size=_NODE, opacity=1).encode(color=colour),
        nodes.mark_text(color="white", fontSize=12, fontWeight="bold").encode(text="name:N"),
        nodes.mark_text(color=INK, fontSize=10, dy=-24).encode(text="above:N"),
        nodes.mark_text(color=INK, fontSize=10, dy=24).encode(text="below:N"),
    ).properties(width=3.8 * _STEP_X, height=2.3 * _STEP_Y, title=_small("(a) flow A"))


def _pseudo_schedule(axis: str, high: float, end: float) -> Any:
    x, y = _time("start", axis, end), _slots("low", high)
    base = alt.Chart(source("phases"))
    middle = {"x": _time("x", axis, end), "y": _slots("y", high)}
    colour = alt.Color(field="name", type="nominal", scale=_phase_scale(), legend=None)
    boxes = base.mark_rect(stroke="white", strokeWidth=1.5, opacity=1)
    cuts = alt.Chart(source("cuts")).mark_rule(strokeDash=DASH, color=INK, strokeWidth=0.8)
    return alt.layer(
        boxes.encode(x=x, x2=alt.X2(field="end"), y=y, y2=alt.Y2(field="high"), color=colour),
        cuts.encode(x=_time("x", axis, end)),
        base.mark_text(color="white", fontSize=12, fontWeight="bold").encode(
            **middle, text="name:N"
        ),
    ).properties(
        width=260,
        height=2.3 * _STEP_Y,
        title=_small("(b) its pseudo-schedule, slots without end"),
    )


def _pseudo_jobs(axis: str, high: float, end: float) -> Any:
    x, y = _time("start", axis, end), _slots("low", high, None)
    base = alt.Chart(source("jobs"))
    tops = alt.Chart(source("tops")).encode(
        x=_time("x", axis, end), y=_slots("high", high, None)
    )
    colour = alt.Color(field="name", type="nominal", scale=_phase_scale(), legend=None)
    slots = alt.Chart(source("slots")).encode(y=_slots("y", high, None))
    boxes = base.mark_rect(stroke="white", strokeWidth=1.5, opacity=1)
    return alt.layer(
        boxes.encode(x=x, x2=alt.X2(field="end"), y=y, y2=alt.Y2(field="high"), color=colour),
        slots.mark_rule(color=INK, strokeWidth=1, strokeDash=[1, 2]),
        tops.mark_text(color=INK, fontSize=12, dy=-9, fontWeight="bold").encode(text="k:N"),
    ).properties(
        width=260, height=2.3 * _STEP_Y, title=_small("(c) pseudo-jobs 1 to 6, a chain")
    )


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
        ends.mark_circle(size=_NODE, color=MUTED, opacity=1),
        ends.mark_text(dx=20, align="left", fontSize=11, color=INK).encode(text="label:N"),
        flows.mark_circle(size=_NODE, opacity=1).encode(color=_flow_colour(None)),
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


def _schedule(name: str, heading: str, axis: str, end: float, is_last: bool) -> Any:
    x = _time("start", axis if is_last else None, end)
    y = _slots("low", SLOTS)
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
            x=_time("x", axis if is_last else None, end),
            y=_slots("y", SLOTS),
            text="name:N",
            color=text,
        ),
    ).properties(width=770, height=130, title=_small(heading))


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
    return [_named(row) for row in largest.values() if _area(row) >= LABEL_AREA]


def _area(row: Row | None) -> float:
    if row is None:
        return -inf
    return float((row["high"] - row["low"]) * (row["end"] - row["start"]))


def _time(field: str, title: str | None, end: float) -> alt.X:
    return alt.X(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=[0, end], nice=False),
        axis=alt.Axis(grid=False, tickCount=ceil(end)),
    )


def _slots(field: str, high: float, title: str | None = "slots") -> alt.Y:
    return alt.Y(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=[0, high], nice=False),
        axis=alt.Axis(tickMinStep=1, values=list(range(int(high) + 1))),
    )


def _phase_scale() -> alt.Scale:
    return alt.Scale(domain=list(PHASE_COLOURS), range=list(PHASE_COLOURS.values()))


def _flow_colour(legend: alt.Legend | None) -> alt.Color:
    scale = alt.Scale(domain=list(FLOW_COLOURS), range=list(FLOW_COLOURS.values()))
    return alt.Color(field="flow", type="nominal", scale=scale, legend=legend)


def _small(title: str) -> alt.TitleParams:
    return alt.TitleParams(title, fontSize=12, fontWeight="normal", offset=6)


def _two_lines(sentence: str) -> list[str]:
    """A long sentence in two lines of about the same length."""
    middle = sentence.index(". ", len(sentence) // 3) + 1
    return [sentence[:middle], sentence[middle + 1 :]]


def _heading(title: str, *lines: str) -> alt.TitleParams:
    return alt.TitleParams(
        title, subtitle=[*lines], subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
