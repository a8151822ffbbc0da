"""Axes, titles and colours that the pictures of FlowFlex's stages have in common."""

from __future__ import annotations

from math import ceil
from typing import Any

import altair as alt

from experiments.figure import Row
from slotwise.insight.report.text import JOBS, MUTED

FLOW_COLOURS = dict(zip("ABC", JOBS, strict=False))

DASH = [4, 3]

NODE_AREA = 620
"""The area of a node, square pixels."""


def named(row: Row) -> dict[str, Any]:
    """A rectangle with the position of its name: its middle."""
    return dict(row) | {
        "x": (row["start"] + row["end"]) / 2,
        "y": (row["low"] + row["high"]) / 2,
    }


def time_axis(field: str, title: str | None, end: float) -> alt.X:
    """The axis of time, in seconds from 0 to `end`."""
    return alt.X(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=[0, end], nice=False),
        axis=alt.Axis(grid=False, tickCount=ceil(end)),
    )


def slots_axis(field: str, high: float, title: str | None = "slots") -> alt.Y:
    """The axis of slots, from 0 to `high`."""
    return alt.Y(
        field=field,
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=[0, high], nice=False),
        axis=alt.Axis(tickMinStep=1, values=list(range(int(high) + 1))),
    )


def small_title(title: str) -> alt.TitleParams:
    """The title of one chart of several."""
    return alt.TitleParams(title, fontSize=12, fontWeight="normal", offset=6)


def title_of(title: str, *lines: str) -> alt.TitleParams:
    """The title of a picture, with lines of text below it."""
    return alt.TitleParams(
        title, subtitle=[*lines], subtitleColor=MUTED, subtitlePadding=4, offset=14
    )
