"""The reason for the failure of a job, in one line."""

from __future__ import annotations

from slotwise.story import error_line

_OUTPUT = "the last lines of its stderr:"
_HEADINGS = (
    "+ Exception Group Traceback (most recent call last):",
    "Traceback (most recent call last):",
    _OUTPUT,
)
"""What stands at the end of the first line if the lines between are left out."""


def in_short(reason: str) -> str:
    """The first line of a reason, which names the task, and the one that names the error.

    Of output it is the last line. The rest of the traceback or output is left out. A reason of
    one line is unchanged.
    """
    first, *rest = reason.strip().splitlines() or [""]
    if not rest:
        return first
    named = rest[-1].strip() if first.endswith(_OUTPUT) else error_line(reason)
    for heading in _HEADINGS:
        first = first.removesuffix(heading).rstrip()
    return f"{first.strip()} {named}".strip()
