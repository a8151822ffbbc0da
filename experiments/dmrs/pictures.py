"""The pictures of the DMRS figures: bars, lines and cells. They need the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from experiments.dmrs.experiment import (
    AT_RUN_TIME,
    DMRS,
    EAGER,
    ELEPHANTS_OF,
    NOISES,
    NOISY,
    OURS,
    RIVALS,
)
from experiments.dmrs.profiles import LABELS as BENCHMARKS
from experiments.dmrs.settings import MAX_PAPER
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, MUTED, RUNS, tinted

if TYPE_CHECKING:
    from experiments.dmrs.figure import DmrsRow
LABELS = {
    OURS: "ours (dmrs-best)",
    DMRS: "DMRS",
    AT_RUN_TIME: "DMRS at run time",
    NOISY: f"the same, tasks {100 * NOISES[NOISY]:.0f} % off",
    "fifo": "FIFO",
    "identical-machine": "Identical-machine",
    "map-only": "Map-only",
    EAGER: "Map-only, eager",
}
COLOURS = dict(
    zip(
        LABELS.values(),
        (
            RUNS[2],
            RUNS[0],
            tinted(RUNS[0], 0.35),
            tinted(RUNS[0], 0.65),
            RUNS[1],
            RUNS[3],
            RUNS[5],
            tinted(RUNS[5], 0.5),
        ),
        strict=True,
    )
)
BOUND = "bound"

HEIGHT = 270
BAR = 22
"""Pixels; the space of a bar is as wide as its number."""

PAPER = f"the paper: up to {100 * MAX_PAPER:.0f} %"


def draw_benchmarks(name: str, title: str, rows: Sequence[DmrsRow]) -> Picture:
    """Grouped bars as in Fig. 2: values over the bound, and gains of DMRS over its rivals."""
    datasets: dict[str, Rows] = {
        "values": [_value_bar(row) for row in rows],
        "gains": [_gain_bar(row) for row in rows if row.scheduler in RIVALS],
        "one": [{"y": 1.0}],
        "paper": [{"y": 100 * MAX_PAPER, "label": PAPER}],
    }
    names = [label for key, label in LABELS.items() if any(r.scheduler == key for r in rows)]
    benchmarks = [BENCHMARKS[key] for key in dict.fromkeys(row.benchmark for row in rows)]
    values = alt.layer(
        *_bars("values", benchmarks, names, "total weighted completion time / bound"),
        alt.Chart(source("one")).mark_rule(color=INK, strokeDash=[4, 3]).encode(y=y_axis("y")),
    )
    rivals = [LABELS[rival] for rival in RIVALS]
    gains = alt.layer(
        *_bars("gains", benchmarks, rivals, "DMRS is better by (%)"),
        *paper_line(),
    )
    chart = alt.hconcat(
        values.properties(width=BAR * (len(names) + 1) * len(benchmarks), height=HEIGHT),
        gains.properties(width=BAR * (len(rivals) + 1) * len(benchmarks), height=HEIGHT),
        spacing=30,
    ).resolve_scale(xOffset="independent")
    sentence = [
        f"Means of {rows[0].experiments} experiments. Left, with one standard deviation:"
        " nothing is below 1, the bound.",
        "Right: what DMRS gains over its rivals; lines go to the most of single experiments.",
    ]
    return Picture(
        name, title, " ".join(sentence), chart.properties(title=heading_of(title, sentence)),
        datasets,
    )  # fmt: skip


def draw_elephants(name: str, title: str, rows: Sequence[DmrsRow]) -> Picture:
    """Lines over the fraction of elephants: values with the bound, and the gains of DMRS."""
    lines = [_point(row, LABELS[row.scheduler], row.twct) for row in rows]
    bounds = [_point(row, BOUND, row.bound) for row in rows if row.scheduler == DMRS]
    gains = [
        _point(row, LABELS[row.scheduler], 100 * row.gain, 100 * row.gain_most)
        for row in rows
        if row.scheduler in RIVALS
    ]
    datasets: dict[str, Rows] = {
        "values": lines,
        "bounds": bounds,
        "gains": gains,
        "paper": [{"y": 100 * MAX_PAPER, "label": PAPER}],
    }
    names = [label for key, label in LABELS.items() if any(r.scheduler == key for r in rows)]
    x = alt.X(
        field="x",
        type="quantitative",
        title="elephants, part of all jobs (%)",
        scale=alt.Scale(domain=[0, 100], nice=False),
        axis=alt.Axis(grid=False, values=sorted({point["x"] for point in lines}), format=".0f"),
    )
    colour = colour_of(names)
    base = alt.Chart(source("values")).encode(
        x=x, y=y_axis("y", "total weighted completion time (weight x s)"), color=colour
    )
    bound = alt.Chart(source("bounds")).mark_line(color=INK, strokeDash=[4, 3])
    left = alt.layer(
        bound.encode(x=x, y=y_axis("y")),
        base.mark_line(strokeWidth=2),
        base.mark_circle(size=42, opacity=1),
    )
    gained = alt.Chart(source("gains")).encode(x=x, color=colour)
    right = alt.layer(
        gained.mark_rule(strokeWidth=1.5, opacity=0.5).encode(y=y_axis("y"), y2="most"),
        gained.mark_line(strokeWidth=2).encode(y=y_axis("y", "DMRS is better by (%)")),
        gained.mark_circle(size=42, opacity=1).encode(y=y_axis("y")),
        *paper_line(),
    )
    size = {"width": 340, "height": HEIGHT}
    sentence = [
        f"Means of {rows[0].experiments} experiments; dashed, the bound: nothing is below it.",
        "Right: what DMRS gains over its rivals; lines go to the most of single experiments.",
    ]
    chart = alt.hconcat(left.properties(**size), right.properties(**size), spacing=30)
    chart = chart.properties(title=heading_of(title, sentence))
    return Picture(name, title, " ".join(sentence), chart, datasets)


def _value_bar(row: DmrsRow) -> dict[str, Any]:
    return {
        "benchmark": BENCHMARKS[row.benchmark],
        "scheduler": LABELS[row.scheduler],
        "y": row.over_bound,
        "low": row.over_bound - row.over_bound_deviation,
        "high": row.over_bound + row.over_bound_deviation,
        "label": f"{row.over_bound:.2f}",
    }


def _gain_bar(row: DmrsRow) -> dict[str, Any]:
    return {
        "benchmark": BENCHMARKS[row.benchmark],
        "scheduler": LABELS[row.scheduler],
        "y": 100 * row.gain,
        "low": 100 * row.gain,
        "high": 100 * row.gain_most,
        "label": f"{100 * row.gain:.0f}",
    }


def _point(row: DmrsRow, name: str, y: float, most: float | None = None) -> dict[str, Any]:
    return {
        "x": 100 * row.large_jobs / ELEPHANTS_OF,
        "scheduler": name,
        "y": y,
        "most": y if most is None else most,
    }


def _bars(key: str, benchmarks: list[str], names: list[str], title: str) -> list[Any]:
    x = alt.X(
        field="benchmark",
        type="nominal",
        sort=None,
        title=None,
        scale=alt.Scale(domain=benchmarks, paddingInner=0.2),
        axis=alt.Axis(labelAngle=0, ticks=False),
    )
    offset = alt.XOffset(field="scheduler", type="nominal", scale=alt.Scale(domain=names))
    base = alt.Chart(source(key)).encode(x=x, xOffset=offset)
    high = alt.Y(field="high", type="quantitative")
    return [
        base.mark_bar(opacity=1).encode(y=y_axis("y", title), color=colour_of(names)),
        base.mark_rule(strokeWidth=1.5).encode(y=y_axis("low"), y2="high"),
        base.mark_text(dy=-7, fontSize=9).encode(y=high, text="label:N"),
    ]


def paper_line() -> list[Any]:
    """The largest gain of the paper's DMRS, as a line; its data are the rows `paper`."""
    base = alt.Chart(source("paper")).encode(y=y_axis("y"))
    return [
        base.mark_rule(color=MUTED, strokeDash=[4, 3]),
        base.mark_text(align="left", x=4, dy=-6, fontSize=10, color=MUTED).encode(
            text="label:N"
        ),
    ]


def y_axis(field: str, title: str | None = None) -> alt.Y:
    """An axis from 0 on. The title set by one layer applies to all."""
    if title is None:
        return alt.Y(field=field, type="quantitative", scale=alt.Scale(zero=True))
    return alt.Y(field=field, type="quantitative", title=title, scale=alt.Scale(zero=True))


def colour_of(names: list[str]) -> alt.Color:
    """The colours of these schedulers, with a legend."""
    scale = alt.Scale(domain=names, range=[COLOURS[name] for name in names])
    legend = alt.Legend(
        title=None, orient="top", symbolType="square", symbolOpacity=1, labelLimit=160
    )
    return alt.Color(field="scheduler", type="nominal", scale=scale, legend=legend)


def heading_of(title: str, sentence: list[str]) -> alt.TitleParams:
    """Title and lines below it."""
    return alt.TitleParams(
        title, subtitle=sentence, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
