"""The end of a session: whatever still runs then."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slotwise import Session
from slotwise.model.event import JobCancelled

PATIENCE = 120.0


def test_jobs_that_end_while_others_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop forgets each job of calls before the next one is cancelled."""
    session = Session(1)
    put = session.put

    def put_and_wait(entry: Any) -> None:
        put(entry)
        until = time.monotonic() + PATIENCE
        while isinstance(entry, JobCancelled) and entry.job in session._calls:
            assert time.monotonic() < until
            time.sleep(0.001)

    monkeypatch.setattr(session, "put", put_and_wait)
    executors = [session.executor() for _ in range(3)]
    stuck = [executor.submit(time.sleep, 1000.0) for executor in executors]
    session.close(cancels=True)
    assert [future.cancelled() for future in stuck] == [True] * 3
