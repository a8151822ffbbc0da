"""A map reads its input as its results are asked for."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import count, islice

import pytest

from slotwise import Session


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
