"""The error of a call whose worker process ended abruptly, several times."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool

from slotwise.model.errors import SlotwiseError


class LostCallError(SlotwiseError, BrokenProcessPool):
    """The worker process of a call ended abruptly, several times.

    Code that expects the error of a ProcessPoolExecutor catches it, too. The executor is not
    broken: other calls continue, and further ones are accepted.
    """
