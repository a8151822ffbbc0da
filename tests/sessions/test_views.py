"""What a session shows of its jobs: a table of one instant, also when it is closed."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from sessions.small_calls import PATIENCE, released, wait_for_file
from slotwise import (
    Cluster,
    Host,
    Job,
    Phase,
    Session,
    SessionJob,
    SlotwiseError,
    Tasks,
)
from slotwise.sessions import views
from waiting import until


def test_jobs_are_those_not_over_then_those_that_ended(tmp_path: Path) -> None:
    """One is running, one waits for it, one was done, one has failed."""
    with Session(1, "fifo", attempts_max=1) as session:
        session.run(Job("done", (Phase("p", Tasks(2, 0.0)),))).result(PATIENCE)
        failed = session.executor(name="failed").submit(int, "x")
        with pytest.raises(ValueError, match="invalid literal"):
            failed.result(PATIENCE)
        with released(tmp_path / "go") as go:
            running = session.executor(name="running").submit(wait_for_file, go)
            until(running.running)
            session.submit(abs, -1)
            jobs = session.jobs()
            assert {job.job: job.state for job in jobs}["running"] == "running"
            waiting = next(job for job in jobs if job.state == "waiting")
            assert (waiting.tasks, waiting.done, waiting.running, waiting.slots) == (1, 0, 0, 0)
            done = next(job for job in jobs if job.job == "done")
            assert (done.state, done.tasks, done.done, done.reason) == ("completed", 2, 2, "")
            states = [job.state for job in jobs]
            assert states.index("completed") > states.index("waiting")
            assert jobs.left == sum(state not in ("completed", "failed") for state in states)
            assert f"{jobs.left} jobs not over" in str(jobs).splitlines()[0]
            assert f"{jobs.left} jobs not over" in jobs._repr_html_()


def test_calls_that_raise_and_jobs_that_are_cancelled_are_not_completed() -> None:
    """Their tasks are done; the future has the error."""
    with Session(1, "fifo") as session:
        two = session.executor(name="two")
        futures = [two.submit(int, "x"), two.submit(int, "3")]
        two.shutdown()
        session.submit(int, "y").exception(PATIENCE)
        held = session.submit(time.sleep, 60.0)
        until(held.running)
        waiting = session.run(Job("j", (Phase("p", Tasks(1, 0.0)),)))
        call = session.submit(abs, held)
        assert "waits for the results of other calls" in str(call.explain())
        assert call.explain().waiting.reason == "calls_before"
        until(lambda: "j" in {job.job for job in session.jobs()})
        waiting.cancel()
        until(lambda: session.jobs().over == 3)
        found = {job.job: (job.state, job.reason) for job in session.jobs()}
        assert found["two"] == ("failed", "1 of 2 calls raised")
        assert ("failed", "the call raised") in found.values()
        assert found["j"][0] == "cancelled"
        assert "over: cancelled" in str(waiting.explain())
        assert futures[1].result() == 3
        session.close(cancels=True)


def test_a_job_is_listed_before_it_has_arrived() -> None:
    """At once after it was submitted, and at most until it has ended."""
    with Session(1) as session:
        future = session.run(Job("j", (Phase("p", Tasks(1, 0.0)),)))
        assert [job.job for job in session.jobs()] == ["j"]
        future.result(PATIENCE)


def test_a_job_that_waits_knows_its_place_and_what_would_start_it() -> None:
    """Before it has arrived, while another one runs, and when it runs."""
    with Session(1, scheduler="fifo") as session:
        first = session.run(Job("first", (Phase("p", Tasks(1, 900.0)),)))
        until(first.running)

        def submitted() -> str:
            session.run(Job("last", (Phase("p", Tasks(1, 900.0)),)))
            return session.explain("last").waiting.reason

        assert session._intake.ask(submitted) == "not_arrived"
        until(lambda: session.explain("last").waiting.reason == "served_later")
        why = session.explain("last").waiting
        assert (why.position, why.waiting) == (1, 1)
        assert (why.remedy, why.pool, why.start) == ("a higher priority", "", None)
        assert first.explain().waiting.reason == "all_run"
        session.close(cancels=True)


def test_few_jobs_that_ended_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones; all are counted."""
    monkeypatch.setattr(views, "ENDED_MAX", 2)
    with Session(1) as session:
        futures = [session.submit(abs, -n) for n in range(5)]
        assert [future.result(PATIENCE) for future in futures] == [0, 1, 2, 3, 4]
        until(lambda: not session.jobs().left)
        jobs = session.jobs()
        assert [job.job for job in jobs] == [futures[4].job, futures[3].job]
        assert jobs.over == 5
        assert futures[0].explain().status == "over"


def test_a_future_that_is_done_knows_how_long_and_why_it_waited(tmp_path: Path) -> None:
    """The other call held the only slot."""
    with Session(1, "fair") as session:
        with released(tmp_path / "go") as go:
            first = session.submit(wait_for_file, go)
            until(first.running)
            second = session.submit(abs, -1)
            until(lambda: second.explain().status == "waits")
        second.result(PATIENCE)
        said = second.explain().status
        assert re.fullmatch(
            r"over: completed at .*s, .*s after its arrival;"
            r" it waited .*s for its first slot: other jobs .*",
            said,
        )


def test_a_closed_session_shows_its_last_state() -> None:
    """Its jobs, itself and its futures neither fail nor hang."""
    with Session(1) as session:
        future = session.submit(abs, -1)
        future.result(PATIENCE)
    jobs = session.jobs()
    assert not jobs.is_open
    assert re.match(r"session \(flex, closed\) at .*: 0 of 1 slot held, 0 jobs not", str(jobs))
    assert [(job.job, job.state) for job in jobs] == [(future.job, "completed")]
    assert jobs.at == session.jobs().at
    assert "(flex, closed)" in session._repr_html_()
    assert future.explain().status.startswith("over: completed at ")
    assert "done" in future._repr_html_()


def test_rows_are_values() -> None:
    """Frozen, with the names of the table."""
    row = SessionJob("j", "p", "waiting", 2, 0, 0, 0, 1.5, "it waits", 3.0)
    with pytest.raises(AttributeError):
        row.done = 1  # type: ignore[misc]


def test_a_failed_job_says_why() -> None:
    """In the row and for its future."""
    with Session(1, attempts_max=1) as session:
        future = session.command(["false"], id="no")
        with pytest.raises(SlotwiseError, match="failed"):
            future.result(PATIENCE)
        (job,) = (job for job in session.jobs() if job.job == "no")
        assert job.state == "failed"
        assert job.reason
        assert future.explain().status.startswith("over: failed at ")


def test_the_free_part_of_memory_is_beside_the_free_slots(tmp_path: Path) -> None:
    """A running task holds its request, on hosts whose resources are stated."""
    host = Host("a", {"task": 2}, resources={"memory": "8 GiB", "gpu": 1})
    with Session(Cluster((host,)), "fair") as session, released(tmp_path / "go") as go:
        running = session.executor(name="call").submit(wait_for_file, go)
        until(running.running)
        assert session.jobs().free == {"gpu": ("1", "1"), "memory": ("8 GiB", "8 GiB")}
        phase = Phase("p", Tasks(1, 60.0), resources={"memory": "5 GiB"})
        job = session.run(Job("big", (phase,)))
        until(lambda: session.jobs().held == 2)
        assert session.jobs().free["memory"] == ("3 GiB", "8 GiB")
        assert "memory 3 GiB of 8 GiB free" in str(session.jobs())
        job.cancel()
