"""Jobs and pools change while a session runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.small_calls import PATIENCE, await_, released, touch_and_wait
from slotwise import InputError, Pool, Session


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
