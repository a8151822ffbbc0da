"""How much the users of a network may ask at once: requests, bytes, streams, wrong tokens."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

REQUESTS_PER_SECOND, REQUESTS_AT_ONCE = 200.0, 2_000.0
"""The rate of requests of a user in the long run, and how many may come at once."""

WRONG_PER_SECOND, WRONG_AT_ONCE = 0.5, 20.0
"""The same for wrong tokens and codes of an address. Right ones are accepted all the same, so
that nobody locks others out."""

OPEN_MAX = 100
"""The most requests of a user that are open at once, streams among them."""

HANDLED_MAX = 6
"""The most requests of a user that are handled at once; others wait. It has 40 threads."""

BODY_BYTES_MAX = 256 << 20
"""The most bytes in the bodies of all open requests of a user."""

BODY_SECONDS = 30.0
"""How long the next piece of a body may take."""

BODY_BYTES_PER_SECOND = 4096.0
"""The least rate of a body, after `BODY_SECONDS`."""

KEYS_MAX = 10_000
"""The most users and addresses whose rates are remembered."""


class RateLimit:
    """The rate of events of users or addresses."""

    def __init__(
        self, per_second: float, at_once: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second, self._at_once, self._clock = per_second, at_once, clock
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, key: str) -> float:
        """Count an event; the seconds for which it comes too early, and is not counted."""
        now = self._clock()
        left, at = self._left.pop(key, (self._at_once, now))  # The last ones come last.
        left = min(self._at_once, left + (now - at) * self._per_second)
        if len(self._left) >= KEYS_MAX:
            for old in list(islice(self._left, KEYS_MAX // 2)):
                del self._left[old]
        is_early = left < 1.0
        self._left[key] = left if is_early else left - 1.0, now
        return (1.0 - left) / self._per_second if is_early else 0.0


@dataclass(slots=True)
class UserLoad:
    """What a user asks now: its open requests, and the bytes of their bodies."""

    requests: int = 0
    bytes: int = 0
    handled: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(HANDLED_MAX))


def group_of(address: str) -> str:
    """What counts as one address: of IPv6 the network of a host."""
    if ":" not in address:
        return address
    packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    if packed[:12] == bytes(10) + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return packed[:8].hex()
