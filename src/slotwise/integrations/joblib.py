"""Runs joblib's parallel loops, such as those of scikit-learn, on a session.

    import slotwise.integrations.joblib
    with joblib.parallel_config(backend="slotwise", pool="research"):
        GridSearchCV(...).fit(X, y)

The import registers the backend.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from slotwise.core.errors import InputError, MissingExtraError
from slotwise.sessions.executor import SessionExecutor
from slotwise.sessions.futures import Future
from slotwise.sessions.methods import SessionMethods
from slotwise.sessions.session import Session
from slotwise.task import SPEED_VARIABLE

try:
    from joblib.parallel import (
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
        register_parallel_backend,
    )
except ImportError as missing:
    raise MissingExtraError("the joblib backend", "joblib") from missing

NAME = "slotwise"
"""The name of the backend in joblib."""

AHEAD = 2
"""The batches that joblib submits for each slot by default."""


class SlotwiseBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Each parallel loop is one job of a session, and each batch of its calls is a task.

    A loop may hold the slots of hosts that are added to the session while it runs, up to
    `n_jobs`; with `n_jobs=-1`, all of them. Loops within the calls run sequentially in the same
    slot, so that the slots are never oversubscribed and no call waits for a slot while it holds
    one.

    session  the session, or the client of a server, for the loops; by default a session of all
             processors, which is opened at the first loop, serves the whole program, and ends
             with it
    options  those of `Session.executor`: name, pool, weight, deadline, priority, resources
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        *,
        session: SessionMethods | None = None,
        **options: Any,
    ) -> None:
        """An unknown option raises TypeError at the first loop."""
        super().__init__(
            nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads
        )
        self._session, self._options = session, {"name": "joblib", **options}
        self._executor: SessionExecutor | None = None
        self._open: set[Future[Any]] = set()
        self._has_one_loop = False
        self._n_jobs = self._slots = 1  # of the loop

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """The number of slots that a loop may hold; `n_jobs=-1` means all, -2 all but one."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or self._is_nested():
            return 1
        slots = self._get_session().slots
        return min(n_jobs, slots) if n_jobs > 0 else max(slots + 1 + n_jobs, 1)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        **others: Any,
    ) -> int:
        """Begin a loop. With `n_jobs=1` it runs in this process, as with all backends.

        Options for memory-mapped arguments have no effect. InputError for an `initializer`.
        """
        if others.get("initializer") is not None:
            raise InputError(
                "joblib's backend 'slotwise' accepts no initializer, because worker processes"
                " serve all jobs of a session; call the function within the loop"
            )
        if n_jobs == 1 or self._is_nested():
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        # This object serves all loops of a `with` block, some at the same time.
        if not self._has_one_loop:
            raise FallbackToBackend(self._for_one_loop())
        slots = self.effective_n_jobs(n_jobs)
        self.parallel, self._n_jobs = parallel, n_jobs
        most = self._most(n_jobs, slots)
        self._executor = self._get_session().executor(**most, **self._options)
        self._slots = max(2, slots)  # With 1, joblib would make the calls in this process.
        return self._slots

    def _most(self, n_jobs: int, slots: int) -> dict[str, Any]:
        """The option for the most slots of a loop. InputError if no batch fits into them."""
        if "slots_max" in self._options:
            return {}
        each = self._options.get("slots", 1)
        if isinstance(each, int) and slots < each:
            all_slots = self._get_session().slots
            remedy = f"give at most slots={all_slots}"
            if each <= all_slots:
                remedy = f"give at least n_jobs={each}, or fewer slots"
            raise InputError(
                f"joblib's backend 'slotwise': each batch occupies {each} slots (slots={each}),"
                f" but a loop holds at most {slots} (n_jobs), and the session has {all_slots};"
                f" {remedy}"
            )
        if n_jobs == -1:
            return {}
        return {"slots_max": n_jobs if n_jobs > 0 else slots}

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None
    ) -> Future[Any]:
        """Submit a batch of calls."""
        assert self._executor is not None
        future = self._executor.submit(func)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        if callback is not None:
            future.add_done_callback(callback)
            future.add_done_callback(lambda _: self._dispatch_more())
        return future

    def _dispatch_more(self) -> None:
        """Let joblib submit more batches if the session has more slots for the loop now."""
        if "n_jobs" not in str(self.parallel.pre_dispatch):
            return
        slots = self.effective_n_jobs(self._n_jobs)
        more, self._slots = slots - self._slots, max(slots, self._slots)
        for _ in range(AHEAD * more):
            with self.parallel._lock:  # As joblib does for the next batch.
                if self.parallel._original_iterator is None:
                    return
                self.parallel.dispatch_next()

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch that is done."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches that are not done, including running ones."""
        for future in list(self._open):
            future.cancel()

    def terminate(self) -> None:
        """End the job of the loop; the session continues."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """The backend for loops within the calls, which run in the slot of their call."""
        return InSlotBackend(nesting_level=(self.nesting_level or 0) + 1), None

    def _for_one_loop(self) -> SlotwiseBackend:
        backend = SlotwiseBackend(self.nesting_level, session=self._session, **self._options)
        backend._has_one_loop = True
        return backend

    def _is_nested(self) -> bool:
        """Whether this is the process of a slot or of a pool, which opens no session itself."""
        is_child = SPEED_VARIABLE in os.environ or multiprocessing.parent_process() is not None
        return self._session is None and is_child

    def _get_session(self) -> SessionMethods:
        return self._session or _default_session()


class InSlotBackend(SequentialBackend):  # type: ignore[misc]
    """Runs the calls of an inner loop sequentially.

    Since the class is in this module, a worker that unpickles it also registers the backend.
    """


_lock = threading.Lock()


def _default_session() -> Session:
    """The session of loops without a session. It ends at the end of the program."""
    with _lock:
        return _make_default_session()


@cache
def _make_default_session() -> Session:
    return Session()


register_parallel_backend(NAME, SlotwiseBackend)
