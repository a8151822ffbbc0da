"""The comparison of schedulers: their metrics as bars, with the proven lower bound."""

from __future__ import annotations

from typing import Any

import altair as alt

from slotwise.insight.report.pictures.picture import Picture, Rows, label_axis, source, tooltip
from slotwise.insight.report.reported import ReportedRun, Scene, among, has_differing_bounds
from slotwise.insight.report.tables import METRICS, Metric
from slotwise.insight.report.text import BAD, BAR, BEST, INK

_PANELS = ("value", "response_mean", "stretch_mean", "makespan")
"""The keys of the metrics that have a panel."""


def draw(scene: Scene) -> Picture:
    """Draw the picture: a panel for the value of the objective and one for each metric."""
    rows: dict[str, Rows] = {}
    charts: list[Any] = []
    objectives = list(dict.fromkeys(run.objective for run in scene.runs))
    of_key = {metric.key: metric for metric in METRICS}
    for key in _PANELS if len(objectives) == 1 else _PANELS[1:]:
        title = of_key[key].title
        if key == "value":
            # Several penalties make a long objective text; the headline of the page shows it.
            is_mixed = len(scene.runs[0].penalties) > 1
            title = "value of the objective" if is_mixed else f"objective: {objectives[0]}"
        rows[key] = _rows(scene, of_key[key])
        charts.append(_panel(scene, key, title, is_first=not charts, rows=rows[key]))
    sentence = f"Shorter bars are better; the best{among(scene.runs)} is blue. "
    if has_differing_bounds(scene.runs):
        sentence += (
            "A red line is a proven lower bound for its own run: no scheduler can do better"
            " with the tasks of that run and their durations there. The work of other runs"
            " differs, so they may be below this bound."
        )
    else:
        sentence += (
            "The red line is a proven lower bound: no scheduler can do better with these tasks."
        )
    if not all(run.is_whole for run in scene.runs):
        sentence += " Runs with unfinished jobs count only finished jobs."
    chart = alt.hconcat(*charts, spacing=30)
    return Picture("comparison", "Comparison of schedulers", sentence, chart, rows)


def _rows(scene: Scene, metric: Metric) -> Rows:
    rows: Rows = []
    leading = metric.leading(scene.runs)
    for name, run, leads in zip(scene.names, scene.runs, leading, strict=True):
        value, bound = metric.of(run), bound_of(run, metric.key)
        rows.append(
            {
                "row": name,
                "value": value,
                "text": metric.show(value),
                "text_at": max(0.0, value or 0.0),
                "bound": bound,
                "bound_text": metric.show(bound),
                "best": leads,
            }
        )
    return rows


def bound_of(run: ReportedRun, key: str) -> float | None:
    """The lower bound of a metric that is the value of the objective or its mean, else None."""
    metrics, bound = run.outcome.metrics, run.outcome.bound
    if metrics.get(key) is None:
        return None
    aggregate = run.log.header.objective["aggregate"]
    meant = {"response_mean": "response", "stretch_mean": "stretch"}.get(key)
    if key == "value" or (key == "makespan" and run.penalties == ["makespan"]):
        return bound
    done = metrics.get("jobs_done")
    if done and run.penalties == [meant] and aggregate == "sum":
        # With weights, the value differs from this metric.
        total = metrics[key] * done
        if abs(total - metrics["value"]) <= 1e-9 * abs(total):
            return bound / float(done)
    return None


def _panel(scene: Scene, key: str, title: str, is_first: bool, rows: Rows) -> Any:
    values = [row["value"] for row in rows if row["value"] is not None]
    ends = [0.0, *values, *(row["bound"] or 0.0 for row in rows)]
    # Lateness may be negative: bars then extend to the left, and the number is next to 0.
    room_for_text = 0.35 * ((max(ends) - min(ends)) or 1.0)
    domain = [min(ends), max(ends) + room_for_text]
    room = 190 if is_first else 205
    axis = label_axis(ticks=False, domain=False) if is_first else None
    names = list(scene.names)
    scale = alt.Scale(domain=names)
    y = alt.Y(field="row", type="nominal", sort=None, title=None, scale=scale, axis=axis)
    scale_x = alt.Scale(domain=domain, nice=False)
    x = alt.X(field="value", type="quantitative", axis=None, scale=scale_x)
    tips = tooltip(row="scheduler", text=title, bound_text="lower bound")
    base = alt.Chart(source(key)).encode(y=y)
    bars = base.mark_bar(height={"band": 0.62}).encode(
        x=x,
        color=alt.condition(alt.datum.best, alt.value(BEST), alt.value(BAR)),
        tooltip=tips,
    )
    texts = base.mark_text(align="left", dx=5, color=INK, fontSize=11).encode(
        x=alt.X(field="text_at", type="quantitative", axis=None), text="text:N"
    )
    layers = [bars, texts]
    if any(row["bound"] is not None for row in rows):
        mark = base.mark_tick(color=BAD, thickness=2, bandSize=20).encode(
            x=alt.X(field="bound", type="quantitative", axis=None), tooltip=tips
        )
        layers.insert(1, mark)
    return alt.layer(*layers).properties(title=title, width=room, height=28 * len(names))
