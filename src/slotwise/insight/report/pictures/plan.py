"""Timelines of a plan: when each job runs, darker with more slots."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from slotwise.insight.report.pictures.jobs import row_height, stretches
from slotwise.insight.report.pictures.picture import (
    WIDTH,
    Picture,
    Rows,
    row_axis,
    source,
    time_axis,
    tooltip,
)
from slotwise.insight.report.reported import JOBS_LISTED, Scene
from slotwise.insight.report.text import MUTED, job_colours, seconds, unit_for
from slotwise.insight.timeline import StepFunction


def draw(held: Mapping[str, StepFunction]) -> Picture:
    """Draw the slots that each job holds in a plan, of only the first jobs if many."""
    jobs = list(held)[:JOBS_LISTED]
    end = max((steps.times[-1] for steps in held.values() if steps.times), default=0.0) or 1.0
    peak = max((max(steps.values, default=0.0) for steps in held.values()), default=0.0) or 1.0
    scene = Scene(
        runs=(),
        names=(),
        timelines=(),
        jobs=tuple(jobs),
        job_colours=job_colours(jobs),
        pool_colours={},
        begin=0.0,
        end=end,
        unit=unit_for(end),
    )
    ends: Rows = [
        {"row": job, "end": scene.at(held[job].times[-1]), "text": seconds(held[job].times[-1])}
        for job in jobs
        if held[job].times
    ]
    rows: dict[str, Rows] = {
        "plan": [row for job in jobs for row in stretches(scene, job, held[job], peak)],
        "ends": ends,
    }
    unit, y = scene.unit.symbol, row_axis(jobs)
    tips = tooltip(
        job="job", start=f"from ({unit})", end=f"to ({unit})", slots="slots held (mean)"
    )
    bars = (
        alt.Chart(source("plan"))
        .mark_bar(height={"band": 0.8})
        .encode(
            x=time_axis(scene, "start"),
            x2="end",
            y=y,
            fill=alt.Fill(field="fill", type="nominal", scale=None),
            tooltip=tips,
        )
    )
    texts = (
        alt.Chart(source("ends"))
        .mark_text(align="left", dx=5, fontSize=10, color=MUTED)
        .encode(x=time_axis(scene, "end"), y=y, text="text:N")
    )
    chart = alt.layer(bars, texts).properties(
        width=WIDTH, height=row_height(len(jobs)) * len(jobs)
    )
    sentence = "A bar shows when a job runs; darker bars mean more slots."
    if len(jobs) < len(held):
        sentence += f" Only the first {len(jobs)} jobs are shown."
    return Picture("plan", "Planned timelines of jobs", sentence, chart, rows)
