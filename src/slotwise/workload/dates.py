"""Dates and times of day in workload files, as seconds on the clock of arrivals.

The functions that take text raise ValueError with what is expected instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from slotwise.core.units import DURATION, converted, duration

INSTANT = f"{DURATION}, or a date and time such as 2026-11-27T17:00, or a time such as 17:00"

NO_START = (
    "a plan or a simulation with dates and times needs `start`, the date and time at which its"
    " clock begins; add it to the file, such as start: 2026-11-27T08:00"
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
        try:
            return clock.seconds(text.strip(), is_after)
        except OverflowError as error:  # After the year 9999.
            raise ValueError(f"there is no such date or time ({error})") from None
    if _DAY.fullmatch(text.strip()):
        raise ValueError(f"expected a time, too, as in {text.strip()}T17:00")
    return duration(text, INSTANT)


def day_after(text: object, at: float, clock: Clock) -> str:
    """The date and time that a time of day means, if it is not that of the first day, or "".

    `at` is the instant that it means, in seconds on the clock.
    """
    found = _DATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or found[1]:
        return ""
    zone = _zone(found[3]) or clock.zone
    meant = (clock.start + timedelta(seconds=at)).astimezone(zone)
    is_today = meant.date() == clock.start.astimezone(zone).date()
    return "" if is_today else f"{meant:%Y-%m-%d %H:%M}"


def seconds_until(what: str, value: Any) -> Any:
    """The seconds from now to an instant that is stated as text; any other value as it is.

    Raises InputError, which begins with `what`.
    """
    clock = Clock(datetime.now().astimezone(), is_now=True)
    return converted(what, value, lambda text: instant(text, clock, is_after=True))


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
    """An instant with a fixed offset from UTC, so that differences are the time that passes."""
    try:
        return naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError(f"there is no such date or time ({error})") from None
