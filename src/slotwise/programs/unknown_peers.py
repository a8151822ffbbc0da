"""Peers that have connected and have not proved yet that they may: how many, and how long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

MAX_UNKNOWN = 256
"""The number of peers that are not authenticated; the oldest is dropped for another one."""

GREETING_SECONDS = 10.0
"""How long a peer may take to authenticate itself."""

MAX_REFUSALS, REFUSAL_SECONDS = 10, 60.0
"""At most so many refused connections are logged in so many seconds; others are counted."""

Peer = TypeVar("Peer")


class UnknownPeers(Generic[Peer]):
    """The peers that are being greeted, the oldest first. All threads may use it."""

    def __init__(
        self,
        drop: Callable[[Peer], None],
        most: int = MAX_UNKNOWN,
        is_known: Callable[[Peer], bool] = lambda peer: False,
    ) -> None:
        """`drop` ends the connection of a peer; those that are known are dropped last."""
        self._drop, self._most, self._is_known = drop, most, is_known
        self._peers: list[Peer] = []
        self._lock = Lock()

    def add(self, peer: Peer) -> None:
        """Add a peer; if there are too many then, drop the oldest."""
        with self._lock:
            if len(self._peers) >= self._most:
                self._drop_oldest()
            self._peers.append(peer)

    def remove(self, peer: Peer) -> bool:
        """Forget a peer: it has been greeted, or is gone. False if it was dropped before."""
        with self._lock:
            if peer not in self._peers:
                return False
            self._peers.remove(peer)
            return True

    def drop_oldest(self) -> bool:
        """Make room for another one; False if there is no peer."""
        with self._lock:
            if self._peers:
                self._drop_oldest()
                return True
            return False

    def _drop_oldest(self) -> None:
        unknown = (peer for peer in self._peers if not self._is_known(peer))
        oldest = next(unknown, self._peers[0])
        self._peers.remove(oldest)
        self._drop(oldest)

    def __iter__(self) -> Iterator[Peer]:
        with self._lock:
            return iter(list(self._peers))

    def __len__(self) -> int:
        return len(self._peers)


class RefusalLog:
    """Logs refused connections on stderr at a bounded rate. All threads may use it."""

    def __init__(self, who: str, clock: Callable[[], float] = monotonic) -> None:
        """`who` begins each line."""
        self._who, self._clock = who, clock
        self._began, self._count = clock(), 0
        self._lock = Lock()

    def add(self, reason: object) -> None:
        """Log that a connection was refused, or count it if too many were logged lately.

        The first line after that has the number of those that were only counted.
        """
        with self._lock:
            now, left_out = self._clock(), 0
            if now - self._began >= REFUSAL_SECONDS:
                left_out = max(0, self._count - MAX_REFUSALS)
                self._began, self._count = now, 0
            self._count += 1
            if self._count > MAX_REFUSALS:
                return
        more = f" ({left_out} others before it were not logged)" if left_out else ""
        print(f"{self._who}: a connection was refused: {reason}{more}", file=sys.stderr)
