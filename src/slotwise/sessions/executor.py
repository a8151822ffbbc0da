"""An executor of a session: its calls are the tasks of one job."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from functools import partial
from itertools import chain, islice
from typing import Any, ParamSpec, TypeVar

from slotwise.sessions.calls import CallSubmitter
from slotwise.sessions.futures import Future

P = ParamSpec("P")
T = TypeVar("T")


class SessionExecutor(futures.Executor):
    """An executor (`concurrent.futures.Executor`) whose calls are the tasks of one job.

    `shutdown` ends the executor, not the session. Differences from a ProcessPoolExecutor:
    `Future.cancel` also stops a call that runs; futures among the arguments are replaced by
    their results, and the call waits for them; a call whose worker process ends abruptly is
    repeated, and if it fails again and again, only its own future has the error.
    """

    def __init__(self, calls: CallSubmitter, ahead: int) -> None:
        self._calls, self._max_workers = calls, ahead  # Dask reads `_max_workers`.
        self._closes = weakref.finalize(self, calls.close)
        self._closes.atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in a worker process; returns at once.

        RuntimeError after `shutdown`, or if the session is closed.
        """
        return self._calls.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """The results of `fn` for the items of the iterables, in order.

        All calls are submitted at once; `Session.map` does so as results are asked for. A task
        makes `chunksize` calls. ValueError if it is below 1; TimeoutError.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        pieces = chunks(zip(*iterables, strict=False), chunksize)
        return chain.from_iterable(super().map(partial(_each, fn), pieces, timeout=timeout))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for those that were submitted, or cancel pending ones."""
        self._closes()
        pending = self._calls.futures()
        if cancel_futures:
            for future in reversed(pending):  # So that none of them starts meanwhile.
                if not future.running():
                    future.cancel()
        if wait:
            futures.wait(pending)


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of this length; the last one may be shorter."""
    rest = iter(items)
    while piece := list(islice(rest, size)):
        yield piece


def _each(fn: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    """What a function returns for each item of a chunk, in one task."""
    return [fn(*arguments) for arguments in chunk]
