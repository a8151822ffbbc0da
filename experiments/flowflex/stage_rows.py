"""What the figures of the stages of FlowFlex and their pictures read from rows."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.figure import Row

SLOTS = 4


def completions(rows: Sequence[Row]) -> dict[str, float]:
    """The last end of each flow in a schedule."""
    ends: dict[str, float] = {}
    for row in rows:
        ends[row["flow"]] = max(ends.get(row["flow"], 0.0), row["end"])
    return ends
