"""Questions what would happen: they may not take what other requests need."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from slotwise.service.engine import what_if
from slotwise.service.engine.rights import LimitError
from slotwise.service.engine.submitting import Submission
from slotwise.service.engine.what_if import PLACES, WhatIfs
from waiting import until


def test_few_questions_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a thread of the server; all others are refused at once."""
    answers, asked = threading.Event(), list[int]()

    def change_of(*_: object) -> Any:
        """Take long."""
        asked.append(1)
        answers.wait(60)
        raise ZeroDivisionError

    monkeypatch.setattr(what_if, "change_of", change_of)
    own: Any = SimpleNamespace(name="own", is_admin=True)
    engine: Any = SimpleNamespace(core=None, own=own)
    submitter: Any = None
    asks = WhatIfs(engine, submitter)
    given = Submission(jobs=[], folder="/", environ={}, by=own)
    with ThreadPoolExecutor(PLACES) as pool:
        waiting = [pool.submit(asks.answer, given, {}) for _ in range(PLACES)]
        until(lambda: asked and asks._places._value == 0)
        with pytest.raises(LimitError, match="ask again"):
            asks.answer(given, {})
        answers.set()
        for one in waiting:
            with pytest.raises(ZeroDivisionError):
                one.result(60)
    with pytest.raises(ZeroDivisionError):
        asks.answer(given, {})
