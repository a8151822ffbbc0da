"""Golden logs of simulations."""

from __future__ import annotations

from golden import documented, drawn, features
from golden.golden import Case


def cases() -> dict[str, Case]:
    """The cases by name."""
    return documented.cases() | drawn.cases() | features.cases()
