"""Machine code: compiled on demand, cached if possible."""

from __future__ import annotations

import sys

import pytest

numba = pytest.importorskip("numba", reason="needs slotwise[fast]")

from slotwise.policy.compiled import compiled, has_numba, part  # noqa: E402


def double(x: float) -> float:
    """A function in a file, so that its machine code can be kept."""
    return 2 * x


def test_a_function_is_compiled_once() -> None:
    """A second call with the same types returns the same machine code."""
    fast = compiled(double, "float64(float64)")
    assert fast(1.5) == 3.0
    assert compiled(double, "float64(float64)") is fast


def test_a_kernel_that_cannot_be_cached_is_compiled() -> None:
    """A function without a file has no place in the cache, as in a read-only install."""
    names: dict[str, object] = {}
    exec("def triple(x):\n    return 3 * x", names)
    fast = compiled(names["triple"], "float64(float64)")  # type: ignore[arg-type]
    assert fast(1.5) == 4.5


def test_a_full_disk_does_not_prevent_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system error while caching is ignored: the code is compiled again."""
    asked = []

    def njit(signature: str, cache: bool = False, **options: object) -> object:
        asked.append(cache)
        if cache:
            raise OSError("no space left on device")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(double, "int64(int64)")(2) == 4
    assert asked == [True, False]


def test_a_numba_that_fails_to_import_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is installed, but not for this numpy: Python serves as if it were missing."""
    monkeypatch.setitem(sys.modules, "numba", None)
    has_numba.cache_clear()
    assert not has_numba()
    monkeypatch.undo()
    has_numba.cache_clear()
    assert has_numba()


def test_a_part_may_be_called_by_machine_code() -> None:
    """A compiled function that calls one that is not a part would fail."""
    half = part(lambda x: x / 2)

    def quarter(x: float) -> float:
        return half(half(x))

    assert compiled(quarter, "float64(float64)")(6.0) == 1.5
