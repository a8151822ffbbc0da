"""Whether a value that a user gives has the right type; other code checks its range."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from slotwise.model.errors import InputError

NUMBER = (int, float, Real)
"""The types of numbers; those of NumPy are among them."""

WHOLE = (int, Integral)
"""The types of whole numbers."""

MAX_SECONDS = 1e100
"""The longest time of a task: sums and products of such numbers do not overflow."""

MAX_TIME = 1e10
"""Seconds, about 300 years; floats would be too coarse for later instants."""

MAX_NUMBER = 1e12
"""The maximum of weights, speeds and costs: sums of many stay finite and precise enough."""

MIN_NUMBER = 1e-12
"""The minimum of positive numbers; smaller ones are lost in sums."""

MAX_FLOAT = 1.7e308
"""The largest float, about; an integer may be larger."""

MAX_WHOLE = 10**12
"""The maximum of a count; a larger one is taken for a typing error."""

MAX_SHOWN = 80
"""The maximum number of characters of a value that a message shows."""


def is_number(value: object) -> bool:
    """Whether it is a number; True and False are none."""
    return isinstance(value, NUMBER) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, WHOLE) and not isinstance(value, bool)


def check_range(
    what: str, value: object, least: float, most: float, remedy: str, whole: bool = False
) -> None:
    """InputError unless it is a number, or a whole number, from `least` to `most`.

    A number that is an integer may have any number of digits.
    """
    is_right = is_whole(value) if whole else is_number(value)
    if not is_right or not least <= value <= most:  # type: ignore[operator]
        raise InputError(f"{what} is {shown(value)}; {remedy}")


def check_positive(what: str, value: object) -> None:
    """InputError unless it is a positive number whose sums and products do not overflow."""
    remedy = f"give a number > 0, from {MIN_NUMBER:g} to {MAX_NUMBER:g}"
    check_range(what, value, MIN_NUMBER, MAX_NUMBER, remedy)


def check_time(what: str, value: object) -> None:
    """InputError unless it is a number of seconds that instants can be as large as."""
    check_range(what, value, 0, MAX_TIME, f"give seconds >= 0, at most {MAX_TIME:g}")


def shown(value: object) -> str:
    """A value as messages show it: in Python's notation, its first characters at least."""
    try:
        text = repr(value)
    except Exception as error:  # Of a user's class, or an integer of too many digits.
        return f"a value of type {type(value).__name__} ({error})"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def check_name(what: str, value: object) -> None:
    """InputError unless it is a text."""
    if not isinstance(value, str):
        raise InputError(f"{what} is {shown(value)}; give a text")


def check_type(what: str, value: object, kinds: Any, remedy: str) -> None:
    """InputError unless it is of one of these types."""
    if not isinstance(value, kinds):
        raise InputError(f"{what} is {shown(value)}; {remedy}")


def check_all(what: str, values: object, kinds: Any, remedy: str) -> None:
    """InputError unless they are a list or a tuple of values of one of these types."""
    if not isinstance(values, list | tuple) or not all(isinstance(v, kinds) for v in values):
        raise InputError(f"{what} is {shown(values)}; {remedy}")


def check_path(what: str, value: object, optional: bool = True) -> None:
    """InputError unless it is a path, or None if it is optional."""
    is_path = isinstance(value, str) or hasattr(value, "__fspath__")
    if not is_path and (value is not None or not optional):
        raise InputError(f"{what} is {shown(value)}; give a path, as a text or a Path")


def check_text(what: str, value: object) -> None:
    """InputError unless it is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} is {value!r}; give a text that is not empty")


def check_whole(what: str, value: object, least: int = 1) -> None:
    """InputError unless it is a whole number of at least this."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{what} is {value!r}; give a whole number >= {least}")
    if value > MAX_WHOLE:
        raise InputError(f"{what} is {shown(value)}; give a whole number <= {MAX_WHOLE}")


def check_number(what: str, value: object) -> None:
    """InputError unless it is a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{what} is {value!r}; give a number")
    if not abs(value) <= MAX_FLOAT:
        raise InputError(f"{what} is {shown(value)}; give a finite number")


def check_seconds(what: str, value: object) -> None:
    """InputError unless it is a finite number of at least 0."""
    check_number(what, value)
    assert isinstance(value, int | float)
    if value < 0:
        raise InputError(f"{what} is {value!r}; give seconds >= 0")
