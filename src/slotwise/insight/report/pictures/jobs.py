"""Timelines of jobs: waiting from arrival, then running, darker with more slots."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

import altair as alt

from slotwise.core.objective import is_met
from slotwise.insight.report.pictures.picture import (
    WIDTH,
    Picture,
    Rows,
    row_axis,
    source,
    time_axis,
    tooltip,
    under_each_other,
)
from slotwise.insight.report.reduce import levels
from slotwise.insight.report.reported import Scene
from slotwise.insight.report.text import BAD, INK, MUTED, in_short, seconds, tinted
from slotwise.insight.timeline import StepFunction, Timeline

_SHADES = 5
_PALEST = 0.85


def draw(scene: Scene) -> Picture:
    """Draw the picture."""
    rows: dict[str, Rows] = {}
    listed = scene.jobs_listed
    charts = []
    for number, line in enumerate(scene.timelines):
        jobs = [job for job in listed if job in line.jobs]
        rows[f"jobs{number}"] = [_life(scene, line, job) for job in jobs]
        peak = max(1, line.slots.most)
        rows[f"runs{number}"] = [
            row
            for job in jobs
            for row in stretches(scene, job, line.held_by_job.get(job, StepFunction()), peak)
        ]
        rows[f"due{number}"] = [row for job in jobs for row in _deadline(scene, line, job)]
        charts.append(_lives(scene, number, listed))
    sentence = (
        "The vertical mark is the arrival of a job. The job waits along the thin line and runs"
        " along the bars; darker bars mean more slots. The number is its response time."
    )
    if any(rows[f"due{number}"] for number in range(len(scene.runs))):
        sentence += " The triangle is its deadline, red if it was missed."
    if any(run.outcome.failed for run in scene.runs):
        sentence += " A red × marks a job that failed."
    if len(listed) < len(scene.jobs):
        sentence += f" Only the {len(listed)} jobs with the longest response are shown."
    chart = under_each_other(scene, charts)
    return Picture("jobs", "Timelines of jobs", sentence, chart, rows)


def _lives(scene: Scene, number: int, listed: list[str]) -> Any:
    unit, y = scene.unit.symbol, row_axis(listed)
    is_last = number == len(scene.runs) - 1
    x = time_axis(scene, "arrival", is_last)
    # The rows have names, so no legend is needed.
    colour = alt.Color(field="colour", type="nominal", scale=None)
    lives, runs = alt.Chart(source(f"jobs{number}")), alt.Chart(source(f"runs{number}"))
    life_tips = tooltip(
        job="job",
        pool="pool",
        arrival=f"arrival ({unit})",
        start=f"start ({unit})",
        end=f"end ({unit})",
        response="response",
    )
    run_tips = tooltip(
        job="job", start=f"from ({unit})", end=f"to ({unit})", slots="slots held (mean)"
    )
    fill = alt.Fill(field="fill", type="nominal", scale=None)
    return alt.layer(
        lives.mark_rule(strokeWidth=1.4).encode(
            x=x, x2="end", y=y, color=colour, tooltip=life_tips
        ),
        runs.mark_bar(height={"band": 0.8}).encode(
            x=time_axis(scene, "start", is_last),
            x2="end",
            y=y,
            fill=fill,
            tooltip=run_tips,
        ),
        lives.mark_tick(thickness=1.8, color=INK, bandSize=row_height(len(listed))).encode(
            x=x, y=y, tooltip=life_tips
        ),
        lives.mark_text(align="left", dx=5, fontSize=10, color=MUTED).encode(
            x=time_axis(scene, "end", is_last), y=y, text="response:N"
        ),
        _deadlines(scene, f"due{number}", listed, is_last),
        lives.transform_filter("datum.failed != ''")
        .mark_text(text="×", color=BAD, fontSize=14, fontWeight="bold", dx=-1)
        .encode(
            x=time_axis(scene, "end", is_last), y=y, tooltip=tooltip(job="job", failed="failed")
        ),
    ).properties(width=WIDTH, height=row_height(len(listed)) * len(listed))


def _deadlines(scene: Scene, name: str, listed: list[str], is_last: bool) -> Any:
    return (
        alt.Chart(source(name))
        .mark_point(shape="triangle-down", filled=True, size=45, opacity=1, yOffset=-4)
        .encode(
            x=time_axis(scene, "deadline", is_last),
            y=row_axis(listed),
            color=alt.Color(field="colour", type="nominal", scale=None),
            tooltip=tooltip(
                job="job", deadline=f"deadline ({scene.unit.symbol})", lateness="lateness"
            ),
        )
    )


def _deadline(scene: Scene, line: Timeline, job: str) -> Rows:
    """The deadline of a job, or None if it has none within the time axis."""
    span = line.jobs[job]
    due, end = span.job.deadline, span.completion
    if due is None or not scene.begin <= due <= scene.end:
        return []
    met = end is not None and is_met(due, end)
    return [
        {
            "job": job,
            "row": job,
            "deadline": scene.at(due),
            "lateness": seconds(None if end is None else end - due),
            "colour": INK if met else BAD,
        }
    ]


def _life(scene: Scene, line: Timeline, job: str) -> dict[str, Any]:
    span = line.jobs[job]
    done = span.completion is not None
    start = line.end_of(job) if span.start is None else span.start
    return {
        "job": job,
        "row": job,
        "colour": scene.job_colours[job],
        "pool": span.job.pool,
        "arrival": scene.at(span.arrival),
        "start": scene.at(start),
        "end": scene.at(line.end_of(job)),
        "response": seconds(line.end_of(job) - span.arrival) if done else "",
        "failed": in_short(span.failed or ""),
    }


def stretches(scene: Scene, job: str, held: StepFunction, peak: float) -> Rows:
    """The intervals in which a job ran, split at visible changes of its number of slots.

    The bar is darkest at `peak` slots.
    """
    rows: Rows = []
    for start, end, slots in levels(scene, held):
        if slots <= 0:
            continue
        shade = ceil(_SHADES * sqrt(min(1.0, slots / peak))) / _SHADES
        fill = tinted(scene.job_colours[job], _PALEST * (1 - shade))
        if rows and rows[-1]["end"] == start and rows[-1]["fill"] == fill:
            last = rows[-1]
            area = last["slots"] * (start - last["start"]) + slots * (end - start)
            last |= {"end": end, "slots": round(area / (end - last["start"]), 2)}
        else:
            rows.append(
                {
                    "job": job,
                    "row": job,
                    "start": start,
                    "end": end,
                    "slots": slots,
                    "fill": fill,
                }
            )
    return rows


def row_height(rows: int) -> int:
    """The height of each row in pixels, for this number of rows."""
    return 22 if rows <= 10 else 15 if rows <= 30 else 12
