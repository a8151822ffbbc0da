"""The picture of DMRS live: bars of means, and a dot for each run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import altair as alt

from experiments.dmrs.pictures import COLOURS, LABELS
from slotwise.insight.report.pictures.picture import Picture, Rows, source
from slotwise.insight.report.text import INK, MUTED

if TYPE_CHECKING:
    from experiments.dmrs.live_row import DmrsLiveRow

WIDTH, HEIGHT = 520, 260


def draw_live(name: str, title: str, rows: Sequence[DmrsLiveRow]) -> Picture:
    """The ratio of each scheduler to the bound of its run."""
    schedulers = list(dict.fromkeys(row.scheduler for row in rows))
    runs: Rows = [{"scheduler": LABELS[row.scheduler], "y": row.over_bound} for row in rows]
    means: Rows = []
    for scheduler in schedulers:
        ratios = [row.over_bound for row in rows if row.scheduler == scheduler]
        means.append(
            {
                "scheduler": LABELS[scheduler],
                "y": fmean(ratios),
                "top": max(ratios),
                "label": f"{fmean(ratios):.2f}",
            }
        )
    labels = [LABELS[scheduler] for scheduler in schedulers]
    x = alt.X(
        field="scheduler",
        type="nominal",
        sort=None,
        title=None,
        scale=alt.Scale(domain=labels, paddingInner=0.35, paddingOuter=0.2),
        axis=alt.Axis(labelAngle=0, ticks=False),
    )
    scale = alt.Scale(zero=True)
    y = alt.Y(field="y", type="quantitative", scale=scale)
    named = alt.Y(
        field="y",
        type="quantitative",
        title="total weighted completion time / bound",
        scale=scale,
    )
    colour = alt.Color(
        field="scheduler",
        type="nominal",
        scale=alt.Scale(domain=labels, range=[COLOURS[label] for label in labels]),
        legend=None,
    )
    base = alt.Chart(source("means")).encode(x=x)
    top = alt.Y(field="top", type="quantitative")
    dots = alt.Chart(source("runs")).mark_point(
        size=38, fill="white", stroke=INK, strokeWidth=1.2, opacity=1
    )
    chart = alt.layer(
        base.mark_bar(opacity=1).encode(y=named, color=colour),
        alt.Chart(source("one")).mark_rule(color=INK, strokeDash=[4, 3]).encode(y=y),
        dots.encode(x=x, y=y),
        base.mark_text(dy=-12, fontSize=10).encode(y=top, text="label:N"),
    )
    sentence = [
        "Means of all runs, each of which is a dot, over the bound for what its tasks took:",
        "nothing is below 1. Twelve WordCount, Sort and TeraSort jobs of a few MB, really run.",
    ]
    heading = alt.TitleParams(
        title, subtitle=sentence, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    chart = chart.properties(width=WIDTH, height=HEIGHT, title=heading)
    datasets = {"means": means, "runs": runs, "one": [{"y": 1.0}]}
    return Picture(name, title, " ".join(sentence), chart, datasets)
