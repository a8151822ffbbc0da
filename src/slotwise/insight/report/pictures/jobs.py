"""Timelines of jobs in a run or a plan: waiting from arrival, then running, the stronger the
colour the more slots."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, sqrt
from typing import Any

import altair as alt

from slotwise.core.objective import is_met
from slotwise.insight.report.pictures.picture import (
    COLUMNS,
    WIDTH,
    Picture,
    Rows,
    row_axis,
    source,
    spans,
    time_axis,
    tooltip,
    under_each_other,
)
from slotwise.insight.report.reported import JOBS_LISTED, Scene, empty_scene
from slotwise.insight.report.text import BAD, INK, MUTED, in_short, seconds
from slotwise.insight.timeline import StepFunction, Timeline

_SHADES = 5
_PALEST = 0.7


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
            for row in _stretches(scene, job, line.held_by_job.get(job, StepFunction()), peak)
        ]
        rows[f"due{number}"] = [row for job in jobs for row in _deadline(scene, line, job)]
        charts.append(_lives(scene, number, listed))
    sentence = (
        "The vertical mark is the arrival of a job. The job waits along the thin line and runs"
        " along the bars; stronger colours mean more slots. The number is its response time."
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
    at_arrival, at_end, at_deadline = (
        {"x": time_axis(scene, field, is_last), "y": y}
        for field in ("arrival", "end", "deadline")
    )
    # The rows have names, so no legend is needed.
    colour = alt.Color(field="colour", type="nominal", scale=None)
    lives, due = alt.Chart(source(f"jobs{number}")), alt.Chart(source(f"due{number}"))
    tips = tooltip(
        job="job",
        pool="pool",
        arrival=f"arrival ({unit})",
        start=f"start ({unit})",
        end=f"end ({unit})",
        response="response",
    )
    due_tips = tooltip(job="job", deadline=f"deadline ({unit})", lateness="lateness")
    layers = [
        lives.mark_rule(strokeWidth=1.4).encode(
            **at_arrival, x2="end", color=colour, tooltip=tips
        ),
        *_bars(scene, f"runs{number}", listed, is_last),
        lives.mark_tick(thickness=1.8, color=INK, bandSize=_row_height(listed)).encode(
            **at_arrival, tooltip=tips
        ),
        _texts(lives).encode(**at_end, text="response:N"),
        due.mark_point(
            shape="triangle-down", filled=True, size=45, opacity=1, yOffset=-4
        ).encode(
            **at_deadline,
            color=alt.condition(alt.datum.met, alt.value(INK), alt.value(BAD)),
            tooltip=due_tips,
        ),
        lives.transform_filter("datum.failed != ''")
        .mark_text(text="×", color=BAD, fontSize=14, fontWeight="bold", dx=-1)
        .encode(**at_end, tooltip=tooltip(job="job", failed="failed")),
    ]
    return _layered(layers, listed)


def _bars(scene: Scene, name: str, listed: list[str], is_last: bool = True) -> list[Any]:
    """The bars of running jobs, from rows of `_stretches`, and paper below them.

    A weaker colour is more transparent, on light and on dark paper.
    """
    unit = scene.unit.symbol
    tips = tooltip(
        job="job", start=f"from ({unit})", end=f"to ({unit})", slots="slots held (mean)"
    )
    colours = {
        "fill": alt.Fill(field="colour", type="nominal", scale=None),
        "fillOpacity": alt.FillOpacity(
            field="shade", type="quantitative", scale=None, legend=None
        ),
    }
    at, bars = spans(scene, listed, is_last), alt.Chart(source(name))
    return [
        bars.mark_bar(height={"band": 0.8}, fill="white").encode(**at),
        bars.mark_bar(height={"band": 0.8}).encode(**at, **colours, tooltip=tips),
    ]


def _texts(chart: alt.Chart) -> Any:
    return chart.mark_text(align="left", dx=5, fontSize=10, color=MUTED)


def _layered(layers: list[Any], listed: list[str]) -> Any:
    return alt.layer(*layers).properties(width=WIDTH, height=_row_height(listed) * len(listed))


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
            "met": met,
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


def _stretches(scene: Scene, job: str, held: StepFunction, peak: float) -> Rows:
    """The intervals in which a job ran, split at visible changes of its number of slots.

    The colour is strongest at `peak` slots.
    """
    rows: Rows = []
    for start, end, slots in levels(scene, held):
        if slots <= 0:
            continue
        shade = ceil(_SHADES * sqrt(min(1.0, slots / peak))) / _SHADES
        shade = round(1 - _PALEST * (1 - shade), 2)
        if rows and rows[-1]["end"] == start and rows[-1]["shade"] == shade:
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
                    "colour": scene.job_colours[job],
                    "shade": shade,
                }
            )
    return rows


def levels(
    scene: Scene, steps: StepFunction, columns: int = COLUMNS
) -> list[tuple[float, float, float]]:
    """Return a step function as (start, end, mean): exact, or in `columns` intervals.

    Levels that are too narrow for the axis are left out.
    """
    edges = list(steps.times)
    if len(edges) > columns:
        width = (scene.end - scene.begin) / columns
        grid = [scene.begin + column * width for column in range(columns + 1)]
        edges = [
            edge for edge in grid if steps.times[0] - width < edge < steps.times[-1] + width
        ]
    if len(edges) < 2:
        return []
    means = [round(mean, 2) for mean in steps.means(edges)]
    ends = [scene.at(edge) for edge in edges]
    return [
        (start, end, mean)
        for start, end, mean in zip(ends, ends[1:], means, strict=False)
        if start < end
    ]


def _row_height(listed: list[str]) -> int:
    return 22 if len(listed) <= 10 else 15 if len(listed) <= 30 else 12


# Plans: when each job runs.


def draw_plan(held: Mapping[str, StepFunction]) -> Picture:
    """Draw the slots that each job holds in a plan, of only the first jobs if many."""
    jobs = list(held)[:JOBS_LISTED]
    ends = {job: steps.times[-1] for job, steps in held.items() if steps.times}
    peak = max((max(steps.values, default=0.0) for steps in held.values()), default=0.0) or 1.0
    scene = empty_scene(jobs, max(ends.values(), default=0.0) or 1.0)
    rows: dict[str, Rows] = {
        "plan": [row for job in jobs for row in _stretches(scene, job, held[job], peak)],
        "ends": [
            {"row": job, "end": scene.at(ends[job]), "text": seconds(ends[job])}
            for job in jobs
            if job in ends
        ],
    }
    texts = _texts(alt.Chart(source("ends"))).encode(
        x=time_axis(scene, "end"), y=row_axis(jobs), text="text:N"
    )
    chart = _layered([*_bars(scene, "plan", jobs), texts], jobs)
    sentence = "A bar shows when a job runs; stronger colours mean more slots."
    if len(jobs) < len(held):
        sentence += f" Only the first {len(jobs)} jobs are shown."
    return Picture("plan", "Planned timelines of jobs", sentence, chart, rows)
