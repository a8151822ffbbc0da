"""Text for readers: numbers with units, escaped names, colours and short reasons."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from slotwise.core.tracebacks import error_line

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


def counted(number: int, noun: str) -> str:
    """A number of things, such as "1 job" or "1,200 jobs"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def rounded_size(value: int | None) -> str:
    """A size in bytes with two or three significant digits and its unit."""
    if value is None:
        return MISSING
    power = min(4, max(0, (value.bit_length() - 1) // 10))
    symbol = ("bytes", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{value / 1024**power:.3g} {symbol}"


def seconds(value: float | None) -> str:
    """A time or duration with its unit."""
    if value is None:
        return MISSING
    unit = unit_for(abs(value))
    return f"{number(value / unit.seconds)} {unit.symbol}"


def instant(value: float) -> str:
    """A time on the clock of a run, never finer than a tenth of a second."""
    return f"{value:.1f} s" if value < 100 else seconds(value)


def roughly(value: float) -> str:
    """An estimate of a duration, such as "~2 min"."""
    for symbol, size in (("s", 1.0), ("min", 60.0), ("h", 3600.0)):
        if value < 90 * size or symbol == "h":
            break
    return f"~{max(1, round(value / size)):,} {symbol}"


def in_states(numbers: Mapping[str, int]) -> str:
    """The numbers of jobs by state, such as "40 done, 2 failed"; zeros are left out."""
    return ", ".join(f"{number:,} {state}" for state, number in numbers.items() if number)


def percent(share: float | None) -> str:
    """A share of 1 as a percentage; values closer to 0 than ROUNDING are 0."""
    if share is None:
        return MISSING
    size = abs(share)
    if size < 1e-3:
        return f"{number(100 * share if size >= ROUNDING else 0.0)} %"
    return f"{100 * share:,.0f} %" if size >= 0.1 else f"{100 * share:.1f} %"


# Safe printing of text from users: terminals interpret control characters.

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters that change the text direction, and lone surrogates."""


def printable(text: str, *, lines: bool = False) -> str:
    """Escape unsafe characters as in Python: an escape character becomes "\\x1b".

    With `lines`, line breaks and tabs are kept.
    """
    return _OBEYED.sub(lambda match: _escaped(match[0], lines), text)


def _escaped(character: str, lines: bool) -> str:
    if lines and character in "\n\t":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()


# Colours of jobs, the same in every picture, and distinguishable by colour-blind readers.

INK = "#1f2933"
MUTED = "#7b8794"
RULE = "#d9dee4"
BAD = "#c1121f"
BAR = "#9fb3c8"
BEST = "#2f6690"

DARK = {
    "white": "#1b222b",
    INK: "#e4e9ee",
    MUTED: "#9aa6b2",
    RULE: "#3a4551",
    BAD: "#ff7b72",
    BAR: "#50647a",
    BEST: "#8ecbf5",
}
"""The colours of paper, text and marks on a dark page, by those on a light page."""

# Hues after Okabe and Ito, and Tol; neighbours differ in lightness as well as in hue.
JOBS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#882255",
    "#a3a33d",
    "#44449c",
    "#d8c271",
    "#d55e00",
)
POOLS = ("#4477aa", "#ccbb44", "#aa3377", "#228833", "#66ccee", "#ee8866", "#999999")
RUNS = ("#0072b2", "#e69f00", "#009e73", "#882255", "#56b4e9", "#7b8794", "#d55e00")

# After the last hue, they repeat in a lighter tint, then in a darker one.
_TINTS = (0.0, 0.4, -0.35)


def job_colours(jobs: Sequence[str]) -> dict[str, str]:
    """A colour for each job, by its position."""
    rounds = [(hue, tint) for tint in _TINTS for hue in JOBS]
    return {job: tinted(*rounds[place % len(rounds)]) for place, job in enumerate(jobs)}


def cycle(names: Sequence[str], colours: Sequence[str]) -> dict[str, str]:
    """A colour for each name, by its position, from a short palette."""
    return {name: colours[place % len(colours)] for place, name in enumerate(names)}


def tinted(colour: str, tint: float) -> str:
    """A colour moved towards white (tint > 0) or black (tint < 0)."""
    goal = 255 if tint > 0 else 0
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    moved = [round(channel + abs(tint) * (goal - channel)) for channel in channels]
    return "#" + "".join(f"{channel:02x}" for channel in moved)


# The reason for the failure of a job, in one line.

_OUTPUT = "the last lines of its stderr:"
_HEADINGS = (
    "+ Exception Group Traceback (most recent call last):",
    "Traceback (most recent call last):",
    _OUTPUT,
)
"""The end of a first line after which lines are left out."""


_FILE = re.compile(r"(; see |\nits output: )/.+\.(out|err)$")
"""The end of a reason with the file of an attempt."""


def without_file(reason: str) -> str:
    """A reason that is the same for all attempts that fail in the same way."""
    return _FILE.sub("", reason)


def in_short(reason: str) -> str:
    """Shorten a reason to its first line, with the task, and the line with the error.

    The last line of output is taken as the error, followed by how the command ended. The rest
    of the traceback or output is left out. The file of the output, and a reason of one line,
    are unchanged.
    """
    reason, file = reason.strip(), _FILE.search(reason.strip())
    place = f"; {file[0].strip('; ').strip()}" if file else ""
    first, *rest = (reason[: file.start()] if file else reason).splitlines() or [""]
    if not rest:
        return f"{first}{place}"
    if first.endswith(_OUTPUT):
        named = "; ".join(line.strip() for line in rest[-2:])
    else:
        named = error_line("\n".join([first, *rest]))
    for heading in _HEADINGS:
        first = first.removesuffix(heading).rstrip()
    return f"{first.strip()} {named}{place}".strip()
