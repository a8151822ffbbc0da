"""Calls and jobs are submitted to a session at any time, from any thread."""

from __future__ import annotations

import asyncio
import operator
import os
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

from slotwise import (
    Calls,
    InputError,
    Job,
    Phase,
    Pool,
    Session,
    SlotwiseError,
    Tasks,
    explain,
    mapreduce,
    read_log,
    replay,
)

PATIENCE = 120.0


def wait_for_file(path: str) -> str:
    """A call that lasts until a file exists."""
    while not os.path.exists(path):
        time.sleep(0.005)
    return path


def touch_and_wait(mark: str, until: str) -> None:
    """A call that says that it has begun, and lasts until a file exists."""
    open(mark, "a").close()
    wait_for_file(until)


def fail(text: str) -> None:
    """A call that raises."""
    raise LookupError(text)


def double(number: int) -> int:
    """A task of `Calls`."""
    return 2 * number


@contextmanager
def released(path: Path) -> Iterator[str]:
    """The name of a file that exists at the end of the block, also if a check fails."""
    try:
        yield str(path)
    finally:
        path.touch()


def await_(path: Path) -> None:
    """Wait in this process until a file exists."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)


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


def test_a_call_that_cannot_be_pickled_fails_alone(session: Session) -> None:
    """The error of pickling is that of its future."""
    with pytest.raises(TypeError, match="pickle"):
        session.submit(len, threading.Lock()).result(PATIENCE)
    assert session.submit(len, "abc").result(PATIENCE) == 3


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


def test_a_call_that_kills_its_worker_fails_alone(session: Session) -> None:
    """It is repeated some times; the other calls of the executor are done."""
    with session.executor() as executor:
        killer = executor.submit(os._exit, 3)
        others = [executor.submit(len, "x" * n) for n in range(20)]
        with pytest.raises(SlotwiseError, match="exited with code 3"):
            killer.result(PATIENCE)
        assert [other.result(PATIENCE) for other in others] == list(range(20))


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


def test_jobs_of_all_kinds_run(session: Session, tmp_path: Path) -> None:
    """Calls in phases, a job that sleeps, and a program."""
    (tmp_path / "in.txt").write_text("a b a\n")
    phases = (Phase("p", Tasks(3)),)
    calls = session.run(Calls(Job("calls", phases), double))
    asleep = session.run(Job("asleep", (Phase("p", Tasks(2, 0.01)),)))
    count = session.run(
        mapreduce("wordcount", "in.txt", "out", id="count", reducers=1), folder=tmp_path
    )
    assert calls.result(PATIENCE) == {"p": {0: 0, 1: 2, 2: 4}}
    assert asleep.result(PATIENCE) is None
    assert count.result(PATIENCE) == str(tmp_path / "out")
    assert (tmp_path / "out" / "_SUCCESS").exists()
    again = session.run(Calls(Job("calls", phases), double))
    assert again.job == "calls-2"
    assert again.result(PATIENCE) == {"p": {0: 0, 1: 2, 2: 4}}


def test_a_job_that_cannot_run_is_refused(session: Session, tmp_path: Path) -> None:
    """At once, with the message of `run`; a job that fails later says so by its future."""
    with pytest.raises(InputError, match="has no work"):
        session.run(Job("vague", (Phase("p", Tasks(1)),)))
    broken = session.run(Calls(Job("broken", (Phase("p", Tasks(1)),)), fail))
    with pytest.raises(SlotwiseError, match=r"(?s)job 'broken' failed.*LookupError"):
        broken.result(PATIENCE)


def test_a_future_knows_why_its_job_waits(session: Session, tmp_path: Path) -> None:
    """The second call of a pool of one slot waits for that pool."""
    binding = {"name": "both", "pool": "narrow"}
    with session.executor(**binding) as executor, released(tmp_path / "go") as go:
        calls = [executor.submit(wait_for_file, go) for _ in range(2)]
        while not calls[0].running():
            time.sleep(0.005)
        (phase,) = calls[1].explain().phases
        assert (phase.running, phase.pending) == (1, 1)
        assert phase.why == "pool 'narrow' holds its max share of 1"
        assert "both" in [one.job for one in session.jobs()]
    assert calls[0].explain().status == "over"


def test_jobs_and_pools_change_while_they_run(session: Session, tmp_path: Path) -> None:
    """A job leaves a pool of one slot, and gets the second slot."""
    with session.executor(pool="narrow") as executor, released(tmp_path / "go") as go:
        calls = [
            executor.submit(touch_and_wait, str(tmp_path / str(number)), go)
            for number in (0, 1)
        ]
        await_(tmp_path / "0")
        session.change(calls[0], pool="other", priority="high")
        await_(tmp_path / "1")
        with pytest.raises(InputError, match="priority"):
            session.change(calls[0], priority="huge")


def test_pools_are_replaced(tmp_path: Path) -> None:
    """A limit of one slot is lifted; a tree that leaves a pool no place for jobs is refused."""
    with (
        Session(2, "fair", pools=[Pool("p", slots_max=1)]) as session,
        session.executor(pool="p") as executor,
        released(tmp_path / "go") as go,
    ):
        for number in (0, 1):
            executor.submit(touch_and_wait, str(tmp_path / str(number)), go)
        await_(tmp_path / "0")
        with pytest.raises(InputError):
            session.set_pools([Pool("p"), Pool("inner", parent="p")])
        session.set_pools([Pool("p", slots_max=2)])
        await_(tmp_path / "1")


def test_a_pool_takes_its_slot_back_from_calls(session: Session, tmp_path: Path) -> None:
    """A call that runs is stopped, and starts again later."""
    go = str(tmp_path / "go")
    with session.executor() as executor:
        calls = [
            executor.submit(touch_and_wait, str(tmp_path / str(number)), go)
            for number in (0, 1)
        ]
        await_(tmp_path / "0")
        await_(tmp_path / "1")
        with session.executor(pool="urgent") as urgent:
            assert urgent.submit(len, "abc").result(PATIENCE) == 3
        Path(go).touch()
        assert [call.result(PATIENCE) for call in calls] == [None, None]


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


def test_many_threads_submit(session: Session) -> None:
    """Each thread gets its own results."""
    with futures.ThreadPoolExecutor(8) as threads, session.executor() as executor:

        def sums(thread: int) -> list[int]:
            calls = [executor.submit(operator.add, thread, n) for n in range(50)]
            return [call.result(PATIENCE) for call in calls]

        found = list(threads.map(sums, range(8)))
    assert found == [[thread + n for n in range(50)] for thread in range(8)]


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


def test_the_log_of_a_session_replays(tmp_path: Path) -> None:
    """It is a log like any other."""
    log = tmp_path / "log.jsonl"
    with Session(2, "flex", log=log) as session:
        with session.executor(name="first") as executor:
            calls = [executor.submit(len, "x" * n) for n in range(30)]
            calls[-1].cancel()
        one = session.submit(
            len,
            "ab",
        )
        session.set_objective("stretch")
        assert one.result(PATIENCE) == 2
    assert replay(log).is_identical
    assert read_log(log).header.jobs_expected is None
    assert explain(log, "first", 0.0).job == "first"


def test_a_session_learns_from_its_programs(tmp_path: Path) -> None:
    """The second session knows the work of a program that the first one ran."""
    (tmp_path / "in.txt").write_text("a b a\n" * 1000)
    works = []
    for number in range(2):
        with Session(1, history=tmp_path / "history.db") as session:
            output = f"out-{number}"
            done = session.run(mapreduce("wordcount", "in.txt", output), folder=tmp_path)
            assert done.result(PATIENCE) == str(tmp_path / output)
            works.append(session._learning.rates.by_phase.keys())
    assert not works[0]
    assert {phase for _, phase in works[1]} == {"map", "reduce"}


def test_an_interrupted_close_cancels_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the end of the block waits for a call that does not end."""
    session = Session(1)
    stuck = session.submit(wait_for_file, "/no/such/file")
    join = session._loop.join

    def interrupt() -> None:
        monkeypatch.setattr(session._loop, "join", join)
        raise KeyboardInterrupt

    monkeypatch.setattr(session._loop, "join", interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert stuck.cancelled()


class Odd(Exception):
    """An exception whose pickle gives a number."""

    def __reduce__(self) -> tuple[object, ...]:
        return (int, (3,))


def raise_odd() -> None:
    """A call that raises it."""
    raise Odd


def test_a_call_that_waits_outlives_the_shutdown_of_its_executor(session: Session) -> None:
    """The end of the block waits for it."""
    with session.executor() as executor:
        first = executor.submit(time.sleep, 0.1)
        second = executor.submit(repr, first)
    assert second.done()
    assert second.result(PATIENCE) == "None"


def test_a_long_chain_of_calls_fails_with_its_first_call(session: Session) -> None:
    """All futures end, without a deep recursion."""
    last = session.submit(fail, "first")
    for _ in range(1500):
        last = session.submit(repr, last)
    with pytest.raises(LookupError, match="first"):
        last.result(PATIENCE)


def test_an_exception_that_cannot_be_read_fails_its_call_only(session: Session) -> None:
    """The session goes on."""
    with pytest.raises(SlotwiseError, match="cannot be read"):
        session.submit(raise_odd).result(PATIENCE)
    assert session.submit(len, "abc").result(PATIENCE) == 3


def test_the_same_calls_run_once_at_a_time(session: Session, tmp_path: Path) -> None:
    """A second run of the same object is refused while the first goes on."""
    with released(tmp_path / "go") as go:
        calls = Calls(Job("once", (Phase("p", Tasks(1)),)), lambda task: wait_for_file(go))
        first = session.run(calls)
        with pytest.raises(InputError, match="runs already"):
            session.run(calls)
    assert first.result(PATIENCE) == {"p": {0: str(tmp_path / "go")}}


def test_cancelled_calls_end_where_no_host_could_run_them() -> None:
    """A session without hosts closes when its calls were cancelled."""
    session = Session(1)
    session.remove_host("localhost", drain=False)
    executor = session.executor()
    future = executor.submit(abs, 1)
    assert future.cancel()
    session.close()
    assert future.cancelled()


def test_a_callback_may_wait_for_a_call_that_waits_for_another(session: Session) -> None:
    """Users' callbacks do not delay the steps of other calls."""
    found: futures.Future[int] = futures.Future()
    first = session.submit(len, "abc")
    first.add_done_callback(
        lambda _: found.set_result(session.submit(abs, session.submit(len, "ab")).result())
    )
    assert found.result(PATIENCE) == 2


def test_a_future_of_another_session_is_refused(session: Session) -> None:
    """With a remedy."""
    with Session(1) as other:
        future = other.submit(len, "abc")
        with pytest.raises(InputError, match="another session"):
            session.submit(abs, future)


def test_a_map_gives_its_results_after_the_session_has_closed() -> None:
    """Those that were submitted; then it says that the session is closed."""
    with Session(1) as session:
        results = session.map(abs, range(20), chunksize=1, ahead=3)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="closed"):
        next(results)
