"""The pictures of the DMRS figures: bars, lines and cells. They need the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from slotwise.experiments.dmrs_experiment import (
    AT_RUN_TIME,
    DMRS,
    EAGER,
    ELEPHANTS_OF,
    NOISES,
    NOISY,
    OURS,
    RIVALS,
    Setting,
)
from slotwise.experiments.dmrs_figures import INTERVALS, PAPER_MOST, by_setting, gains_over
from slotwise.experiments.dmrs_profiles import LABELS as BENCHMARKS
from slotwise.report.palette import INK, MUTED, RUNS, tinted
from slotwise.report.pictures.picture import Picture, Rows, source

if TYPE_CHECKING:
    from slotwise.experiments.dmrs_figures import DmrsRow

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
"""Pixels; a bar's room is as wide as its number."""

CELLS = 190, 108
"""Width and height of a panel of cells."""

PAPER = f"the paper: up to {100 * PAPER_MOST:.0f} %"


def draw_benchmarks(name: str, title: str, rows: Sequence[DmrsRow]) -> Picture:
    """Grouped bars as in Fig. 2: values over the bound, and what DMRS gains over its rivals."""
    datasets: dict[str, Rows] = {
        "values": [_value_bar(row) for row in rows],
        "gains": [_gain_bar(row) for row in rows if row.scheduler in RIVALS],
        "one": [{"y": 1.0}],
        "paper": [{"y": 100 * PAPER_MOST, "label": PAPER}],
    }
    names = [label for key, label in LABELS.items() if any(r.scheduler == key for r in rows)]
    benchmarks = [BENCHMARKS[key] for key in dict.fromkeys(row.benchmark for row in rows)]
    values = alt.layer(
        *_bars("values", benchmarks, names, "total weighted completion time / bound"),
        alt.Chart(source("one")).mark_rule(color=INK, strokeDash=[4, 3]).encode(y=_y("y")),
    )
    rivals = [LABELS[rival] for rival in RIVALS]
    gains = alt.layer(
        *_bars("gains", benchmarks, rivals, "DMRS is better by (%)"),
        *_paper_line(),
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
        name, title, " ".join(sentence), chart.properties(title=_heading(title, sentence)),
        datasets,
    )  # fmt: skip


def draw_elephants(name: str, title: str, rows: Sequence[DmrsRow]) -> Picture:
    """Lines over the part of elephants: values with the bound, and what DMRS gains."""
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
        "paper": [{"y": 100 * PAPER_MOST, "label": PAPER}],
    }
    names = [label for key, label in LABELS.items() if any(r.scheduler == key for r in rows)]
    x = alt.X(
        field="x",
        type="quantitative",
        title="elephants, part of all jobs (%)",
        scale=alt.Scale(domain=[0, 100], nice=False),
        axis=alt.Axis(grid=False, values=sorted({point["x"] for point in lines}), format=".0f"),
    )
    colour = _colour(names)
    base = alt.Chart(source("values")).encode(
        x=x, y=_y("y", "total weighted completion time (weight x s)"), color=colour
    )
    bound = alt.Chart(source("bounds")).mark_line(color=INK, strokeDash=[4, 3])
    left = alt.layer(
        bound.encode(x=x, y=_y("y")),
        base.mark_line(strokeWidth=2),
        base.mark_circle(size=42, opacity=1),
    )
    gained = alt.Chart(source("gains")).encode(x=x, color=colour)
    right = alt.layer(
        gained.mark_rule(strokeWidth=1.5, opacity=0.5).encode(y=_y("y"), y2="most"),
        gained.mark_line(strokeWidth=2).encode(y=_y("y", "DMRS is better by (%)")),
        gained.mark_circle(size=42, opacity=1).encode(y=_y("y")),
        *_paper_line(),
    )
    size = {"width": 340, "height": HEIGHT}
    sentence = [
        f"Means of {rows[0].experiments} experiments; dashed, the bound: nothing is below it.",
        "Right: what DMRS gains over its rivals; lines go to the most of single experiments.",
    ]
    chart = alt.hconcat(left.properties(**size), right.properties(**size), spacing=30)
    chart = chart.properties(title=_heading(title, sentence))
    return Picture(name, title, " ".join(sentence), chart, datasets)


def draw_settings(name: str, title: str, rows: Sequence[DmrsRow]) -> Picture:
    """Cells of what DMRS gains by machines and ratio, a panel for each rival and fast part;
    below, lines over the interval between the releases."""
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
    middle = Setting()
    datasets["paper"] = [{"y": 100 * PAPER_MOST, "label": PAPER}]
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
        f"small, or where a line ends, the most. The paper: up to {100 * PAPER_MOST:.0f} %."
        " Half of the jobs are released at",
        f"{usual:g} of the time that 20 GB take, or as the last panel says.",
    ]
    chart = chart.properties(title=_heading(title, sentence))
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
    colour = _colour([LABELS[rival] for rival in RIVALS])
    base = alt.Chart(source("intervals")).encode(x=x, color=colour)
    middle = Setting()
    said = (
        f"{middle.machines} machines, {100 * middle.fast:.0f} % of them fast,"
        f" {middle.ratio:g} times as fast"
    )
    return alt.layer(
        base.mark_rule(strokeWidth=1.5, opacity=0.5).encode(y=_y("y"), y2="most"),
        base.mark_line(strokeWidth=2).encode(y=_y("y", "DMRS is better by (%)")),
        base.mark_circle(size=42, opacity=1).encode(y=_y("y")),
        *_paper_line(),
    ).properties(width=3 * CELLS[0] + 32, height=150, title=alt.TitleParams(said, fontSize=12))


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
        base.mark_bar(opacity=1).encode(y=_y("y", title), color=_colour(names)),
        base.mark_rule(strokeWidth=1.5).encode(y=_y("low"), y2="high"),
        base.mark_text(dy=-7, fontSize=9).encode(y=high, text="label:N"),
    ]


def _paper_line() -> list[Any]:
    base = alt.Chart(source("paper")).encode(y=_y("y"))
    return [
        base.mark_rule(color=MUTED, strokeDash=[4, 3]),
        base.mark_text(align="left", x=4, dy=-6, fontSize=10, color=MUTED).encode(
            text="label:N"
        ),
    ]


def _y(field: str, title: str | None = None) -> alt.Y:
    """An axis from 0 on. The layer that names it does so for all."""
    if title is None:
        return alt.Y(field=field, type="quantitative", scale=alt.Scale(zero=True))
    return alt.Y(field=field, type="quantitative", title=title, scale=alt.Scale(zero=True))


def _colour(names: list[str]) -> alt.Color:
    scale = alt.Scale(domain=names, range=[COLOURS[name] for name in names])
    legend = alt.Legend(
        title=None, orient="top", symbolType="square", symbolOpacity=1, labelLimit=160
    )
    return alt.Color(field="scheduler", type="nominal", scale=scale, legend=legend)


def _heading(title: str, sentence: list[str]) -> alt.TitleParams:
    return alt.TitleParams(
        title, subtitle=sentence, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
