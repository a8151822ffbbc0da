"""The check that pyarrow is installed."""

from __future__ import annotations

from importlib.util import find_spec

from slotwise.model.errors import MissingExtraError


def require_arrow(wanted_for: str) -> None:
    """Raise MissingExtraError, naming the feature that needs it, if pyarrow is missing."""
    if find_spec("pyarrow") is None:
        raise MissingExtraError(wanted_for, "arrow")
