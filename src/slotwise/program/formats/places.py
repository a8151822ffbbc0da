"""Errors that know in which file of input, and where in it, they arose."""

from __future__ import annotations

from typing import TypeVar

_Error = TypeVar("_Error", bound=Exception)

WHERE = "slotwise_where"
"""The attribute that says it; a worker process puts it before the traceback."""


def placed(error: _Error, where: str) -> _Error:
    """The error, told where it arose."""
    vars(error)[WHERE] = where
    return error


def is_placed(error: Exception) -> bool:
    """Whether an error was told where it arose."""
    return WHERE in vars(error)
