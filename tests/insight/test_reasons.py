"""Reasons for failures in one line."""

from __future__ import annotations

import pytest

from slotwise.core.tracebacks import format_traceback
from slotwise.insight.report.text import in_short


def _noted() -> None:
    error = ValueError("the error\nand more of it")
    error.add_note("a note")
    raise error


def _chained() -> None:
    try:
        _noted()
    except ValueError:
        raise KeyError("the last") from None


def _during() -> None:
    try:
        _noted()
    except ValueError as error:
        raise KeyError("the last") from error


def _group() -> None:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("other")])


@pytest.mark.parametrize(
    ("raises", "named"),
    [
        (_noted, "ValueError: the error"),
        (_chained, "KeyError: 'the last'"),
        (_during, "KeyError: 'the last'"),
        (_group, "ExceptionGroup: several (2 sub-exceptions)"),
        (lambda: compile("1 +", "made", "exec"), "SyntaxError: invalid syntax"),
    ],
)
def test_the_error_is_named_without_its_notes(raises: object, named: str) -> None:
    """Python writes notes, and errors of a group, after the line of the error."""
    assert callable(raises)
    with pytest.raises(Exception) as raised:  # noqa: PT011
        raises()
    assert (
        in_short(f"map task 0 of job a: {format_traceback(raised.value)}")
        == f"map task 0 of job a: {named}"
    )


def test_of_output_the_last_line_is_shown() -> None:
    """A traceback in it may be of an error that the command survived."""
    output = (
        'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1\nno space left'
    )
    ended = "the command exited with code 1"
    reason = f"task 0 of job a: the last lines of its stderr:\n{output}\n{ended}"
    assert in_short(reason) == f"task 0 of job a: no space left; {ended}"
    place = "its output: /logs/a/0.1.err"
    assert in_short(f"{reason}\n{place}") == f"task 0 of job a: no space left; {ended}; {place}"


@pytest.mark.parametrize("reason", ["", "a line", "a line "])
def test_a_line_is_itself(reason: str) -> None:
    """There is nothing to leave out."""
    assert in_short(reason) == reason.strip()
