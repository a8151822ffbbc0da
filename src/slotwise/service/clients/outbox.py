"""What a client sends to its server, in order, by one thread, across restarts of the server."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from slotwise.service.clients.transport import NoServerError, ServerClosedError, Transport

BATCH_BYTES = 8 << 20
"""The bytes after which no further frame is added to a request."""

PAUSE_SECONDS = 0.02
"""The pause after the first failure to reach a server; it doubles, up to the next number."""

PAUSE_SECONDS_MAX = 1.0
"""The longest pause."""

T = TypeVar("T")

Requests = Callable[[], object]
"""Any other requests than frames of calls."""


class CallOwner(Protocol):
    """A job of calls, for the frames that it has sent."""

    key: str


class Sent(NamedTuple):
    """A frame of `POST /v1/calls`, of which stream; `number` is that of a call."""

    frame: bytes
    owner: CallOwner
    number: int | None = None


class Outbox:
    """Sends frames of calls: all that have come meanwhile are one request.

    A request that gets no answer is repeated until the server has restarted. It changes nothing
    if the server had accepted it.
    """

    def __init__(
        self,
        transport: Transport,
        seconds: float,
        accepted: Callable[[Mapping[str, Any]], None],
        refused: Callable[[Sequence[Sent], Exception], None],
    ) -> None:
        """`seconds` is for how long a request is repeated.

        `accepted` gets the answer to frames, which are durable then; `refused` the frames that
        were not accepted, and why.
        """
        self._transport, self._seconds = transport, seconds
        self._accepted, self._refused = accepted, refused
        self._queue: deque[Sent | Requests] = deque()
        self._changed = threading.Condition()
        self._put = self._done = 0  # The numbers of entries until now.
        self.stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="slotwise client sends", daemon=True
        )
        self._thread.start()

    def put(self, *entries: Sent | Requests) -> None:
        """Send frames, or make other requests, after those before them."""
        with self._changed:
            self._queue.extend(entries)
            self._put += len(entries)
            self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was put before is answered; return whether it is."""
        with self._changed:
            wanted = self._put
            return self._changed.wait_for(
                lambda: self._done >= wanted or self.stopped.is_set(), timeout
            )

    def stop(self) -> None:
        """End the thread, and all repetitions, now."""
        self.stopped.set()
        with self._changed:
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def repeated(self, request: Callable[[], T]) -> T:
        """Make a request, in this thread, again and again while the server does not answer.

        ServerClosedError if it has not after `seconds`, or after `stop`.
        """
        until, pause = None, PAUSE_SECONDS
        while True:
            try:
                return request()
            except (NoServerError, ServerClosedError) as error:
                until = time.monotonic() + self._seconds if until is None else until
                if time.monotonic() >= until or self.stopped.wait(pause):
                    raise ServerClosedError(
                        f"{error}; it was asked again for {self._seconds:g} s"
                    ) from error
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self.stopped.is_set())
                batch = [] if self.stopped.is_set() else self._batch()
            if not batch:
                self._transport.close()
                return
            self._deliver(batch)
            with self._changed:
                self._done += len(batch)
                self._changed.notify_all()

    def _batch(self) -> list[Sent | Requests]:
        """The next frames, or one entry that is not a frame."""
        batch, size = [self._queue.popleft()], 0
        while isinstance(last := batch[-1], Sent) and self._queue:
            size += len(last.frame)
            if size >= BATCH_BYTES or not isinstance(self._queue[0], Sent):
                break
            batch.append(self._queue.popleft())
        return batch

    def _deliver(self, batch: list[Sent | Requests]) -> None:
        frames = [one for one in batch if isinstance(one, Sent)]
        try:
            if frames:
                body = b"".join([one.frame for one in frames])
                answer = self.repeated(lambda: self._transport.post_frames("/v1/calls", body))
                self._accepted(answer)
            for one in batch:
                if not isinstance(one, Sent):
                    self.repeated(one)
        except Exception as error:  # Also of a defect: the futures must not wait forever.
            self._refused(frames, error)
