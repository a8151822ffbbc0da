"""News of jobs for the requests that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from threading import Lock
from typing import Any

PENDING_BYTES_MAX = 64 << 20
"""Bytes of news that a request has not taken, after which it gets no more."""

SOON_SECONDS = 0.02
"""How long news that can wait do so for others, with which they are sent."""

_CLIENT = "client "


class HubListener:
    """News for one request, in the event loop of the server."""

    def __init__(self, hub: Hub, topics: Iterable[str]) -> None:
        self._hub, self.topics = hub, set(topics)
        self._loop = asyncio.get_running_loop()
        self._news: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._is_called = self._is_soon = False
        self._bytes = 0
        self.is_overrun = False

    def put(self, item: Any, *, may_wait: bool = False) -> None:
        """Add an item, from any thread. One that `may_wait` is taken with the next, or soon.

        A listener that is too slow is overrun: it gets no more.
        The results are in the store, so its client asks for them when it connects again.
        """
        if self._bytes > PENDING_BYTES_MAX:
            self.is_overrun = True
        if not self.is_overrun:
            self._news.append(item)
            self._bytes += len(item) if isinstance(item, bytes) else 0
        if self._is_called:  # One wake-up of the event loop serves many items.
            return
        if not may_wait:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._arrived.set)
        elif not self._is_soon:
            self._is_soon = True
            self._loop.call_soon_threadsafe(self._loop.call_later, SOON_SECONDS, self._look)

    def _look(self) -> None:
        self._is_soon = False
        if self._news:
            self._arrived.set()

    async def take(self, seconds: float) -> list[Any]:
        """The items that have come; none after this time without any."""
        if not self._news:
            timer = self._loop.call_later(seconds, self._arrived.set)
            try:
                await self._arrived.wait()
            finally:
                timer.cancel()
        self._arrived.clear()
        self._is_called = False  # Before taking, so that later items call again.
        self._bytes = 0  # What comes meanwhile is counted too low by that much, once.
        return [self._news.popleft() for _ in range(len(self._news))]

    def __enter__(self) -> HubListener:
        self._hub.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.remove(self)


class Hub:
    """Passes news to the listeners of a topic: a job or a client. Thread-safe."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[HubListener]] = {}
        self._lock = Lock()

    def add(self, listener: HubListener) -> None:
        """Let a listener get what is published from now on."""
        with self._lock:
            for topic in listener.topics:
                self._listeners.setdefault(topic, set()).add(listener)

    def remove(self, listener: HubListener) -> None:
        """The opposite of `add`."""
        with self._lock:
            for topic in listener.topics:
                if found := self._listeners.get(topic):
                    found.discard(listener)
                    if not found:
                        del self._listeners[topic]

    def clients(self) -> list[str]:
        """The clients that listen."""
        with self._lock:
            return [
                one.removeprefix(_CLIENT) for one in self._listeners if one.startswith(_CLIENT)
            ]

    def publish(self, topic: str, item: Any, *, may_wait: bool = False) -> None:
        """Pass an item to the listeners of a topic. Costs little if there are none."""
        if topic not in self._listeners:
            return
        with self._lock:
            for listener in self._listeners.get(topic, ()):
                listener.put(item, may_wait=may_wait)


def of_job(job: str) -> str:
    """The topic of a job."""
    return f"job {job}"


def of_client(client: str) -> str:
    """The topic of a client: the ends of its calls and jobs."""
    return f"{_CLIENT}{client}"
