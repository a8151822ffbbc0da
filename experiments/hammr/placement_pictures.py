"""The picture of a comparison of placements: a bar for each scheme, a column a quantity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from experiments.figure import Row
from slotwise.insight.report.pictures.picture import Picture, source
from slotwise.insight.report.text import BEST, MUTED

SENTENCE = "Means over the runs: maps beside their input, bytes of the others, and times."

QUANTITIES = {
    "local_part": "local part of the maps",
    "gigabytes": "GB moved",
    "seconds": "all done (s)",
    "response_mean": "mean response (s)",
}

WIDTH, STEP = 170, 22


def draw_placement(name: str, title: str, means: Sequence[Row]) -> Picture:
    """Bars for the means of each scheme, below each other for each set of hosts."""
    panels = list(dict.fromkeys(row["panel"] for row in means))
    rows = {panel: [_bar(row) for row in means if row["panel"] == panel] for panel in panels}
    heading = alt.TitleParams(
        title, subtitle=SENTENCE, subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
    lines = [
        alt.hconcat(
            *(
                _column(panel, field, rows[panel], is_first=not place)
                for place, field in enumerate(QUANTITIES)
            ),
            spacing=18,
        )
        for panel in panels
    ]
    chart = alt.vconcat(*lines, spacing=16).properties(title=heading)
    return Picture(name, title, SENTENCE, chart, rows)


def _bar(row: Row) -> dict[str, Any]:
    moved = (row["rack_bytes"] + row["core_bytes"]) / 1e9
    return {**row, "local_part": row["local"] / row["maps"], "gigabytes": moved}


def _column(panel: str, field: str, rows: Sequence[Row], is_first: bool) -> Any:
    y = alt.Y(
        field="scheme",
        type="nominal",
        title=None,
        sort=None,
        scale=alt.Scale(domain=[row["scheme"] for row in rows], padding=0.2),
        axis=alt.Axis(ticks=False, domain=False, labels=is_first),
    )
    x = alt.X(
        field=field, type="quantitative", title=QUANTITIES[field], axis=alt.Axis(tickCount=4)
    )
    return (
        alt.Chart(source(panel))
        .mark_bar(color=BEST)
        .encode(x=x, y=y)
        .properties(
            width=WIDTH,
            height=STEP * len(rows),
            title=alt.TitleParams(panel if is_first else "", fontSize=12, offset=6),
        )
    )
