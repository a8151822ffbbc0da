"""The reason for the failure of a job, in one line."""

from __future__ import annotations

_TRACEBACK = "Traceback (most recent call last):"


def in_short(reason: str) -> str:
    """The first line of a reason, which names the task, and the last, which names the error.

    The traceback between them is left out. A reason of one line is unchanged.
    """
    first, *rest = reason.strip().splitlines() or [""]
    if not rest:
        return first
    task = first.removesuffix(_TRACEBACK).strip()
    return f"{task} {rest[-1].strip()}".strip()
