"""Calls are submitted to a session at any time, from any thread."""

from __future__ import annotations

import asyncio
import operator
import time
from concurrent import futures
from pathlib import Path

import pytest

from sessions.small_calls import PATIENCE, await_, fail, released, touch_and_wait, wait_for_file
from slotwise import InputError, Session


def test_a_call_returns_its_value(session: Session) -> None:
    """The simplest use."""
    assert session.submit(pow, 2, exp=5).result(PATIENCE) == 32


def test_an_exception_of_a_call_is_raised_by_its_future(session: Session) -> None:
    """With the traceback of the worker process as its cause; the call is not repeated."""
    future = session.submit(fail, "why")
    with pytest.raises(LookupError, match="why") as raised:
        future.result(PATIENCE)
    assert "in fail" in str(raised.value.__cause__)
    assert future.exception() is raised.value


def test_results_pass_from_call_to_call(session: Session) -> None:
    """Futures stand for their results anywhere in the arguments; nobody waits for them here."""
    one, two = session.submit(operator.add, 1, 1), session.submit(list, (1, 2))
    total = session.submit(sum, [one, 3])
    nested = session.submit(dict, {"pair": (one, [two])})
    assert session.submit(operator.add, one, total).result(PATIENCE) == 7
    assert nested.result(PATIENCE) == {"pair": (2, [[1, 2]])}


def test_a_failure_passes_on_to_the_calls_that_need_the_result(session: Session) -> None:
    """A diamond of calls fails with the exception of its first one."""
    first = session.submit(fail, "first")
    last = session.submit(operator.add, session.submit(str, first), session.submit(repr, first))
    with pytest.raises(LookupError, match="first"):
        last.result(PATIENCE)


def test_a_long_chain_of_calls_fails_with_its_first_call(session: Session) -> None:
    """All futures end, without a deep recursion."""
    last = session.submit(fail, "first")
    for _ in range(1500):
        last = session.submit(repr, last)
    with pytest.raises(LookupError, match="first"):
        last.result(PATIENCE)


def test_a_future_of_another_session_is_refused(session: Session) -> None:
    """With a remedy."""
    with Session(1) as other:
        future = other.submit(len, "abc")
        with pytest.raises(InputError, match="another session"):
            session.submit(abs, future)


def test_a_call_that_waits_outlives_the_shutdown_of_its_executor(session: Session) -> None:
    """The end of the block waits for it."""
    with session.executor() as executor:
        first = executor.submit(time.sleep, 0.1)
        second = executor.submit(repr, first)
    assert second.done()
    assert second.result(PATIENCE) == "None"


def test_cancel_stops_a_call_that_runs(session: Session, tmp_path: Path) -> None:
    """Both slots are free again although the calls would never end."""
    never = str(tmp_path / "never")
    running = [session.submit(touch_and_wait, str(tmp_path / n), never) for n in "ab"]
    await_(tmp_path / "a")
    await_(tmp_path / "b")
    assert all(future.cancel() for future in running)
    assert session.submit(len, "abc").result(PATIENCE) == 3
    with pytest.raises(futures.CancelledError):
        running[0].result()


def test_cancel_in_an_executor_stops_one_call_only(session: Session, tmp_path: Path) -> None:
    """The other calls of the executor, which are tasks of the same job, continue."""
    with session.executor() as executor, released(tmp_path / "go") as go:
        other = executor.submit(wait_for_file, go)
        stuck = executor.submit(touch_and_wait, str(tmp_path / "mark"), "/no/such/file")
        await_(tmp_path / "mark")
        assert stuck.cancel()
        later = executor.submit(len, "abc")
        assert later.result(PATIENCE) == 3
        Path(go).touch()
        assert other.result(PATIENCE) == go
    assert other.job == stuck.job == later.job


def test_awaiting_futures(session: Session) -> None:
    """Futures can be awaited, and an executor serves an event loop."""

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        with session.executor() as executor:
            one = loop.run_in_executor(executor, len, "ab")
            return [await session.submit(len, "a"), await one]

    assert asyncio.run(main()) == [1, 2]


def test_a_callback_may_wait_for_other_futures(session: Session) -> None:
    """Callbacks do not run in the thread of the loop."""
    found: futures.Future[int] = futures.Future()
    first = session.submit(len, "abc")
    first.add_done_callback(lambda _: found.set_result(session.submit(len, "ab").result()))
    assert found.result(PATIENCE) == 2


def test_a_callback_may_wait_for_a_call_that_waits_for_another(session: Session) -> None:
    """Users' callbacks do not delay the steps of other calls."""
    found: futures.Future[int] = futures.Future()
    first = session.submit(len, "abc")
    first.add_done_callback(
        lambda _: found.set_result(session.submit(abs, session.submit(len, "ab")).result())
    )
    assert found.result(PATIENCE) == 2


def test_many_threads_submit(session: Session) -> None:
    """Each thread gets its own results."""
    with futures.ThreadPoolExecutor(8) as threads, session.executor() as executor:

        def sums(thread: int) -> list[int]:
            calls = [executor.submit(operator.add, thread, n) for n in range(50)]
            return [call.result(PATIENCE) for call in calls]

        found = list(threads.map(sums, range(8)))
    assert found == [[thread + n for n in range(50)] for thread in range(8)]


def test_calls_find_modules_of_a_path_that_was_added_later(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In workers that have made calls, and that have not."""
    (tmp_path / "added_later.py").write_text("def name():\n    return __name__\n")
    with session.executor() as executor:
        assert executor.submit(len, "abc").result(PATIENCE) == 3
        monkeypatch.syspath_prepend(tmp_path)
        name = __import__("added_later").name
        for each in (executor, session):
            found = [each.submit(name) for _ in range(4)]
            assert [one.result(PATIENCE) for one in found] == ["added_later"] * 4
