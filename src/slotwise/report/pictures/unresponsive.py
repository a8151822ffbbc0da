"""Marks of unresponsive hosts: a dark line along the lower edge of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from slotwise.analysis.timeline import Timeline
from slotwise.report.palette import INK
from slotwise.report.pictures.picture import Rows, row_axis, source, time_axis, tooltip
from slotwise.report.scene import Scene

SENTENCE = " A dark line along a row means that {who} was unresponsive."


def unresponsive_rows(
    scene: Scene, line: Timeline, texts_of: Mapping[str, Sequence[str]]
) -> Rows:
    """One data row for each unresponsive period and each picture row of its host."""
    return [
        {
            "row": text,
            "host": span.host,
            "start": scene.at(span.start),
            "end": scene.at(line.end if span.end is None else span.end),
        }
        for span in line.unresponsive
        for text in texts_of[span.host]
    ]


def unresponsive_marks(
    scene: Scene, name: str, texts: list[str], height: float, is_last: bool
) -> Any:
    """The lines, as a layer of a chart with rows of `height` pixels."""
    unit = scene.unit.symbol
    tips = tooltip(host="unresponsive host", start=f"from ({unit})", end=f"to ({unit})")
    return (
        alt.Chart(source(name))
        .mark_rule(color=INK, strokeWidth=2.5, yOffset=height / 2 - 1.5)
        .encode(x=time_axis(scene, "start", is_last), x2="end", y=row_axis(texts), tooltip=tips)
    )
