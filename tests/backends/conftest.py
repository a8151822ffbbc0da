"""The stage on which stories are played, for all files of stories."""

from __future__ import annotations

from backends.test_worlds import stage

__all__ = ["stage"]
