"""Calls that were running when a server was killed: one that kills its servers must end.

The store counts in how many servers each open call has begun, except for those that stopped it
in order. A call is not known to be the cause: whatever kills a server takes all calls along.
So the limit is high, and from half of it on such calls run one at a time.

The first begin of a call is stored with the next change of the store, which costs almost
nothing, and the server may be killed before. So a call that an earlier server has left open
begins only when that is stored: it kills at most one server more than the limit says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress

from slotwise.service.store.schema import StoreError
from slotwise.service.store.store import Store

BEGINS_MAX = 10
"""The servers that may be killed while a call runs. Servers that are killed by others all the
time, each within a second, rarely meet the same call as often."""

ALONE_FROM = BEGINS_MAX // 2
"""From this number on, such calls run one at a time, so that only the cause is counted on."""

ALONE_SECONDS = 30.0
"""For how long a call runs before the next one of these begins."""

KILLS = (
    "it has begun in {} servers that were killed while it ran, and does not begin again; see"
    " what it does to its parent process and to the memory of the machine, then submit it again"
)
"""Why a call fails that may have killed its servers."""

CallPlace = tuple[str, int]
"""A call: the id of its job, and its number."""


class CallBegins:
    """Stores which calls begin. Its methods may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._running: set[CallPlace] = set()
        self._left_open: set[CallPlace] = set()
        self._new: dict[CallPlace, None] | None = None  # Those of the next transaction.
        self._alone: dict[CallPlace, Callable[[], None]] = {}  # Those that wait for their turn.
        self._turn: CallPlace | None = None

    def begin(self, call: CallPlace) -> None:
        """Note that a call begins; in this server, its first attempt counts."""
        if call in self._running:
            return
        self._running.add(call)
        if call == self._turn:
            timer = threading.Timer(ALONE_SECONDS, self._end_turn, [call])
            timer.daemon = True
            timer.start()
        if call in self._left_open:
            with suppress(StoreError):  # On a full disk, work continues.
                self._store.begin_calls(lambda: [call]).result()
            return
        with self._lock:
            is_first = self._new is None
            new = self._new = {} if self._new is None else self._new
            new[call] = None
        if is_first:
            self._store.begin_calls(lambda: self._taken(new), may_wait=True)

    def _taken(self, new: dict[CallPlace, None]) -> Collection[CallPlace]:
        with self._lock:
            if self._new is new:
                self._new = None
            return list(new)

    def over(self, call: CallPlace) -> None:
        """Note that a call is over."""
        self._running.discard(call)
        self._left_open.discard(call)
        with self._lock:
            run = self._alone.pop(call, None)
            if self._new is not None:
                self._new.pop(call, None)
        if run is not None:  # It was cancelled before its turn.
            run()
        self._end_turn(call)

    def stop(self) -> None:
        """The server stops in order: those that run do not count."""
        if self._running:
            self._store.stop_calls(list(self._running))

    def restore(self, call: CallPlace, begins: int, run: Callable[[], None]) -> None:
        """Let a call that an earlier server has left open run, now or when its turn comes."""
        self._left_open.add(call)
        if begins < ALONE_FROM:
            run()
            return
        with self._lock:
            self._alone[call] = run
        self._end_turn(None)

    def _end_turn(self, call: CallPlace | None) -> None:
        """Run the next one of those that run alone, if this one, or none, has its turn."""
        with self._lock:
            if call != self._turn:
                return
            self._turn = next(iter(self._alone), None)
            run = None if self._turn is None else self._alone.pop(self._turn)
        if run is not None:
            run()
