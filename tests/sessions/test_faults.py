"""Calls that cannot be sent, read or finished, and a bug in the loop."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from sessions.small_calls import PATIENCE, raise_odd, raise_two_parts
from slotwise import Session, SlotwiseError


def test_a_call_that_cannot_be_pickled_fails_alone(session: Session) -> None:
    """The error of pickling is that of its future."""
    with pytest.raises(TypeError, match="pickle"):
        session.submit(len, threading.Lock()).result(PATIENCE)
    assert session.submit(len, "abc").result(PATIENCE) == 3


def test_an_exception_that_cannot_be_read_fails_its_call_only(session: Session) -> None:
    """The session goes on."""
    with pytest.raises(SlotwiseError, match="cannot be read"):
        session.submit(raise_odd).result(PATIENCE)
    assert session.submit(len, "abc").result(PATIENCE) == 3


def test_an_exception_that_cannot_be_read_is_named_with_its_traceback(
    session: Session,
) -> None:
    """The user still learns what the call raised, and where."""
    with pytest.raises(SlotwiseError, match="TwoPartsError: a-b ") as raised:
        session.submit(raise_two_parts).result(PATIENCE)
    assert "in raise_two_parts" in str(raised.value.__cause__)


def test_a_call_that_kills_its_worker_fails_alone(session: Session) -> None:
    """It is repeated some times; the other calls of the executor are done."""
    with session.executor() as executor:
        killer = executor.submit(os._exit, 3)
        others = [executor.submit(len, "x" * n) for n in range(20)]
        with pytest.raises(SlotwiseError, match="exited with code 3"):
            killer.result(PATIENCE)
        assert [other.result(PATIENCE) for other in others] == list(range(20))


def test_a_call_fails_alone_after_the_attempts_of_the_session() -> None:
    """The job of the executor does not fail with it, and takes more calls."""
    with Session(1, attempts_max=2, keep=False) as session, session.executor() as executor:
        killer = executor.submit(os._exit, 3)
        with pytest.raises(SlotwiseError, match="exited with code 3, in attempt 2"):
            killer.result(PATIENCE)
        assert executor.submit(len, "abc").result(PATIENCE) == 3


@pytest.mark.local_only("agents do not ignore SIGCHLD")
def test_how_a_worker_ended_is_not_told_if_it_cannot_be_known() -> None:
    """A program that ignores SIGCHLD gets no exit codes; 0 would be wrong."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with Session(1) as session, pytest.raises(SlotwiseError, match="ignores SIGCHLD"):
            session.submit(os._exit, 3).result(PATIENCE)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_bug_in_the_scheduler_fails_all_futures() -> None:
    """Nobody waits forever."""

    def explode(now: float, events: object, decisions: object) -> None:
        raise ZeroDivisionError("a bug")

    session = Session(1, progress=explode)
    with pytest.raises(SlotwiseError, match="the session has failed: a bug"):
        session.submit(len, "abc").result(PATIENCE)
    with pytest.raises(SlotwiseError, match="the session has failed"):
        session.submit(len, "abc")
    session.close()


def test_a_session_goes_on_without_a_log_that_cannot_be_written() -> None:
    """A full disk takes the log from a session, not its calls."""
    with Session(slots=1, log="/dev/full") as session:
        assert session.submit(pow, 2, 3).result() == 8
        assert session.submit(pow, 3, 2).result() == 9
