"""How an error of user code is shown: its traceback as text, without the frames of slotwise."""

from __future__ import annotations

import os
import re
from types import TracebackType

_MARGIN = re.compile("^ *[|+] ")
"""What stands before each line about an exception group."""


def format_traceback(error: BaseException) -> str:
    """The traceback as text, from the first frame of user code on, if there is one.

    It is preceded by the input that was being read, if the error carries it. Errors of slotwise
    are shown without a traceback.
    """
    if type(error).__module__ == "slotwise.core.errors":
        return str(error)
    import traceback

    trace = error.__traceback__.tb_next if error.__traceback__ else None
    error.__traceback__ = without_ours(trace) or trace
    where = vars(error).get("slotwise_where", "")  # See slotwise.jobs.formats.splits.
    text = "".join(traceback.format_exception(error)).strip()
    return f"{where}: {text}" if where else text


def error_line(text: str) -> str:
    """The line of a traceback that names the error, without the rest of its message and notes.

    The last line of text that has no traceback.
    """
    lines = [_MARGIN.sub("", line) for line in text.rstrip().splitlines()] or [""]
    frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    after = lines[frames[-1] + 1 :] if frames else []
    return next((line for line in after if not line.startswith(" ")), lines[-1]).strip()


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins outside the slotwise package."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    while trace and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    return trace
