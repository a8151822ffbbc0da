"""Large problems by machine code: functions of this package, compiled by numba when needed.

numba is the extra `fast`. It is imported by the first problem that is large enough to gain by
it, and where it is missing the same function runs as Python, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

FLOATS, INTS = "float64[::1]", "int64[::1]"
"""Arrays as numba writes their types."""

Numbers = Any
"""A list or an array of floats, or of ints: whichever the caller runs a function on."""


@cache
def has_numba() -> bool:
    """Whether numba can be used. This imports it: ask only where machine code would pay."""
    try:
        import numba  # noqa: F401
    except ImportError:  # Missing, or it refuses the numpy that is installed.
        return False
    return True


@cache
def compiled(function: Callable[..., Any], signature: str) -> Callable[..., Any]:
    """The function as machine code, for arguments of these types. ImportError without numba.

    function   in the part of Python that numba knows; of ours it may only call what is a `part`
    signature  as numba writes it: "int64(float64[::1], int64)"

    The machine code is kept in numba's cache for the next process: about 0.3 s instead of some
    seconds. Where neither the package's directory nor the user's cache can be written to, it
    is made anew in each process.
    """
    from numba import njit

    try:
        kernel: Callable[..., Any] = njit(signature, cache=True)(function)
    except (RuntimeError, OSError):
        kernel = njit(signature)(function)
    return kernel


Part = TypeVar("Part", bound=Callable[..., Any])


def part(function: Part) -> Part:
    """The function as something that compiled ones may call. ImportError without numba."""
    from numba import njit

    called: Part = njit(function)
    return called
