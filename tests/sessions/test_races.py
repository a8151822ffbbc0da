"""Requests that come at an unlucky moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from slotwise import Job, Phase, Session, SlotwiseError, Tasks
from slotwise.sessions.futures import Future

PATIENCE = 120.0


def test_a_job_that_is_cancelled_as_it_ends_does_not_stop_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cancellation comes after the job is over, and before its future has the result."""
    finish = Future._finish

    def cancelled_before(future: Future[object], value: object) -> None:
        future.cancel()
        finish(future, value)

    monkeypatch.setattr(Future, "_finish", cancelled_before)
    with Session(1, "fair") as session:
        job = session.run(Job("j", (Phase("p", Tasks(1, 0.0)),)))
        assert session.submit(abs, -1).result(PATIENCE) == 1
        while not job.done():
            time.sleep(0.01)
        assert job.cancelled()


def test_a_map_that_is_closed_before_its_first_result_is_cancelled() -> None:
    """Otherwise the end of the session would wait for the calls."""
    with Session(1, "fair") as session:
        results = session.map(time.sleep, [1000.0] * 3)
        results.close()  # type: ignore[attr-defined]


def test_a_map_gives_the_results_before_an_error_of_its_iterable() -> None:
    """As the builtin map does."""

    def numbers() -> object:
        yield from range(9)
        raise KeyError("no more")

    with Session(1, "fair") as session:
        results = session.map(abs, numbers())  # type: ignore[call-overload]
        assert [next(results) for _ in range(9)] == list(range(9))
        with pytest.raises(KeyError):
            next(results)


def test_an_argument_may_submit_to_the_executor_when_it_is_pickled() -> None:
    """No lock is held meanwhile."""
    with Session(2, "fair") as session:
        executor = session.executor()
        assert executor.submit(abs, Lazy(executor)).result(PATIENCE) == 8


class Lazy:
    """A number that another call computes when it is pickled."""

    def __init__(self, executor: object) -> None:
        self.executor = executor

    def __reduce__(self) -> object:
        return int, (self.executor.submit(pow, 2, 3).result(PATIENCE),)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "use",
    [
        Session.jobs,
        Session.hosts,
        lambda session: session.submit(abs, 1),
        lambda session: session.explain("job"),
        lambda session: session.set_pools([]),
        lambda session: session.add_host("host", 1),
    ],
)
def test_a_forked_process_cannot_use_the_session_of_its_parent(
    use: Callable[[Session], object],
) -> None:
    """It is refused at once, as the thread of the loop is not there."""
    with Session(1, "fair") as session:
        child = os.fork()
        if not child:
            signal.alarm(int(PATIENCE))
            try:
                use(session)
            except SlotwiseError as error:
                os._exit(0 if "forked" in str(error) else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_process_that_closes_the_session_does_nothing() -> None:
    """Even if another thread held the lock of the session at the fork."""
    with Session(1, "fair") as session:
        with session._intake.lock:
            child = os.fork()
            if not child:
                signal.alarm(int(PATIENCE))
                session._intake.lock = None  # type: ignore[assignment]
                session.close()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session.submit(abs, -1).result(PATIENCE) == 1
