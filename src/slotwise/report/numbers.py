"""Format numbers for reading: rounded, with units."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10

MISSING = "–"
"""Shown in place of a missing number."""

ROUNDING = 1e-9
"""Times and shares below this are rounding errors, and are shown as 0."""

_UNITS = (
    ("µs", 1e-6, 1e-3),
    ("ms", 1e-3, 0.1),
    ("s", 1.0, 900.0),
    ("min", 60.0, 60 * 600.0),
)
"""Symbol, seconds in the unit, and the maximum in seconds for which it is used."""


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time for an axis."""

    symbol: str
    seconds: float


def unit_for(seconds: float) -> TimeUnit:
    """The most readable unit for a duration in seconds."""
    if seconds < ROUNDING:
        return TimeUnit("s", 1.0)
    for symbol, size, most in _UNITS:
        if seconds <= most:
            return TimeUnit(symbol, size)
    return TimeUnit("h", 3600.0)


def number(value: float | None) -> str:
    """A number with two or three significant digits, or all digits before the point.

    Never with an exponent; values closer to 0 than ROUNDING are 0.
    """
    if value is None:
        return MISSING
    size = abs(value)
    if size < ROUNDING:
        return "0"
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.{1 - floor(log10(size))}f}" if size < 0.1 else f"{value:.2f}"


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
    """A share of 1 as a percentage; values closer to 0 than ROUNDING are 0."""
    if share is None:
        return MISSING
    size = abs(share)
    if size < 1e-3:
        return f"{number(100 * share if size >= ROUNDING else 0.0)} %"
    return f"{100 * share:,.0f} %" if size >= 0.1 else f"{100 * share:.1f} %"
