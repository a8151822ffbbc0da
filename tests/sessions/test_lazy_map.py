"""A map reads its input as its results are asked for."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any

import joblib
import pytest

from slotwise import Session
from slotwise.integrations.joblib import SlotwiseBackend
from slotwise.jobs.transfer import MAX_INLINE


def test_map_reads_its_input_as_results_are_asked_for(session: Session) -> None:
    """An endless iterable is mapped with bounded memory."""
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in count():
            read.append(number)
            yield number

    results = session.map(operator.neg, numbers(), chunksize=3, ahead=4)
    assert list(islice(results, 20)) == [-n for n in range(20)]
    assert len(read) <= 20 + 3 * 6
    results.close()  # type: ignore[attr-defined]


def test_map_raises_where_the_result_would_be(session: Session) -> None:
    """The results before the exception are there."""
    results = session.map(operator.floordiv, [4, 4, 4], [2, 0, 1], chunksize=1)
    assert next(results) == 2
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_map_gives_its_results_after_the_session_has_closed() -> None:
    """Those that were submitted; then it says that the session is closed."""
    with Session(1) as session:
        results = session.map(abs, range(20), chunksize=1, ahead=3)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="closed"):
        next(results)


class Counted:
    """A function that counts how often it is pickled, with an attribute of any kind."""

    def __init__(self, held: object) -> None:
        self.held, self.times = held, 0

    def __call__(self, number: int) -> tuple[Any, int]:
        """What it holds, and the number."""
        return self.held, number

    def __getstate__(self) -> dict[str, Any]:
        self.times += 1
        return {"held": self.held}


Map = Callable[[Callable[..., Any], Iterable[Any]], Iterable[Any]]


@pytest.fixture(params=["session", "executor"])
def mapped(request: pytest.FixtureRequest, session: Session) -> Iterator[Map]:
    """A map in chunks of two."""
    if request.param == "session":
        yield partial(session.map, chunksize=2)
    else:
        with session.executor() as executor:
            yield partial(executor.map, chunksize=2)


def test_a_mapped_function_is_pickled_once_for_a_map(mapped: Map) -> None:
    """Each map sends it as it is then; a large one goes through a file."""
    large = bytes(4 * MAX_INLINE)
    fn = Counted(1)
    assert list(mapped(fn, range(5))) == [(1, n) for n in range(5)]
    assert fn.times == 1
    fn.held = large
    assert list(mapped(fn, range(5))) == [(large, n) for n in range(5)]
    assert fn.times == 2


def test_a_map_has_a_function_of_the_script_as_it_is_when_it_begins(mapped: Map) -> None:
    """Its global and other variables, too."""
    factor = 2
    scaled = eval("lambda n: n * factor", space := {"factor": 3, "__name__": "__main__"})

    def both(number: int) -> tuple[int, int]:
        return scaled(number), number * factor

    both.__module__ = "__main__"
    assert list(mapped(both, range(3))) == [(0, 0), (3, 2), (6, 4)]
    space["factor"] = factor = 4
    assert list(mapped(both, range(3))) == [(0, 0), (4, 4), (8, 8)]


def test_a_mapped_function_with_futures_waits_for_them(session: Session, mapped: Map) -> None:
    """Each chunk gets their results; it fails as they do."""
    future = session.submit(operator.add, 1, 2)
    assert list(mapped(partial(operator.add, future), range(3))) == [3, 4, 5]
    failed = session.submit(operator.floordiv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        list(mapped(partial(operator.add, failed), range(3)))


def test_a_mapped_function_that_cannot_be_pickled_raises_where_results_are(
    mapped: Map,
) -> None:
    """As for a call that is submitted by itself; the session continues."""
    with pytest.raises(TypeError, match="cannot pickle"):
        list(mapped(partial(operator.add, threading.Lock()), range(3)))
    assert list(mapped(abs, [-1])) == [1]


def test_a_map_outlives_what_it_was_begun_with(session: Session) -> None:
    """An executor without references ends, and its calls are done; so are those of a map."""
    large = bytes(4 * MAX_INLINE)
    results = session.executor().map(Counted(large), range(4), chunksize=2)
    assert [number for _, number in results] == [0, 1, 2, 3]
    closed = session.map(Counted(large), count(), chunksize=2)
    assert next(closed) == (large, 0)
    closed.close()  # type: ignore[attr-defined]
    assert list(session.map(abs, [-1])) == [1]


def test_a_joblib_loop_with_a_large_function(session: Session) -> None:
    """Each call of the loop gets it, with its attributes."""
    large = bytes(4 * MAX_INLINE)
    backend = SlotwiseBackend(session=session)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(Counted(large))(n) for n in range(4))
    assert found == [(large, n) for n in range(4)]
