"""A session belongs to the process that opened it, and says so inside calls."""

from __future__ import annotations

import pytest

from slotwise import InputError, Session

PATIENCE = 120.0
MESSAGE = "a (Session|Client) cannot be used inside a call"


def test_a_session_is_no_argument_of_a_call(session: Session) -> None:
    """The future says why, and the session goes on."""
    with pytest.raises(InputError, match=MESSAGE):
        session.submit(str, session).result(PATIENCE)
    assert session.submit(len, "abc").result(PATIENCE) == 3


def test_a_function_cannot_submit_to_the_session_that_runs_it(session: Session) -> None:
    """Neither to one of its executors."""
    with session.executor() as executor:
        for inner in (session, executor):
            outer = session.submit(lambda inner=inner: inner.submit(len, "abc").result())
            with pytest.raises(InputError, match=MESSAGE):
                outer.result(PATIENCE)
