"""Ranges of instants and of durations in a few words, in local time.

Ends are Unix seconds, or seconds; None and infinity stand for an end that is not known.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil, floor, inf

from slotwise.insight.report.text import roughly

UNKNOWN = "not known"

SOON_SECONDS = 600.0
"""Ranges that end within this time are shown relative to now."""

WEEK_DAYS = 6
"""The days for which the name of the day stands for the date."""

_UNITS = (
    ("s", 1.0, 100.0),
    ("min", 60.0, 6000.0),
    ("h", 3600.0, 172_800.0),
    ("d", 86_400.0, inf),
)
"""Symbol and seconds of a unit, and the seconds below which it is used."""


def span(low: float | None, high: float | None) -> str:
    """A duration as a range: "2–5 min", "under 5 min", or "over 2 min" if it has no end."""
    least, most = max(0.0, low or 0.0), inf if high is None else high
    if low is None or least == inf or (most == inf and least < 1):
        return UNKNOWN
    top = least if most == inf else most
    symbol, size = next(unit[:2] for unit in _UNITS if top < unit[2])
    first = floor(least / size)
    if most == inf:
        return f"over {first} {symbol}"
    last = max(1, ceil(most / size))
    if first == last:
        return f"{last} {symbol}"
    return f"{first}–{last} {symbol}" if first else f"under {last} {symbol}"


def instants(low: float | None, high: float | None, now: float) -> str:
    """A range of instants: "in 2–5 min", "14:05–14:40", "by 14:40" or "after 14:05"."""
    least, most = inf if low is None else low, inf if high is None else high
    if least == inf or (most == inf and least <= now):
        return UNKNOWN
    if most == inf:
        return f"after {_clock(least, now)}"
    if most <= now:
        return "now"
    if most - now <= SOON_SECONDS:
        found = span(least - now, most - now)
        return found.replace("under", "within") if found.startswith("under") else f"in {found}"
    if least <= now:
        return f"by {_clock(most, now)}"
    first, last = _clock(least, now), _clock(most, now)
    if first == last:
        return f"about {first}"
    is_one_day = _day(least) == _day(most)
    return f"{first}–{last.rpartition(' ')[2] if is_one_day else last}"


def instant_near(at: float, now: float) -> str:
    """An instant, about: "in ~2 min" or "14:05"."""
    left = max(0.0, at - now)
    return f"in {roughly(left)}" if left <= SOON_SECONDS else _clock(at, now)


def _day(at: float) -> int:
    return datetime.fromtimestamp(at).toordinal()


def _clock(at: float, now: float) -> str:
    """The time of day; of another day with its name, after a week the date alone."""
    days, local = _day(at) - _day(now), datetime.fromtimestamp(at)
    if days == 0:
        return f"{local:%H:%M}"
    return f"{local:%a %H:%M}" if 0 < days <= WEEK_DAYS else f"{local.day} {local:%b}"
