"""Values as people write them: durations, dates, sizes and parts in percent.

The functions that take text raise ValueError with what is expected instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
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

SECONDS = {"d": 86_400, "h": 3600, "(?:min|m)": 60, "s": 1, "ms": Fraction(1, 1000)}
"""The units of durations in the order in which they are combined, and their seconds."""

_DURATION = re.compile(r"\s*".join(f"(?:{_NUMBER}{unit})?" for unit in SECONDS))


def duration(text: str, expected: str = DURATION) -> float:
    """The seconds of a duration: 250ms, 90s, 5m or 5 min, 1h30m, 2d."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(NO_QUOTES if is_number_text(text) else expected)
    parts = zip(found.groups(), SECONDS.values(), strict=True)
    return float(sum(Fraction(number) * seconds for number, seconds in parts if number))


def seconds_of(what: str, value: Any) -> Any:
    """The seconds of a duration that a caller gives as text; any other value as it is.

    Raises InputError, which begins with `what`.
    """
    return _converted(what, value, duration)


# Dates and times of day.

INSTANT = f"{DURATION}, or a date and time such as 2026-11-27T17:00, or a time such as 17:00"

NO_START = (
    "a date or a time of day needs a beginning, and only live work begins now; add to the file"
    " when its clock begins, such as `start: 2026-11-27T08:00`"
)

_TIME = r"(\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(Z|[+-]\d{2}:\d{2})?"
_DATE = re.compile(rf"(?:(\d{{4}}-\d{{2}}-\d{{2}})[T ])?{_TIME}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Clock:
    """When the clock of arrivals begins.

    start   the date and time of 0 s, with its offset from UTC
    zone    the zone of dates and times without an offset; None: that of this machine
    is_now  it is the present time, so that earlier dates are in the past
    """

    start: datetime
    zone: tzinfo | None = None
    is_now: bool = False

    @classmethod
    def stated(cls, text: object) -> Clock:
        """The clock that begins at a date and time. Its offset is that of other dates, too."""
        found = _DATE.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None or found[1] is None:
            raise ValueError("expected a date and a time, such as 2026-11-27T08:00")
        zone = _zone(found[3])
        return cls(_aware(_naive(found[1], found[2]), zone), zone)

    def seconds(self, text: str, is_after: bool = False) -> float:
        """The seconds from the beginning to a date and time, or to the next time of day.

        A time of day is that of the beginning itself, too, unless it `is_after` it. ValueError
        if it is before the beginning.
        """
        found = _DATE.fullmatch(text)
        assert found is not None
        zone = _zone(found[3]) or self.zone
        day = found[1] or str(self.start.astimezone(zone).date())
        naive = _naive(day, found[2])
        at = (_aware(naive, zone) - self.start).total_seconds()
        if found[1] is None and (at < 0 or (is_after and at == 0)):
            at = (_aware(naive + timedelta(days=1), zone) - self.start).total_seconds()
        if at < 0:
            start = self.start.astimezone(self.zone).isoformat(" ", "seconds")
            what = f"it is past; it is now {start}" if self.is_now else f"the start is {start}"
            raise ValueError(f"{what}; expected a later date")
        return at


def instant(text: str, clock: Clock | None, is_after: bool = False) -> float:
    """The seconds from the beginning of a clock to an instant that is stated in any form.

    It is a duration, a date and time, or a time of day. Without a clock, only a duration.
    """
    if _DATE.fullmatch(text.strip()):
        if clock is None:
            raise ValueError(NO_START)
        return clock.seconds(text.strip(), is_after)
    if _DAY.fullmatch(text.strip()):
        raise ValueError(f"expected a time, too, as in {text.strip()}T17:00")
    return duration(text, INSTANT)


def _naive(day: str, time: str) -> datetime:
    try:
        return datetime.fromisoformat(f"{day}T{time.zfill(5) if len(time) < 5 else time}")
    except ValueError as error:
        raise ValueError(f"there is no such date or time ({error})") from None


def _zone(offset: str | None) -> tzinfo | None:
    if offset is None:
        return None
    try:
        return datetime.fromisoformat(f"2000-01-01T00:00{offset}").tzinfo
    except ValueError as error:
        raise ValueError(f"there is no such offset ({error})") from None


def _aware(naive: datetime, zone: tzinfo | None) -> datetime:
    """An instant in UTC, because differences of others would leave out changes of the clock."""
    try:
        local = naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
        return local.astimezone(UTC)
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError(f"there is no such date or time ({error})") from None


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


# Parts of the slots of a cluster.

PART = "expected a whole number of slots, or a part of the cluster, above 0% and at most 100%"

_PERCENT = re.compile(rf"{_NUMBER}%")


@dataclass(frozen=True, slots=True, order=True)
class Percent:
    """A part of the slots of a cluster, as in `slots_max: 50%`."""

    value: float

    @classmethod
    def of(cls, text: str) -> Percent:
        """The part that is stated as 50%."""
        found = _PERCENT.fullmatch(text.strip())
        if found is None or not 0 < float(found[1]) <= 100:
            raise ValueError(NO_QUOTES if is_number_text(text) else PART)
        return cls(float(found[1]))

    def of_slots(self, total: int, least: int = 0) -> int:
        """This part of a number of slots, rounded down, but at least `least`."""
        return max(least, int(Fraction(str(self.value)) * total / 100))

    def __str__(self) -> str:
        return f"{self.value:g}%"


def share_of(what: str, value: Any) -> Any:
    """The part that a caller gives as text; any other value as it is.

    Raises InputError, which begins with `what`.
    """
    return _converted(what, value, Percent.of)


def _converted(what: str, value: Any, convert: Callable[[str], Any]) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return convert(value)
    except ValueError as error:
        raise InputError(f"{what} is {shown(value)}; {error}") from None
