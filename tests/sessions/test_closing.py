"""The end of a session: it waits for its jobs, or cancels them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions.small_calls import PATIENCE, wait_for_file
from slotwise import Session
from slotwise.core.events import JobCancelled


def test_the_end_of_the_block_waits_for_all_calls(tmp_path: Path) -> None:
    """Also for those that wait for the results of others; then nothing more is accepted."""
    with Session(1) as session:
        first = session.submit(time.sleep, 0.05)
        last = session.submit(str, session.submit(repr, first))
    assert last.result(0) == "None"
    with pytest.raises(RuntimeError, match="after shutdown"):
        session.submit(len, "")
    session.close()


def test_an_exception_in_the_block_cancels_all_calls(tmp_path: Path) -> None:
    """The session ends at once, and leaves no call running."""
    calls = []

    def block() -> None:
        with Session(1) as session:
            calls.extend(session.submit(wait_for_file, "/no/such/file") for _ in range(3))
            raise KeyError("stop")

    with pytest.raises(KeyError):
        block()
    assert [call.cancelled() for call in calls] == [True] * 3


def test_cancelled_calls_end_where_no_host_could_run_them() -> None:
    """A session without hosts closes when its calls were cancelled."""
    session = Session(1)
    session.remove_host("localhost", drain=False)
    executor = session.executor()
    future = executor.submit(abs, 1)
    assert future.cancel()
    session.close()
    assert future.cancelled()


def test_an_interrupted_close_cancels_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the end of the block waits for a call that does not end."""
    session = Session(1)
    stuck = session.submit(wait_for_file, "/no/such/file")
    join = session._intake.loop.join

    def interrupt(timeout: float) -> bool:
        monkeypatch.setattr(session._intake.loop, "join", join)
        signal.raise_signal(signal.SIGINT)
        return join(timeout)

    monkeypatch.setattr(session._intake.loop, "join", interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert stuck.cancelled()


def test_jobs_that_end_while_others_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop forgets each job of calls before the next one is cancelled."""
    session = Session(1)
    put = session._intake.inbox.put

    def put_and_wait(entry: Any) -> None:
        put(entry)
        until = time.monotonic() + PATIENCE
        while isinstance(entry, JobCancelled) and entry.job in session._intake._calls:
            assert time.monotonic() < until
            time.sleep(0.001)

    monkeypatch.setattr(session._intake.inbox, "put", put_and_wait)
    executors = [session.executor() for _ in range(3)]
    stuck = [executor.submit(time.sleep, 1000.0) for executor in executors]
    session.close(cancels=True)
    assert [future.cancelled() for future in stuck] == [True] * 3


def test_a_session_without_hosts_ends_with_a_reason() -> None:
    """Its jobs cannot run any more: no host can be added to a closed session."""
    session = Session(1)
    session.remove_host("localhost", drain=False)
    left = session.submit(abs, 1), session.command("true"), session.executor().submit(abs, 1)
    session.close()
    assert [str(one.exception(0)) for one in left] == 3 * [
        "the session was closed, and no host is left that could run it"
    ]


@pytest.mark.parametrize(
    "act",
    [
        lambda session: session.executor(),
        lambda session: session.map(abs, [1]),
        lambda session: session.set_pools({"a": 1}),
        lambda session: session.set_objective("stretch"),
        lambda session: session.add_host("a", 1),
        lambda session: session.remove_host("localhost"),
        lambda session: session.__enter__(),
    ],
)
def test_a_closed_session_refuses_changes(act: Callable[[Session], object]) -> None:
    """As it refuses calls."""
    session = Session(1)
    session.close()
    with pytest.raises(RuntimeError, match="the session is closed; open another"):
        act(session)
