"""The fixture that runs scenarios on each backend."""

from __future__ import annotations

from backends.test_backends import stage

__all__ = ["stage"]
