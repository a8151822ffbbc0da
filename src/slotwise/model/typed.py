"""Whether a value that a user gives has the right type; other code checks its range."""

from __future__ import annotations

from math import isfinite
from numbers import Integral, Real

from slotwise.model.errors import InputError

NUMBER = (int, float, Real)
"""The types of numbers; those of NumPy are among them."""

WHOLE = (int, Integral)
"""The types of whole numbers."""

SECONDS_MOST = 1e100
"""The longest time of a task: sums and products of such numbers do not overflow."""


def is_number(value: object) -> bool:
    """Whether it is a number; True and False are none."""
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, WHOLE) and not isinstance(value, bool)


def check_text(what: str, value: object) -> None:
    """InputError unless it is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} is {value!r}; give a text that is not empty")


def check_whole(what: str, value: object, least: int = 1) -> None:
    """InputError unless it is a whole number of at least this."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{what} is {value!r}; give a whole number >= {least}")


def check_number(what: str, value: object) -> None:
    """InputError unless it is a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{what} is {value!r}; give a number")
    if not isfinite(value):
        raise InputError(f"{what} is {value!r}; give a finite number")


def check_seconds(what: str, value: object) -> None:
    """InputError unless it is a finite number of at least 0."""
    check_number(what, value)
    assert isinstance(value, int | float)
    if value < 0:
        raise InputError(f"{what} is {value!r}; give seconds >= 0")
