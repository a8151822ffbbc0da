"""The picture of FlowFlex's first stage: a flow becomes a chain of pseudo-jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import atan2, degrees, hypot
from typing import Any

import altair as alt

from experiments.figure import Figure, Row
from experiments.flowflex.stage_encoding import (
    DASH,
    NODE_AREA,
    named,
    slots_axis,
    small_title,
    time_axis,
    title_of,
)
from experiments.flowflex.stage_rows import SLOTS
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, JOBS, MUTED

PHASE_COLOURS = dict(zip(("a1", "a2", "a3", "a4", "a5", "a6"), JOBS, strict=False))

_STEP_X, _STEP_Y = 68.0, 92.0
"""Pixels between two columns, and between two rows, of the DAG."""


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
        "phases": [named(row) | {"x": _between(row, cuts)} for row in phases],
        "cuts": [{"x": cut} for cut in cuts],
        "jobs": [dict(row) for row in jobs],
        "tops": list(tops.values()),
        "slots": [{"y": SLOTS, "label": f"{SLOTS} slots"}],
    }
    sentence = (
        "Next to each phase: max share × min time. Dashed: ends of phases; dotted: all slots."
    )
    high = max(row["high"] for row in phases) + 0.6
    charts = [
        _graph(),
        _pseudo_schedule(figure.axis, high, cuts[-1]),
        _pseudo_jobs(figure.axis, high, cuts[-1]),
    ]
    chart = alt.hconcat(*charts, spacing=26).properties(title=title_of(figure.title, sentence))
    return Picture(figure.name, figure.title, sentence, chart, datasets)


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
        nodes.mark_circle(size=NODE_AREA, opacity=1).encode(color=colour),
        nodes.mark_text(color="white", fontSize=12, fontWeight="bold").encode(text="name:N"),
        nodes.mark_text(color=INK, fontSize=10, dy=-24).encode(text="above:N"),
        nodes.mark_text(color=INK, fontSize=10, dy=24).encode(text="below:N"),
    ).properties(width=3.8 * _STEP_X, height=2.3 * _STEP_Y, title=small_title("(a) flow A"))


def _pseudo_schedule(axis: str, high: float, end: float) -> Any:
    x, y = time_axis("start", axis, end), slots_axis("low", high)
    base = alt.Chart(source("phases"))
    middle = {"x": time_axis("x", axis, end), "y": slots_axis("y", high)}
    colour = alt.Color(field="name", type="nominal", scale=_phase_scale(), legend=None)
    boxes = base.mark_rect(stroke="white", strokeWidth=1.5, opacity=1)
    cuts = alt.Chart(source("cuts")).mark_rule(strokeDash=DASH, color=INK, strokeWidth=0.8)
    return alt.layer(
        boxes.encode(x=x, x2=alt.X2(field="end"), y=y, y2=alt.Y2(field="high"), color=colour),
        cuts.encode(x=time_axis("x", axis, end)),
        base.mark_text(color="white", fontSize=12, fontWeight="bold").encode(
            **middle, text="name:N"
        ),
    ).properties(
        width=260,
        height=2.3 * _STEP_Y,
        title=small_title("(b) its pseudo-schedule, unlimited slots"),
    )


def _pseudo_jobs(axis: str, high: float, end: float) -> Any:
    x, y = time_axis("start", axis, end), slots_axis("low", high, None)
    base = alt.Chart(source("jobs"))
    tops = alt.Chart(source("tops")).encode(
        x=time_axis("x", axis, end), y=slots_axis("high", high, None)
    )
    colour = alt.Color(field="name", type="nominal", scale=_phase_scale(), legend=None)
    slots = alt.Chart(source("slots")).encode(y=slots_axis("y", high, None))
    boxes = base.mark_rect(stroke="white", strokeWidth=1.5, opacity=1)
    return alt.layer(
        boxes.encode(x=x, x2=alt.X2(field="end"), y=y, y2=alt.Y2(field="high"), color=colour),
        slots.mark_rule(color=INK, strokeWidth=1, strokeDash=[1, 2]),
        tops.mark_text(color=INK, fontSize=12, dy=-9, fontWeight="bold").encode(text="k:N"),
    ).properties(
        width=260, height=2.3 * _STEP_Y, title=small_title("(c) pseudo-jobs 1 to 6, a chain")
    )


def _phase_scale() -> alt.Scale:
    return alt.Scale(domain=list(PHASE_COLOURS), range=list(PHASE_COLOURS.values()))
