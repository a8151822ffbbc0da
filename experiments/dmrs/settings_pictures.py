"""The picture of the sweep: cells with the gains of DMRS, and lines over the releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.dmrs.experiment import RIVALS, DmrsSetting
from experiments.dmrs.pictures import (
    LABELS,
    PAPER,
    colour_of,
    heading_of,
    paper_line,
    y_axis,
)
from experiments.dmrs.settings import INTERVALS, MAX_PAPER, by_setting, gains_over
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK

if TYPE_CHECKING:
    from experiments.dmrs.figure import DmrsRow

CELLS = 190, 108
"""Width and height of a panel of cells."""


def draw_settings(name: str, title: str, rows: Sequence[DmrsRow]) -> Picture:
    """Cells with the gains of DMRS by machines and ratio, a panel for each rival and fraction
    of fast machines; below, lines over the interval between the releases."""
    places = by_setting(rows)
    usual = _usual_interval(list(places))
    fasts = sorted({fast for _, fast, _, interval in places if interval == usual})
    datasets: dict[str, Rows] = {}
    grid = []
    for rival in RIVALS:
        panels = []
        for fast in fasts:
            key = f"{rival}_{fast:g}"
            datasets[key] = [
                {
                    "machines": f"{place[0]}",
                    "ratio": f"{place[2]:g}",
                    "gain": 100 * gain,
                    "label": f"{100 * gain:.0f}",
                    "most": f"{100 * most:.0f}",
                    "ink": "white" if gain > 0.5 else INK,
                }
                for place, some in places.items()
                if place[1] == fast and place[3] == usual
                for gain, most in [gains_over(rival, some)]
            ]
            panels.append(_cells(key, rival, fast, fast == fasts[0], rival == RIVALS[-1]))
        grid.append(alt.hconcat(*panels, spacing=16))
    middle = DmrsSetting()
    datasets["paper"] = [{"y": 100 * MAX_PAPER, "label": PAPER}]
    datasets["intervals"] = [
        {"x": place[3], "scheduler": LABELS[rival], "y": 100 * gain, "most": 100 * most}
        for place, some in places.items()
        if place[:3] == (middle.machines, middle.fast, middle.ratio)
        for rival in RIVALS
        for gain, most in [gains_over(rival, some)]
    ]
    chart = alt.vconcat(*grid, _intervals(), spacing=18).resolve_scale(color="independent")
    sentence = [
        "By how much DMRS is better than each rival (%): mean over the three benchmarks and"
        f" {rows[0].experiments} experiments of each;",
        f"small, or where a line ends, the most. The paper: up to {100 * MAX_PAPER:.0f} %."
        " Half of the jobs are released at",
        f"{usual:g} of the time that 20 GB take, or as the last panel says.",
    ]
    chart = chart.properties(title=heading_of(title, sentence))
    return Picture(name, title, " ".join(sentence), chart, datasets)


def _usual_interval(places: list[tuple[int, float, float, float]]) -> float:
    """The interval of most settings."""
    return max(INTERVALS, key=lambda one: sum(place[3] == one for place in places))


def _cells(key: str, rival: str, fast: float, is_first: bool, is_last: bool) -> Any:
    x = alt.X(
        field="ratio",
        type="ordinal",
        title="speed of fast machines / slow" if is_last else None,
        sort=None,
        axis=alt.Axis(labelAngle=0, ticks=False, domain=False, labels=is_last),
    )
    y = alt.Y(
        field="machines",
        type="ordinal",
        title=[LABELS[rival], "machines"] if is_first else None,
        sort=None,
        axis=alt.Axis(ticks=False, domain=False, labels=is_first),
    )
    scale = alt.Scale(scheme="blues", domain=[0, 100])
    colour = alt.Color(field="gain", type="quantitative", scale=scale, legend=None)
    base = alt.Chart(source(key)).encode(x=x, y=y)
    ink = alt.Color(field="ink", type="nominal", scale=None)
    properties: dict[str, Any] = dict(zip(("width", "height"), CELLS, strict=True))
    if rival == RIVALS[0]:
        properties["title"] = alt.TitleParams(
            f"{100 * fast:.0f} % fast machines", fontSize=12, offset=6
        )
    cells = alt.layer(
        base.mark_rect(stroke="white", strokeWidth=2).encode(color=colour),
        base.mark_text(fontSize=12, dy=-5).encode(text="label:N", color=ink),
        base.mark_text(fontSize=9, dy=9).encode(text="most:N", color=ink),
    )
    return cells.resolve_scale(color="independent").properties(**properties)


def _intervals() -> Any:
    x = alt.X(
        field="x",
        type="quantitative",
        title="second release, in parts of the time that 20 GB take",
        axis=alt.Axis(grid=False, values=list(INTERVALS), format=".3~f"),
    )
    colour = colour_of([LABELS[rival] for rival in RIVALS])
    base = alt.Chart(source("intervals")).encode(x=x, color=colour)
    middle = DmrsSetting()
    said = (
        f"{middle.machines} machines, {100 * middle.fast:.0f} % of them fast,"
        f" {middle.ratio:g} times as fast"
    )
    return alt.layer(
        base.mark_rule(strokeWidth=1.5, opacity=0.5).encode(y=y_axis("y"), y2="most"),
        base.mark_line(strokeWidth=2).encode(y=y_axis("y", "DMRS is better by (%)")),
        base.mark_circle(size=42, opacity=1).encode(y=y_axis("y")),
        *paper_line(),
    ).properties(width=3 * CELLS[0] + 32, height=150, title=alt.TitleParams(said, fontSize=12))
