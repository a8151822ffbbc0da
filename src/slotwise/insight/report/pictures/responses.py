"""The response of each job under each scheduler: one row per job, or curves for many jobs."""

from __future__ import annotations

from typing import Any

import altair as alt

from slotwise.insight.report.pictures.picture import (
    WIDTH,
    Picture,
    Rows,
    label_axis,
    legend,
    palette,
    row_axis,
    source,
    tooltip,
)
from slotwise.insight.report.reported import JOBS_LISTED, Scene
from slotwise.insight.report.text import MUTED, RUNS, TimeUnit, cycle, seconds, unit_for

_CURVE_POINTS = 400


def draw(scene: Scene) -> Picture:
    """Draw the picture."""
    return _dots(scene) if len(scene.jobs) <= JOBS_LISTED else _curves(scene)


def _dots(scene: Scene) -> Picture:
    unit = _unit(scene)
    rows: Rows = [
        {
            "row": job,
            "run": name,
            "response": response / unit.seconds,
            "text": seconds(response),
        }
        for name, run in zip(scene.names, scene.runs, strict=True)
        for job, times in run.outcome.jobs.items()
        if (response := times["response"]) is not None
    ]
    jobs = list(scene.jobs)
    x, y = _response_axis(unit, rows), row_axis(jobs)
    base = alt.Chart(source("responses"))
    threads = base.mark_rule(color=MUTED, opacity=0.5).encode(
        x=alt.X(aggregate="min", field="response", type="quantitative"),
        x2=alt.X2(aggregate="max", field="response"),
        y=y,
    )
    dots = base.mark_point(filled=True, size=70, opacity=0.95).encode(
        x=x,
        y=y,
        color=_run_colour(scene),
        shape=_run_shape(scene),
        tooltip=tooltip(row="job", run="scheduler", text="response"),
    )
    height = (20 if len(jobs) <= 12 else 14) * len(jobs)
    chart = alt.layer(threads, dots).properties(width=WIDTH, height=height)
    sentence = "Each mark is the response time of a job under one scheduler; lower is better."
    if len(rows) < len(jobs) * len(scene.runs):
        sentence += " Unfinished jobs have no mark."
    return _picture(sentence, chart, rows)


def _curves(scene: Scene) -> Picture:
    unit = _unit(scene)
    rows: Rows = []
    for name, run in zip(scene.names, scene.runs, strict=True):
        known = [times["response"] for times in run.outcome.jobs.values()]
        responses = sorted(response for response in known if response is not None)
        stride = max(1, len(responses) // _CURVE_POINTS)
        shown = sorted({*range(0, len(responses), stride), *range(len(responses))[-1:]})
        for place in shown:
            share = round((place + 1) / len(scene.jobs), 5)
            rows.append(
                {"run": name, "response": responses[place] / unit.seconds, "share": share}
            )
    y = alt.Y(
        field="share",
        type="quantitative",
        title="jobs done",
        scale=alt.Scale(domain=[0, 1]),
        axis=label_axis(format="%", tickCount=5, titleX=-45),
    )
    chart = (
        alt.Chart(source("responses"))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=_response_axis(unit, rows),
            y=y,
            color=_run_colour(scene),
            tooltip=tooltip(run="scheduler"),
        )
        .properties(width=WIDTH, height=260)
    )
    sentence = (
        "Each curve is the share of all jobs with at most this response time; higher is better."
    )
    return _picture(sentence, chart, rows)


def _picture(sentence: str, chart: Any, rows: Rows) -> Picture:
    return Picture("responses", "Response of each job", sentence, chart, {"responses": rows})


def _unit(scene: Scene) -> TimeUnit:
    times = [job["response"] for run in scene.runs for job in run.outcome.jobs.values()]
    return unit_for(max((time for time in times if time is not None), default=0.0))


def _response_axis(unit: TimeUnit, rows: Rows) -> alt.X:
    """The response axis; logarithmic if short responses would be invisible otherwise."""
    values = [row["response"] for row in rows]
    wide = bool(values) and min(values) > 0 and max(values) / min(values) > 50
    return alt.X(
        field="response",
        type="quantitative",
        title=f"response ({unit.symbol}{', logarithmic' if wide else ''})",
        scale=alt.Scale(type="log") if wide else alt.Scale(zero=True),
    )


def _run_colour(scene: Scene) -> alt.Color:
    scale = palette(cycle(scene.names, RUNS))
    return alt.Color(field="run", type="nominal", scale=scale, legend=legend("scheduler"))


def _run_shape(scene: Scene) -> alt.Shape:
    shapes = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
    scale = palette(cycle(scene.names, shapes))
    return alt.Shape(field="run", type="nominal", scale=scale, legend=legend("scheduler"))
