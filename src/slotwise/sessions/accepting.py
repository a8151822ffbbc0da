"""The part of a session that accepts calls (`CallHost`)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from slotwise.model.errors import InputError, SlotwiseError
from slotwise.model.event import JobsClosed
from slotwise.model.job import Job
from slotwise.model.pool_tree import PoolTree
from slotwise.objective.objective import Objective
from slotwise.running import check_jobs
from slotwise.runtime.local.arrivals import Entry as Put
from slotwise.runtime.local.call_stream import CallResult
from slotwise.runtime.state import State
from slotwise.sessions.calls import OpenCalls
from slotwise.sessions.checking import warn_user
from slotwise.sessions.futures import Future
from slotwise.sessions.loop_thread import LoopThread


class AcceptsCalls:
    """The part of a session that accepts calls and gives entries to the loop."""

    lock: threading.RLock
    _loop: LoopThread
    _state: State
    _pools: PoolTree
    _objective: Objective
    _calls: dict[str, OpenCalls]
    _settled: list[tuple[Future[Any], CallResult]]
    _waiting: int
    _error: BaseException | None
    _is_closed: bool
    _has_ended_jobs: bool
    _is_ended: bool
    _pid: int
    _warned_of: set[str]

    def put(self, entry: Put) -> None:
        """Give an entry to the loop; the caller holds the lock."""
        if not self._is_ended:
            self._loop.backend.put(entry)

    def begin(self, calls: OpenCalls) -> None:
        """Begin a job of calls; the caller holds the lock."""
        self._calls[calls.job] = calls

    def check_job(self, job: Job) -> None:
        """InputError for a job without what the pools or the objective need now."""
        self._pools.check_holds_jobs(job.pool)
        self.warn_of_pool(job.pool)
        check_jobs([job], self._state.cluster, self._objective, self._pools)

    def warn_of_pool(self, pool: str) -> None:
        """Warn, once for each name, of a pool that is none of those given to the session."""
        known = self._pools
        if not known or pool in known or pool == "default" or pool in self._warned_of:
            return
        self._warned_of.add(pool)
        names = list(dict.fromkeys([*(n for n in known if n not in known.inner), "default"]))
        close = get_close_matches(pool, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "it is created with weight 1"
        warn_user(
            f"pool {pool!r} is not among the pools of the session ({', '.join(names)}); {hint}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            "a Session cannot be used inside a call, nor can its executors, because it belongs"
            " to the process that opened it; pass the futures as arguments of other calls, or"
            " submit from the calling program"
        )

    def check_open(self, *, had_waited: bool) -> None:
        """RuntimeError if no more calls are accepted; those that waited still are."""
        if os.getpid() != self._pid:
            raise SlotwiseError(
                "a process that was forked cannot use the session of its parent; open another"
                " one there, or start it without fork"
            )
        if self._error is not None:
            raise SlotwiseError(f"the session has failed: {self._error}") from self._error
        if self._is_ended or (self._is_closed and not had_waited):
            raise RuntimeError(
                "cannot schedule new futures after shutdown: the session is closed;"
                " open another"
            )

    def settle(self, future: Future[Any], result: CallResult) -> None:
        """Give a future its result at the end of the turn."""
        self._settled.append((future, result))

    def waits(self, more: int) -> None:
        """Count calls that wait for the results of others."""
        with self.lock:
            self._waiting += more
            self._end_jobs()

    def _end_jobs(self) -> None:
        """Tell the loop if no more jobs come; the caller holds the lock."""
        if self._is_closed and not self._waiting and not self._has_ended_jobs:
            self._has_ended_jobs = True
            for calls in list(self._calls.values()):
                calls.close()
            self.put(JobsClosed(self._loop.backend.now))

    def call_back(self, calls: Callable[[], None]) -> None:
        """Make callbacks outside the thread of the loop."""
        self._loop.call_back(calls)

    def take_step(self, step: Callable[[], None]) -> None:
        """Go on with a call whose inputs are done."""
        self._loop.take_step(step)
