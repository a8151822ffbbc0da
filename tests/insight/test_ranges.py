"""Ranges of instants in words, for readers who know nothing of forecasts."""

from __future__ import annotations

from datetime import datetime
from math import inf

import pytest

from slotwise.insight.report.ranges import instant_near, instants, span

NOW = datetime(2026, 11, 27, 14, 0).timestamp()
HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0, 30, "within 30 s"),
        (5, 40, "in 5–40 s"),
        (130, 290, "in 2–5 min"),
        (-5, 290, "within 5 min"),
        (120, 120, "in 2 min"),
        (-9, -3, "now"),
        (300, 2400, "14:05–14:40"),
        (-1, 2400, "by 14:40"),
        (1000, 1005, "about 14:16"),
        (9 * HOUR, 20 * HOUR, "23:00–Sat 10:00"),
        (20 * HOUR, 22 * HOUR, "Sat 10:00–12:00"),
        (3 * DAY, 9 * DAY, "Mon 14:00–6 Dec"),
        (8 * DAY, 12 * DAY, "5 Dec–9 Dec"),
        (600, inf, "after 14:10"),
        (600, None, "after 14:10"),
        (-1, None, "not known"),
        (None, None, "not known"),
        (inf, inf, "not known"),
    ],
)
def test_a_range_of_instants(low: float | None, high: float | None, words: str) -> None:
    """Relative if it is over within ten minutes, else as times, days and dates."""
    moved = (None if at is None else NOW + at for at in (low, high))
    assert instants(*moved, NOW) == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0, 0.2, "under 1 s"),
        (20, 99, "20–99 s"),
        (20, 240, "under 4 min"),
        (90, 240, "1–4 min"),
        (5 * HOUR, 9 * HOUR, "5–9 h"),
        (150, inf, "over 2 min"),
        (None, None, "not known"),
    ],
)
def test_a_range_of_durations(low: float | None, high: float | None, words: str) -> None:
    """In one unit, that of its end; it holds the range."""
    assert span(low, high) == words


def test_an_instant() -> None:
    """As a time of day once it is more than some minutes ahead."""
    assert instant_near(NOW + 130, NOW) == "in ~2 min"
    assert instant_near(NOW + HOUR, NOW) == "15:00"
