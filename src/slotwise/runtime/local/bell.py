"""Ends the wait of a poll from another thread."""

from __future__ import annotations

import os
import threading


class Wakeup:
    """An event descriptor, `channel`, that is readable from `ring` until `reset`."""

    def __init__(self) -> None:
        self.channel = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._has_rung = False

    def ring(self) -> None:
        """May be called from any thread; no effect after `close`."""
        if not self._has_rung:
            self._has_rung = True
            with self._lock:
                if self.channel >= 0:
                    os.eventfd_write(self.channel, 1)

    def reset(self) -> None:
        """It has rung: call this before looking for the reason."""
        self._has_rung = False
        os.eventfd_read(self.channel)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        with self._lock:
            if self.channel >= 0:
                os.close(self.channel)
                self.channel = -1
