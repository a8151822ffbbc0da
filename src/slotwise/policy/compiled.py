"""Machine code for large problems: functions of this package, compiled by numba on demand.

numba is the extra `fast`. The first problem that is large enough to benefit imports it. Without
numba the same function runs as Python, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, Literal, TypeVar

FLOATS, INTS = "float64[::1]", "int64[::1]"
"""Array types in numba's notation."""

Numbers = Any
"""A list or an array of floats or of ints, as the caller passes it."""


@cache
def has_numba() -> bool:
    """Whether numba can be used. Imports numba: call this only where machine code pays off."""
    try:
        import numba  # noqa: F401
    except ImportError:  # Missing, or it refuses the numpy that is installed.
        return False
    return True


@cache
def compiled(
    function: Any,
    signature: Any,
    never_by_zero: bool = False,
    releases_gil: bool = False,
    parts: tuple[Callable[..., Any], ...] = (),
) -> Callable[..., Any]:
    """The function as machine code for arguments of these types. ImportError without numba.

    function   in the subset of Python that numba supports; of this package's functions it may
               only call `parts`, and those made by `part`
    signature  in numba's notation: "int64(float64[::1], int64)", or made of its types
    parts      the functions of the same module that it calls, each after those it calls itself

    `never_by_zero` states that it never divides by 0: without checks for that, machine code
    computes several numbers of a loop at once. With `releases_gil`, threads run beside it.

    numba's cache keeps the machine code for later processes: about 0.3 s instead of some
    seconds. If neither the package's directory nor the user's cache is writable, each process
    compiles again.
    """
    from numba import njit

    errors: Literal["python", "numpy"] = "numpy" if never_by_zero else "python"
    names = dict(function.__globals__)  # Where the parts are machine code, too.
    for one in parts:
        names[one.__name__] = njit(error_model=errors, nogil=releases_gil)(_with(one, names))
    whole = _with(function, names) if parts else function
    try:
        kernel: Callable[..., Any] = njit(
            signature, cache=True, error_model=errors, nogil=releases_gil
        )(whole)
    except (RuntimeError, OSError):
        kernel = njit(signature, error_model=errors, nogil=releases_gil)(whole)
    return kernel


def _with(function: Any, names: dict[str, Any]) -> Any:
    """The same function with other globals."""
    found = FunctionType(function.__code__, names, function.__name__)
    found.__module__, found.__qualname__ = function.__module__, function.__qualname__
    return found


def is_loaded() -> bool:
    """Whether a function runs as machine code already, so that others cost little to load."""
    return compiled.cache_info().currsize > 0


Part = TypeVar("Part", bound=Callable[..., Any])


def part(function: Part) -> Part:
    """The function in a form that compiled functions can call. ImportError without numba."""
    from numba import njit

    called: Part = njit(function)
    return called
