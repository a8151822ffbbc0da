"""Attach to an error the input file, and the position in it, where it was raised."""

from __future__ import annotations

from typing import TypeVar

_Error = TypeVar("_Error", bound=Exception)

WHERE = "slotwise_where"
"""The attribute with the position; a worker process prints it before the traceback."""


def placed(error: _Error, where: str) -> _Error:
    """Attach a position to an error, and return the error."""
    vars(error)[WHERE] = where
    return error


def is_placed(error: Exception) -> bool:
    """Whether an error has a position."""
    return WHERE in vars(error)
