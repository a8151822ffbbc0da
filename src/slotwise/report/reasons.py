"""The reason for the failure of a job, in one line."""

from __future__ import annotations

_HEADINGS = ("Traceback (most recent call last):", "the last lines of its stderr:")
"""What stands at the end of the first line if the lines between are left out."""


def in_short(reason: str) -> str:
    """The first line of a reason, which names the task, and the last, which names the error.

    The traceback or output between them is left out. A reason of one line is unchanged.
    """
    first, *rest = reason.strip().splitlines() or [""]
    if not rest:
        return first
    for heading in _HEADINGS:
        first = first.removesuffix(heading)
    task = first.strip()
    return f"{task} {rest[-1].strip()}".strip()
