"""Jobs of all kinds run in a session, which explains and logs them and learns from them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sessions.small_calls import PATIENCE, double, fail, released, wait_for_file
from slotwise import (
    Calls,
    InputError,
    Job,
    Phase,
    Session,
    SlotwiseError,
    Tasks,
    explain,
    mapreduce,
    read_log,
    replay,
)
from waiting import until


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


@pytest.mark.session_only("a server gets a pickle of the calls for each of their runs")
def test_the_same_calls_run_once_at_a_time(session: Session, tmp_path: Path) -> None:
    """A second run of the same object is refused while the first goes on."""
    with released(tmp_path / "go") as go:
        calls = Calls(Job("once", (Phase("p", Tasks(1)),)), lambda task: wait_for_file(go))
        first = session.run(calls)
        with pytest.raises(InputError, match="is already running"):
            session.run(calls)
    assert first.result(PATIENCE) == {"p": {0: str(tmp_path / "go")}}


def test_the_future_of_a_job_is_running_while_its_tasks_are(tmp_path: Path) -> None:
    """As that of a call; not before the first of them, nor after the last."""
    with Session(1, "fifo") as session, released(tmp_path / "go") as go:
        first, second = (
            session.run(
                Calls(Job(name, (Phase("p", Tasks(1)),)), lambda task: wait_for_file(go))
            )
            for name in ("first", "second")
        )
        ends = time.monotonic() + PATIENCE
        while not first.running():
            assert time.monotonic() < ends
            time.sleep(0.005)
        assert repr(first) == "<Future of job first: running>"
        assert not second.running()
        Path(go).touch()
        second.result(PATIENCE)
    assert not first.running()


def test_a_future_knows_why_its_job_waits(session: Session, tmp_path: Path) -> None:
    """The second call of a pool of one slot waits for that pool."""
    binding = {"name": "both", "pool": "narrow"}
    with session.executor(**binding) as executor, released(tmp_path / "go") as go:
        calls = [executor.submit(wait_for_file, go) for _ in range(2)]
        until(calls[0].running)
        until(lambda: calls[1].explain().phases[0].pending)  # The second one may come later.
        (phase,) = calls[1].explain().phases
        assert (phase.running, phase.pending) == (1, 1)
        assert phase.why == "pool 'narrow' holds its max share of 1"
        assert calls[1].job in [one.job for one in session.jobs()]


@pytest.mark.session_only("a server keeps the state of a job that is over, and no waits")
def test_a_future_knows_how_its_job_ended(session: Session) -> None:
    """Also the pool."""
    with session.executor(pool="narrow") as executor:
        future = executor.submit(abs, -1)
    over = future.explain()
    assert (over.pool, over.phases) == ("narrow", ())
    assert over.status.startswith("over: completed at ")


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
            works.append(session._intake.learning.rates.by_phase.keys())
    assert not works[0]
    assert {phase for _, phase in works[1]} == {"map", "reduce"}
