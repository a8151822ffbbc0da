"""An executor of a session: its calls are the tasks of one job."""

from __future__ import annotations

import pickle
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent import futures
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, ParamSpec, TypeVar

from slotwise.backends.local.call_stream import CallResult, failure
from slotwise.sessions.calls import CallSubmitter
from slotwise.sessions.futures import Future

P = ParamSpec("P")
T = TypeVar("T")


class SessionExecutor(futures.Executor):
    """An executor (`concurrent.futures.Executor`) whose calls are the tasks of one job.

    `shutdown` ends the executor, not the session. Differences from a ProcessPoolExecutor:
    `Future.cancel` also stops a running call. Futures among the arguments are replaced by their
    results, and the call waits for them. A call whose worker process ends abruptly is repeated;
    if it fails repeatedly, only its own future has the error.
    """

    def __init__(self, calls: CallSubmitter, ahead: int, session: object) -> None:
        """Keep a reference to `session`, which ends when it is no longer referenced."""
        self._session = session
        self._calls, self._max_workers = calls, ahead  # Dask reads `_max_workers`.
        self._closes = weakref.finalize(self, calls.close)
        self._closes.atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in a worker process; return at once.

        RuntimeError after `shutdown`, or if the session is closed.
        """
        return self._calls.submit(fn, args, kwargs)

    def shared(self, fn: Callable[..., T]) -> Callable[..., T]:
        """A substitute for a function in many calls, which is pickled once, now."""
        return self._calls.shared(fn)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """The results of `fn` for the items of the iterables, in order.

        A task makes `chunksize` calls. All tasks are submitted at once. With `buffersize`, as
        in Python 3.14, this many tasks are, and one more for each result that is taken.
        `Session.map` chooses both numbers. ValueError if one is below 1; TypeError for a
        `buffersize` that is not an integer; TimeoutError.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize > 1:
            pieces = chunks(items_of(iterables), chunksize)
            each = partial(_each_item if len(iterables) == 1 else _each, self.shared(fn))
            results = self.map(each, pieces, timeout=timeout, buffersize=buffersize)
            return _values(results)
        if buffersize is None:
            return super().map(fn, *iterables, timeout=timeout)
        return self._map_ahead(fn, zip(*iterables, strict=False), timeout, buffersize)

    def _map_ahead(
        self,
        fn: Callable[..., T],
        items: Iterator[tuple[Any, ...]],
        timeout: float | None,
        buffersize: int,
    ) -> Iterator[T]:
        """The results in order; `buffersize` calls are submitted ahead of their use."""
        if not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        until = None if timeout is None else time.monotonic() + timeout
        submitted = deque(self.submit(fn, *item) for item in islice(items, buffersize))

        def results() -> Iterator[T]:
            try:
                while submitted:
                    submitted.extend(self.submit(fn, *item) for item in islice(items, 1))
                    left = None if until is None else until - time.monotonic()
                    yield _taken(submitted, left)
            finally:
                for future in reversed(submitted):
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for submitted calls, or cancel pending ones."""
        self._closes()
        pending = self._calls.futures()
        if cancel_futures:
            for future in reversed(pending):  # So that none of them starts meanwhile.
                if not future.running():
                    future.cancel()
        if wait:
            futures.wait(pending)


def items_of(iterables: tuple[Iterable[Any], ...]) -> Iterator[Any]:
    """The items of one iterable, or tuples of those of several."""
    return iter(iterables[0]) if len(iterables) == 1 else zip(*iterables, strict=False)


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of `size`; the last list may be shorter."""
    rest = iter(items)
    while piece := list(islice(rest, size)):
        yield piece


def _taken(submitted: deque[Future[T]], timeout: float | None) -> T:
    """The first result, whose future is removed; after a time-out the future stays."""
    result = submitted[0].result(timeout)
    del submitted[0]
    return result


def _values(chunks: Iterator[list[T]]) -> Iterator[T]:
    """The values of chunks; closing it closes the iterator of chunks."""
    for chunk in chunks:
        yield from chunk


def _each(fn: Callable[..., T], items: list[tuple[Any, ...]]) -> list[T]:
    """Call a function for each tuple of arguments of a chunk, in one task."""
    return [fn(*arguments) for arguments in items]


def _each_item(fn: Callable[..., T], items: list[Any]) -> list[T]:
    """Call a function of one argument for each item of a chunk, in one task."""
    return [fn(item) for item in items]


# A map that reads its iterables as results are taken.

AHEAD = 4
"""The tasks for each slot that are submitted before their results are taken."""

TASK_SECONDS = 0.01
"""The intended duration of a task whose number of calls is chosen automatically."""

MAX_GROWTH = 4
"""The factor by which a task may have more calls than the one whose result was last taken."""

MAX_CALLS = 10_000
"""The most calls of a task whose number of calls is chosen automatically."""


class Chunk(NamedTuple):
    """The results of the calls of one task, their seconds, and the exception of the last one.

    The exception is the pickle of a `CallResult`; the calls after it were not made.
    """

    values: list[Any]
    seconds: float
    raised: bytes | None = None


def map_lazily(
    executor: SessionExecutor,
    fn: Callable[..., T],
    iterables: tuple[Iterable[Any], ...],
    chunksize: int | None,
    ahead: int,
) -> Generator[T, None, None]:
    """The results of `fn` in order; `ahead` tasks are submitted before their results are taken.

    Each task makes `chunksize` calls; None: as many as take about `TASK_SECONDS`. ValueError
    for a size below 1.
    """
    if chunksize is not None and chunksize < 1:
        raise ValueError(f"chunksize is {chunksize}; expected at least 1, or None")
    each = partial(_each_timed, executor.shared(fn), len(iterables) == 1)
    mapping = _Mapping(executor, each, items_of(iterables), chunksize, ahead)
    mapping.submit_ahead()
    results = mapping.results()
    next(results)  # Start it: closing a generator that has not started has no effect.
    return results


class _Mapping:
    """The submitted tasks of a map, and the number of calls of the next one."""

    def __init__(
        self,
        executor: SessionExecutor,
        each: Callable[[list[Any]], Chunk],
        items: Iterator[Any],
        chunksize: int | None,
        ahead: int,
    ) -> None:
        self._ahead = ahead
        self._executor, self._each, self._items = executor, each, items
        self._is_fixed = chunksize is not None
        self._size = chunksize or 1
        self._open: deque[Future[Chunk]] = deque()
        self._problem: Exception | None = None

    def submit_ahead(self) -> None:
        """Submit tasks until `ahead` of them are open."""
        while len(self._open) < self._ahead and self._submit():
            pass

    def _submit(self) -> bool:
        """Submit the next task; False if no items are left.

        An error, such as one of the iterables, is raised after the results of earlier items.
        """
        if self._problem is not None:
            return False
        piece: list[Any] = []
        try:
            piece.extend(islice(self._items, self._size))
        except Exception as error:
            self._problem = error
        try:
            if piece:
                self._open.append(self._executor.submit(self._each, piece))
        except Exception as error:
            self._problem = error
        return bool(piece)

    def results(self) -> Generator[Any, None, None]:
        """Yield None, then the results in order. Closing it cancels the remaining tasks."""
        try:
            if self._problem is not None and not self._open:
                raise self._problem
            yield None
            while self._open:
                chunk = self._open.popleft().result()
                if not self._is_fixed:
                    self._size = _next_size(self._size, chunk)
                # Submit several at once, because each submission wakes the loop.
                if len(self._open) <= self._ahead // 2:
                    self.submit_ahead()
                yield from chunk.values
                if chunk.raised is not None:
                    raise pickle.loads(chunk.raised).error()
            if self._problem is not None:
                raise self._problem
        finally:
            for future in reversed(self._open):
                future.cancel()
            self._executor.shutdown(wait=False)


def _next_size(size: int, last: Chunk) -> int:
    """The number of calls that take about `TASK_SECONDS`, estimated from the last task."""
    if not last.values:
        return size
    wanted = TASK_SECONDS * len(last.values) / max(last.seconds, 1e-9)
    return max(1, int(min(wanted, MAX_GROWTH * len(last.values), MAX_CALLS)))


def _each_timed(fn: Callable[..., Any], is_of_one: bool, items: list[Any]) -> Chunk:
    """Call a function for each item, or tuple of arguments, of a chunk; measure the time."""
    values: list[Any] = []
    begun = time.perf_counter()
    try:
        if is_of_one:
            for item in items:
                values.append(fn(item))
        else:
            for arguments in items:
                values.append(fn(*arguments))
    except Exception as error:
        raised = pickle.dumps(CallResult(False, failure(error)))
        return Chunk(values, time.perf_counter() - begun, raised)
    return Chunk(values, time.perf_counter() - begun)
