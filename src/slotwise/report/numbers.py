"""Numbers as people read them: rounded sensibly, with units."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "–"
"""Stands where there is no number."""


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time for an axis."""

    symbol: str
    seconds: float


def unit_for(seconds: float) -> TimeUnit:
    """The unit in which a span of so many seconds reads best."""
    for symbol, size, most in (("s", 1.0, 900.0), ("min", 60.0, 60 * 600.0)):
        if seconds <= most:
            return TimeUnit(symbol, size)
    return TimeUnit("h", 3600.0)


def number(value: float | None) -> str:
    """A number with three digits that count, or all of those before the point."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def count(value: int | None) -> str:
    """A whole number."""
    return MISSING if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """A time or duration with its unit."""
    if value is None:
        return MISSING
    unit = unit_for(abs(value))
    return f"{number(value / unit.seconds)} {unit.symbol}"


def percent(share: float | None) -> str:
    """A share of 1 as a percentage."""
    if share is None:
        return MISSING
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 else f"{100 * share:.1f} %"
