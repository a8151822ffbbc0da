"""Reduce attempts to a number of bars that can be drawn, without visible loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slotwise.analysis.attempts import Attempt, Ending
from slotwise.analysis.timeline import PlacedAttempt


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt, or `count` consecutive attempts of a phase in a row; times in seconds."""

    row: int
    start: float
    end: float
    first: Attempt
    count: int = 1

    @property
    def ending(self) -> Ending:
        """How it ended; merged bars contain only successful attempts."""
        return self.first.ending


def bars_of(
    attempts: Sequence[PlacedAttempt], rows: Sequence[int], most: int, resolution: float
) -> tuple[list[Bar], int]:
    """Return at most `most` bars of attempts, and the number of attempts left out.

    `rows` has the row of each attempt. If there are too many, neighbours of a phase in a row
    that are less than `resolution` seconds apart are merged. Then the shortest bars are left
    out, unsuccessful attempts last. O(n log n).
    """
    bars = [
        Bar(row, placed.attempt.start, placed.attempt.end, placed.attempt)
        for row, placed in zip(rows, attempts, strict=True)
    ]
    if len(bars) > most:
        bars = _merged(bars, resolution)
    kept = sorted(bars, key=_importance)[:most]
    return sorted(kept, key=_place), len(attempts) - sum(bar.count for bar in kept)


def _merged(bars: Iterable[Bar], resolution: float) -> list[Bar]:
    of_row: defaultdict[int, list[Bar]] = defaultdict(list)
    for bar in sorted(bars, key=_place):
        done = of_row[bar.row]
        if done and _are_one(done[-1], bar, resolution):
            last = done[-1]
            done[-1] = Bar(last.row, last.start, bar.end, last.first, last.count + bar.count)
        else:
            done.append(bar)
    return [bar for row in sorted(of_row) for bar in of_row[row]]


def _are_one(one: Bar, other: Bar, resolution: float) -> bool:
    return (
        one.first.phase == other.first.phase
        and one.ending == other.ending == "done"
        and other.start - one.end < resolution
    )


def _importance(bar: Bar) -> tuple[bool, float, int, float]:
    return bar.ending == "done", bar.start - bar.end, bar.row, bar.start


def _place(bar: Bar) -> tuple[float, int]:
    return bar.start, bar.row
