"""Callbacks and the steps of calls that wait: each is made once, also at the end."""

from __future__ import annotations

import threading
from concurrent import futures
from functools import partial
from typing import Any

import pytest

from slotwise import Session, SlotwiseError
from slotwise.sessions.loop_thread import CallThread

PATIENCE = 120.0


def test_a_call_that_is_given_behind_the_end_is_made() -> None:
    """By the thread if it is still there, otherwise by the caller."""
    thread, has_ended = CallThread("calls"), threading.Event()
    made: list[object] = []

    def note() -> None:
        made.append(threading.current_thread())

    def first() -> None:
        has_ended.wait(PATIENCE)
        thread.call(note)

    thread.start()
    thread.call(first)
    thread.end()
    thread.call(note)
    has_ended.set()
    thread.join(PATIENCE)
    thread.call(note)
    assert made == [thread, thread, threading.current_thread()]


def test_many_threads_give_calls_while_it_ends() -> None:
    """None is lost, and none is made twice."""
    for _ in range(100):
        assert sorted(calls_made_by(3)) == [(n, m) for n in range(3) for m in range(20)]


def calls_made_by(count: int) -> list[tuple[int, int]]:
    """The calls that were made when so many threads give twenty each while it ends."""
    thread, begin = CallThread("calls"), threading.Barrier(count + 1)
    made: list[tuple[int, int]] = []

    def give(giver: int) -> None:
        begin.wait(PATIENCE)
        for number in range(20):
            thread.call(partial(made.append, (giver, number)))

    givers = [threading.Thread(target=give, args=(n,)) for n in range(count)]
    for one in (thread, *givers):
        one.start()
    begin.wait(PATIENCE)
    thread.end()
    for one in (*givers, thread):
        one.join(PATIENCE)
    return made


def test_a_long_chain_of_calls_fails_with_its_session() -> None:
    """All futures end, without a deep recursion; `close` does not wait for them."""
    is_broken = threading.Event()

    def explode(now: float, events: object, decisions: object) -> None:
        is_broken.wait(PATIENCE)
        raise ZeroDivisionError("a bug")

    session = Session(1, progress=explode)
    last: futures.Future[Any] = session.submit(len, "abc")
    for _ in range(1500):
        last = session.submit(repr, last)
    is_broken.set()
    with pytest.raises(SlotwiseError, match="the session has failed: a bug"):
        last.result(PATIENCE)
    session.close()
