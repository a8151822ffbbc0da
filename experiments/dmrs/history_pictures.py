"""The picture of estimates and a history; it needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.dmrs.history_experiment import HISTORIES, WRONG
from experiments.dmrs.history_ratios import first_ratios, mean_ratio, ratio_of
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, MUTED, cycle
from slotwise.insight.report.text import JOBS as COLOURS

if TYPE_CHECKING:
    from experiments.figure import Figure, Row

SENTENCE = (
    "Left: the work of a job at its arrival. Right: the work left of its maps (lines) and"
    " reduces (dashed), as their tasks end. Means of all rounds; 1 is exact."
)
PHASES = ("map", "reduce")
DOMAIN = (0.02, 30.0)
TICKS = (0.03, 0.1, 0.3, 1, 3, 10, 30)
WIDTH, HEIGHT = 250, 300


def draw_history(figure: Figure, rows: Sequence[Row]) -> Picture:
    """First estimates by history, and the course of the estimates with a wrong history."""
    jobs = list(dict.fromkeys(row["job"] for row in rows))
    datasets: dict[str, Rows] = {"right": [{"y": 1.0}], "first": _first(rows, jobs)}
    panels = [_first_panel(jobs)]
    for number, history in enumerate(WRONG):
        key = f"course {number}"
        datasets[key] = _course(rows, jobs, history)
        panels.append(_course_panel(key, history, figure.axis, jobs))
    heading = alt.TitleParams(
        figure.title, subtitle=SENTENCE, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = alt.hconcat(*panels, spacing=22).properties(title=heading)
    return Picture(figure.name, figure.title, SENTENCE, chart, datasets)


def _first(rows: Sequence[Row], jobs: Sequence[str]) -> Rows:
    return [
        {"known": history, "job": job, "y": mean_ratio(first_ratios(rows, history, job))}
        for history in HISTORIES
        for job in jobs
    ]


def _course(rows: Sequence[Row], jobs: Sequence[str], history: str) -> Rows:
    """The mean ratio of each phase after each end of a task of it."""
    ratios: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        if row["history"] == history and row["phase"] in PHASES:
            key = (row["job"], row["phase"], row["tasks"])
            ratios.setdefault(key, []).append(ratio_of(row))
    return [
        {"job": job, "phase": phase, "x": tasks, "y": mean_ratio(found)}
        for (job, phase, tasks), found in sorted(ratios.items())
        if job in jobs
    ]


def _first_panel(jobs: Sequence[str]) -> Any:
    x = alt.X(
        field="known",
        type="nominal",
        title="what is known of earlier runs",
        sort=None,
        scale=alt.Scale(domain=list(HISTORIES)),
        axis=alt.Axis(labelAngle=-25, grid=False),
    )
    beside = alt.XOffset(field="job", type="nominal", scale=alt.Scale(domain=list(jobs)))
    dots = alt.Chart(source("first")).mark_circle(size=60, opacity=1)
    points = dots.encode(x=x, xOffset=beside, y=_y("estimate / truth"), color=_colour(jobs))
    return _panel(points, "work of each job, first")


def _course_panel(key: str, history: str, axis: str, jobs: Sequence[str]) -> Any:
    x = alt.X(
        field="x",
        type="quantitative",
        title=axis,
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, tickMinStep=1),
    )
    dash = alt.StrokeDash(
        field="phase",
        type="nominal",
        scale=alt.Scale(domain=list(PHASES), range=[[1, 0], [4, 3]]),
        legend=None,
    )
    lines = alt.Chart(source(key)).mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=24))
    course = lines.encode(x=x, y=_y(None), color=_colour(jobs), strokeDash=dash)
    return _panel(course, f"work left of a phase, {history}")


def _panel(marks: Any, title: str) -> Any:
    right = alt.Chart(source("right")).mark_rule(color=INK, strokeDash=[2, 2])
    y = alt.Y(field="y", type="quantitative")
    return alt.layer(right.encode(y=y), marks).properties(
        width=WIDTH, height=HEIGHT, title=alt.TitleParams(title, fontSize=12, offset=6)
    )


def _y(title: str | None) -> alt.Y:
    return alt.Y(
        field="y",
        type="quantitative",
        title=title,
        scale=alt.Scale(type="log", domain=list(DOMAIN), nice=False, clamp=True),
        axis=alt.Axis(values=list(TICKS), format="~g"),
    )


def _colour(jobs: Sequence[str]) -> alt.Color:
    colours = cycle(list(jobs), COLOURS)
    return alt.Color(
        field="job",
        type="nominal",
        scale=alt.Scale(domain=list(jobs), range=list(colours.values())),
        legend=alt.Legend(title="job", orient="right", symbolType="circle"),
    )
