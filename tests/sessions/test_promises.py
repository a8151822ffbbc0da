"""Promises of dates in a session, and of a server with the same pools."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import pytest

from sessions.small_calls import PATIENCE
from slotwise import (
    InputError,
    Job,
    Phase,
    Pool,
    PromiseRefused,
    Session,
    Tasks,
    read_log,
    replay,
)
from slotwise.core.decisions import AcceptPromise, RefusePromise
from waiting import until

DAY = 86_400.0


def job(name: str, count: int, seconds: float, promise: float, **more: Any) -> Job:
    """A job that sleeps, and asks for a promise in seconds from now."""
    return Job(name, (Phase("p", Tasks(count, seconds)),), promise=promise, **more)


def test_a_promise_is_accepted_or_refused_with_a_date() -> None:
    """The refused job does not run; asked for again at that date, it is accepted."""
    with Session(2, "fair", log=None) as session:
        before = time.time()
        kept = session.run(job("kept", 2, 9.0, 60.0))  # While it runs, nothing is learned.
        with pytest.raises(
            PromiseRefused, match=r"it takes 20 s on .*; the earliest date"
        ) as refused:
            session.run(job("late", 400, 0.1, 5.0))
        earliest = refused.value.earliest
        assert earliest is not None
        assert before + 28 < earliest < time.time() + 30
        later = earliest - time.time()
        with pytest.raises(PromiseRefused):
            session.run(job("late", 400, 0.1, later - 9))
        again = session.run(job("later", 400, 0.1, later + 1))
        assert "its end is promised" in session.explain(again).status
        assert "its end is promised" in session.explain(kept).status
        again.cancel()
        kept.cancel()
        assert {one.job for one in session.jobs()} <= {"kept", "later"}


def test_a_refusal_names_a_time_of_day(session: Any) -> None:
    """Also of a command, and from a server; nothing was begun."""
    before = len(session.jobs())
    with pytest.raises(PromiseRefused, match="cannot be promised") as refused:
        session.command(["true"], work=600.0, id="long", promise="5m")
    assert refused.value.earliest is not None
    later = refused.value.earliest - time.time()
    assert later > 300  # 600 s, by what jobs before have taught of stated work.
    times = re.findall(r"\d\d:\d\d:\d\d", str(refused.value))
    assert len(times) == 2
    assert all(datetime.strptime(one, "%H:%M:%S") for one in times)
    assert len(session.jobs()) == before
    accepted = session.command(["true"], work=600.0, promise=f"{later + 5:.0f}s")
    assert accepted.result(PATIENCE)


@pytest.mark.parametrize("scheduler", ["fair", "flex"])
def test_the_log_repeats_the_answers(scheduler: str, tmp_path: Any) -> None:
    """Those of jobs that were promised their dates before they arrived.

    What is refused is in no log, and changes nothing of what is learned.
    """
    log = tmp_path / "log.jsonl"
    with Session(1, scheduler, log=log, keep=False) as session:
        for number in range(40):
            session.run(Job(f"p{number}", (Phase("p", Tasks(1, 0.001)),)))
            with pytest.raises(PromiseRefused):
                session.run(job("refused", 1, 9.0, 0.5))
        for number in range(3):
            # One task of 1 ms that a busy machine holds up for 0.3 s makes 64 s of 0.05 s.
            session.run(job(f"j{number}", 1, 0.05, DAY + number))
    assert replay(log).is_identical
    decisions = [d for turn in read_log(log).turns for d in turn.decisions]
    assert sum(isinstance(d, AcceptPromise) for d in decisions) == 3
    assert not any(isinstance(d, RefusePromise) for d in decisions)


def test_a_promised_job_moves_within_the_quota_of_its_user() -> None:
    """A pool that allows one promise gets no second one by a move."""
    pools = [Pool("one", promises_max_per_user={"*": 1}), Pool("more")]
    with Session(1, "fair", pools=pools) as session:
        first = session.run(job("first", 1, 9.0, 900.0, pool="one", user="ann"))
        second = session.run(job("second", 1, 9.0, 900.0, pool="more", user="ann"))
        until(lambda: "promised" in session.explain(second).status)
        with pytest.raises(InputError, match="'second' has a promise: user 'ann' has 1 open"):
            session.change(second, pool="one")
        session.change(first, pool="more")
        until(lambda: session.explain(first).pool == "more")
        session.change(second, pool="one")
        session.close(cancels=True)


def test_other_schedulers_refuse() -> None:
    """At once, with those that keep promises."""
    with Session(1, "fifo") as session, pytest.raises(PromiseRefused, match="flex or fair"):
        session.run(job("j", 1, 0.1, 9.0))
