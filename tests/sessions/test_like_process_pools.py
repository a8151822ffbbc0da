"""What programs written for a ProcessPoolExecutor also expect of the executor of a session."""

from __future__ import annotations

import os
import time
from concurrent.futures.process import BrokenProcessPool
from itertools import count, islice
from multiprocessing.managers import SyncManager

import pytest

from slotwise import Session

PATIENCE = 120.0


@pytest.mark.local_only("agents print what tasks print on their stderr")
def test_what_a_call_prints_appears_on_stdout(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As it does with process pools; `slotwise run` shows it on stderr."""
    with Session(1) as fresh:
        assert fresh.submit(print, "apple").result(PATIENCE) is None
    assert capfd.readouterr() == ("apple\n", "")


@pytest.mark.session_only("workers of a server have its key, not that of a client")
def test_calls_use_a_manager_of_the_caller(session: Session) -> None:
    """Workers have the caller's key, which a manager asks for."""
    with SyncManager() as manager:
        shared = manager.list()
        session.submit(shared.append, 5).result(PATIENCE)
        assert list(shared) == [5]


def test_a_lost_worker_is_the_error_of_a_process_pool(session: Session) -> None:
    """So that code that expects it works; here only the call fails."""
    with session.executor() as executor:
        with pytest.raises(BrokenProcessPool, match="exited with code 3"):
            executor.submit(os._exit, 3).result(PATIENCE)
        assert executor.submit(len, "abc").result(PATIENCE) == 3


@pytest.mark.parametrize(("chunksize", "taken"), [(1, 2), (3, 6)])
def test_a_map_with_a_buffersize_reads_as_results_are_taken(
    session: Session, chunksize: int, taken: int
) -> None:
    """As in Python 3.14, with every Python: the iterable may be endless."""
    with session.executor() as executor:
        numbers = count()
        results = executor.map(abs, numbers, chunksize=chunksize, buffersize=2)
        assert next(numbers) == taken
        assert list(islice(results, 2)) == [0, 1]
        assert next(numbers) <= taken + 1 + 2 * chunksize


def test_the_rest_of_a_map_with_a_buffersize_is_cancelled(session: Session) -> None:
    """When its iterator is closed; and a failure ends it like that of every map."""
    with session.executor() as executor:
        endless = executor.map(abs, count(), buffersize=2)
        assert next(endless) == 0
        endless.close()  # type: ignore[attr-defined]
        failing = executor.map(divmod, [4, 4, 4], [2, 0, 1], buffersize=1)
        assert next(failing) == (2, 0)
        with pytest.raises(ZeroDivisionError):
            next(failing)
        assert list(executor.map(abs, range(-3, 0), buffersize=5)) == [3, 2, 1]


def test_the_timeout_of_a_map_with_a_buffersize_is_for_all(session: Session) -> None:
    """It counts from the call of `map`; what runs then is cancelled, so that the block ends."""
    with session.executor() as executor, pytest.raises(TimeoutError):
        next(executor.map(time.sleep, [10 * PATIENCE], timeout=0, buffersize=1))


@pytest.mark.parametrize(
    ("buffersize", "error"),
    [(0, "buffersize must be None or > 0"), ("2", "buffersize must be an integer or None")],
)
def test_a_wrong_buffersize_is_refused_as_in_python(
    session: Session, buffersize: object, error: str
) -> None:
    """With the exceptions of Python 3.14."""
    with session.executor() as executor, pytest.raises((TypeError, ValueError), match=error):
        executor.map(abs, [1], buffersize=buffersize)  # type: ignore[arg-type]
