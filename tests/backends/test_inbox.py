"""The inbox of a live backend: its entries, and their order."""

from __future__ import annotations

import os
import select
import threading
from typing import Any

import pytest

from slotwise import Job, Phase, Tasks
from slotwise.backends.inbox import Ask, Inbox, Wakeup
from slotwise.backends.local.call_stream import CallFiles, CallStream
from slotwise.core.events import JobCancelled, JobsClosed, PoolsChanged, TasksAdded


class Stream(CallStream):
    """Calls whose results nobody wants."""

    def may_start(self, task: int) -> bool:
        """Always."""
        return True

    def stopped(self, task: int) -> None:
        """No effect."""

    def done(self, task: int, result: Any) -> None:
        """No effect."""


def taken(inbox: Inbox, now: float) -> list[Any]:
    """What the loop takes at an instant."""
    return list(inbox.take(now))


def test_a_stream_of_calls_arrives_once_and_then_grows() -> None:
    """Also if it is put while the loop has not taken its first calls."""
    stream = Stream(Job("a", (Phase("call", Tasks(1), grows=True),)), CallFiles(), 4)
    woken: list[None] = []
    inbox = Inbox((), lambda: woken.append(None), is_open=True)
    for _ in range(3):
        if stream.append((b"",)):
            inbox.put(stream)
    assert taken(inbox, 1.0) == [stream, TasksAdded(1.0, stream.phase, 2)]
    inbox.put(stream)
    assert taken(inbox, 2.0) == []
    for _ in range(2):
        if stream.append((b"",)):
            inbox.put(stream)
    assert taken(inbox, 3.0) == [TasksAdded(3.0, stream.phase, 2)]
    assert len(woken) == 3, "an entry that is left is not put again"


def test_expected_requests_are_taken_at_their_instants() -> None:
    """With the instant at which they are taken, and the run does not wait for them."""
    inbox = Inbox((), lambda: None, is_open=False)
    inbox.expect([PoolsChanged(1.0, ()), PoolsChanged(3.0, ())])
    assert taken(inbox, 0.5) == [JobsClosed(0.5)]
    assert inbox.next_at == 1.0
    assert taken(inbox, 1.5) == [PoolsChanged(1.5, ())]
    assert inbox.next_at == 3.0


def test_entries_are_taken_in_the_order_in_which_they_were_put() -> None:
    """One that is put back is the next one."""
    inbox = Inbox((), lambda: None, is_open=True)
    first, second = JobCancelled(1.0, "a"), JobsClosed(2.0)
    inbox.put(first)
    inbox.put(second)
    entries = inbox.take(2.0)
    assert next(entries) == first
    inbox.put_back(first)
    assert taken(inbox, 2.0) == [first, second]


def test_a_wakeup_that_rings_while_it_is_reset_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread may ring at any moment of a reset."""
    wakeup, read = Wakeup(), os.eventfd_read

    def read_between_rings(channel: int) -> int:
        wakeup.ring()
        count = read(channel)
        wakeup.ring()
        return count

    wakeup.ring()
    monkeypatch.setattr(os, "eventfd_read", read_between_rings)
    wakeup.reset()
    wakeup.ring()
    assert select.select([wakeup.channel], [], [], 0)[0]
    wakeup.close()


def test_what_a_thread_puts_together_arrives_at_the_end() -> None:
    """A question does not wait, nor does what another thread puts."""
    woken: list[None] = []
    inbox = Inbox((), lambda: woken.append(None), is_open=True)
    first, second, other = (JobCancelled(0.0, name) for name in "abc")
    question = Ask(lambda: None)
    with inbox.together():
        inbox.put(first)
        inbox.put(question)
        thread = threading.Thread(target=inbox.put, args=(other,))
        thread.start()
        thread.join()
        inbox.put(second)
        assert taken(inbox, 0.0) == [question, other]
    assert taken(inbox, 0.0) == [first, second]
    assert len(woken) == 3
    inbox.put(first)
    assert taken(inbox, 0.0) == [first]
