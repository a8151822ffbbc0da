"""What programs written for a ProcessPoolExecutor also expect of the executor of a session."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.managers import SyncManager

import pytest

from slotwise import Session

PATIENCE = 120.0


@pytest.mark.local_only("agents print what tasks print on their stderr")
def test_what_a_call_prints_appears_on_stdout(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As it does with process pools; `slotwise run` shows it on stderr."""
    with Session(1) as fresh:
        assert fresh.submit(print, "apple").result(PATIENCE) is None
    assert capfd.readouterr() == ("apple\n", "")


def test_calls_use_a_manager_of_the_caller(session: Session) -> None:
    """Workers have the caller's key, which a manager asks for."""
    with SyncManager() as manager:
        shared = manager.list()
        session.submit(shared.append, 5).result(PATIENCE)
        assert list(shared) == [5]


def test_a_lost_worker_is_the_error_of_a_process_pool(session: Session) -> None:
    """So that code that expects it works; here only the call fails."""
    with session.executor() as executor:
        with pytest.raises(BrokenProcessPool, match="exited with code 3"):
            executor.submit(os._exit, 3).result(PATIENCE)
        assert executor.submit(len, "abc").result(PATIENCE) == 3
