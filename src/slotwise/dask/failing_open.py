"""An error in the gate opens it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

logger = logging.getLogger("slotwise.dask")

M = TypeVar("M", bound=Callable[..., None])


def fails_open(method: M) -> M:
    """An error in a method of the gate opens the gate: Dask goes on as without it."""

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.is_open:
            return
        try:
            method(self, *args, **kwargs)
        except Exception:
            logger.exception("the gate has failed; all tasks run as without it")
            self.open()

    return guarded  # type: ignore[return-value]
