"""How many random cases a test tries: a few by default, all of them with `--slow`."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, *, slow: int) -> int:
    """The number of cases for this run of the tests."""
    is_slow = settings.default.max_examples == settings.get_profile("slow").max_examples
    return slow if is_slow else few
