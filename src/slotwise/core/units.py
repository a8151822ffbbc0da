"""Values as people write them: durations, sizes and parts in percent.

The functions that take text raise ValueError with what is expected instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from slotwise.core.errors import InputError, shown

_NUMBER = r"(\d{1,18}(?:\.\d{1,18})?)\s*"

NO_QUOTES = "expected a number, without quotes"
"""The remedy for text that is only a number."""


def is_number_text(text: str) -> bool:
    """Whether text is only a number, which files state without quotes."""
    try:
        float(text)
    except ValueError:
        return False
    return True


# Durations.

DURATION = "expected seconds, or a duration such as 5m or 1h30m"

SECONDS: dict[str, int | Fraction] = {
    "d": 86_400,
    "h": 3600,
    "(?:min|m)": 60,
    "s": 1,
    "ms": Fraction(1, 1000),
}
"""The units of durations in the order in which they are combined, and their seconds."""

_DURATION = re.compile(r"\s*".join(f"(?:{_NUMBER}{unit})?" for unit in SECONDS))


def duration(text: str, expected: str = DURATION) -> float:
    """The seconds of a duration: 250ms, 90s, 5m or 5 min, 1h30m, 2d."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(NO_QUOTES if is_number_text(text) else expected)
    parts = zip(found.groups(), SECONDS.values(), strict=True)
    return float(sum(Fraction(number) * seconds for number, seconds in parts if number))


def seconds_or_duration(text: str) -> float:
    """The number of an option in seconds, or the seconds of a duration."""
    return float(text) if is_number_text(text) else duration(text)


def seconds_of(what: str, value: Any) -> Any:
    """The seconds of a duration that a caller gives as text; any other value as it is.

    Raises InputError, which begins with `what`.
    """
    return converted(what, value, duration)


# Sizes.

SIZE = "expected a whole number of bytes, or a size such as 64MB, 512k or 4 GiB"

_SIZE = re.compile(rf"{_NUMBER}(?:([kmgt])(i?))?b?", re.IGNORECASE)


def size(text: str) -> int:
    """The bytes of a size: 512k, 64MB; units with an i are powers of 1024: 4 GiB."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or is_number_text(text):
        raise ValueError(NO_QUOTES if is_number_text(text) else SIZE)
    number, unit, binary = found.groups()
    power = 1 + "kmgt".index(unit.lower()) if unit else 0
    count = Fraction(number) * (1024 if binary else 1000) ** power
    if count.denominator != 1:
        raise ValueError(SIZE)
    return int(count)


def size_text(count: int) -> str:
    """A number of bytes as a size of three digits: 4 GiB, 1.5 GiB, 512 KiB, 100 bytes."""
    if count < 1024:
        return f"{count} bytes"
    power = min(4, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.3g} {'KMGT'[power - 1]}iB"


# Parts of a cluster.

PART = "expected a whole number of slots, or a part of the cluster such as 50%, at most 100%"

_PERCENT = re.compile(rf"{_NUMBER}%")


@dataclass(frozen=True, slots=True, order=True)
class Percent:
    """A part of what a cluster has, as in `slots_max: 50%`."""

    value: float

    @classmethod
    def of(cls, text: str) -> Percent:
        """The part that is stated as 50%."""
        found = _PERCENT.fullmatch(text.strip())
        if found is None or not 0 < float(found[1]) <= 100:
            raise ValueError(NO_QUOTES if is_number_text(text) else PART)
        return cls(float(found[1]))

    def of_total(self, total: int, least: int = 0) -> int:
        """This part of a whole number, rounded down, but at least `least`."""
        return max(least, int(Fraction(str(self.value)) * total / 100))

    def __str__(self) -> str:
        return f"{self.value:g}%"


def share_of(what: str, value: Any) -> Any:
    """The part that a caller gives as text; any other value as it is.

    Raises InputError, which begins with `what`.
    """
    return converted(what, value, Percent.of)


def converted(what: str, value: Any, convert: Callable[[str], Any]) -> Any:
    """What text stands for; any other value as it is. InputError that begins with `what`."""
    if not isinstance(value, str):
        return value
    try:
        return convert(value)
    except ValueError as error:
        raise InputError(f"{what} is {shown(value)}; {error}") from None
