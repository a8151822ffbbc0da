"""The picture of waits for memory: mean responses of large and of small jobs, by load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from experiments.memory.experiment import WaitsRow
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import MUTED, job_colours

SENTENCE = "Tasks that request 24 of 32 GiB among those that request 4; 5 % of jobs are large."

WIDTH, HEIGHT = 330, 260
"""Size of each panel in pixels."""

PANELS = {
    "large": "mean response of large jobs (s)",
    "small": "mean response of small jobs (s)",
}


def draw_responses(name: str, title: str, rows: Sequence[WaitsRow]) -> Picture:
    """Two panels, each with a line for an allocator with waits, and one without."""
    names = list(dict.fromkeys(_name(row) for row in rows))
    datasets: dict[str, Rows] = {
        panel: [{"x": row.load, "name": _name(row), "y": getattr(row, panel)} for row in rows]
        for panel in PANELS
    }
    charts = [
        _panel(panel, axis, names).properties(width=WIDTH, height=HEIGHT)
        for panel, axis in PANELS.items()
    ]
    heading = alt.TitleParams(
        title, subtitle=SENTENCE, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = alt.hconcat(*charts, spacing=24).properties(title=heading)
    return Picture(name, title, SENTENCE, chart, datasets)


def _name(row: WaitsRow) -> str:
    return f"{row.allocator}, {row.waits} waits"


def _panel(panel: str, axis: str, names: list[str]) -> Any:
    zero = alt.Scale(zero=False)
    x = alt.X(
        field="x", type="quantitative", title="load", scale=zero, axis=alt.Axis(grid=False)
    )
    scale = alt.Scale(domain=names, range=list(job_colours(names).values()))
    legend = alt.Legend(title=None, orient="top", columns=2, symbolType="circle")
    base = alt.Chart(source(panel)).encode(
        x=x,
        y=alt.Y(field="y", type="quantitative", title=axis, scale=alt.Scale(zero=True)),
        color=alt.Color(field="name", type="nominal", scale=scale, legend=legend),
    )
    return alt.layer(base.mark_line(strokeWidth=2), base.mark_circle(size=45, opacity=1))
