"""The results of a function for the items of iterables, which are read as results are taken."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from slotwise.runtime.local.call_stream import CallResult, failure
from slotwise.sessions.executor import SessionExecutor, items_of
from slotwise.sessions.futures import Future

AHEAD = 4
"""The tasks for each slot that are submitted before their results are asked for."""

TASK_SECONDS = 0.01
"""How long a task should take if the number of its calls is chosen here."""

MAX_GROWTH = 4
"""A task makes at most this many times as many calls as the one whose result was last taken."""

MAX_CALLS = 10_000
"""The most calls of a task whose number of calls is chosen here."""

T = TypeVar("T")


class Chunk(NamedTuple):
    """What the calls of one task returned, the seconds they took, and what the last one raised.

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
    """The results of `fn` in order; `ahead` tasks are submitted before they are asked for.

    Each task makes `chunksize` calls; None: as many as take about `TASK_SECONDS`. ValueError
    for a size below 1.
    """
    if chunksize is not None and chunksize < 1:
        raise ValueError(f"chunksize is {chunksize}; give at least 1, or None")
    each = partial(_each_timed, executor.shared(fn), len(iterables) == 1)
    mapping = _Mapping(executor, each, items_of(iterables), chunksize, ahead)
    mapping.submit_ahead()
    results = mapping.results()
    next(results)  # Begins it: closing a generator that has not begun has no effect.
    return results


class _Mapping:
    """The tasks of a map that were submitted, and how many calls the next one makes."""

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
        """None, and then the results in order. Closing it cancels the remaining tasks."""
        try:
            if self._problem is not None and not self._open:
                raise self._problem
            yield None
            while self._open:
                chunk = self._open.popleft().result()
                if not self._is_fixed:
                    self._size = _next_size(self._size, chunk)
                # Several at once: each time that some are submitted wakes the loop.
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
    """The number of calls that take about `TASK_SECONDS`, as far as the last task tells."""
    if not last.values:
        return size
    wanted = TASK_SECONDS * len(last.values) / max(last.seconds, 1e-9)
    return max(1, int(min(wanted, MAX_GROWTH * len(last.values), MAX_CALLS)))


def _each_timed(fn: Callable[..., Any], is_of_one: bool, chunk: list[Any]) -> Chunk:
    """Call a function for each item of a chunk, or tuple of arguments, in one task."""
    values: list[Any] = []
    begun = time.perf_counter()
    try:
        if is_of_one:
            for item in chunk:
                values.append(fn(item))
        else:
            for arguments in chunk:
                values.append(fn(*arguments))
    except Exception as error:
        raised = pickle.dumps(CallResult(False, failure(error)))
        return Chunk(values, time.perf_counter() - begun, raised)
    return Chunk(values, time.perf_counter() - begun)
