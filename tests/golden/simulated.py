"""Golden logs of simulations."""

from __future__ import annotations

from golden.golden import Case


def cases() -> dict[str, Case]:
    """The cases by name."""
    return {}
