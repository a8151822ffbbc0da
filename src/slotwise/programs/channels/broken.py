"""The error of a channel that carries no more records because one of its ends failed."""

from __future__ import annotations


class BrokenChannelError(BaseException):
    """An end of the channel failed, or its process has gone; `reason` says which and why.

    It is no Exception, so that `except Exception` in user code does not catch it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
