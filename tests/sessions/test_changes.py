"""Jobs and pools change while a session runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.small_calls import PATIENCE, await_, released, touch_and_wait
from slotwise import InputError, Pool, Session, read_log
from slotwise.core.events import JobArrived, PoolsChanged, SchedulerChanged
from slotwise.insight.explain import explain
from slotwise.insight.held_back import explain_job
from slotwise.insight.replay import replay_log


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


def test_jobs_of_the_account_wait_in_a_closed_pool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ann's calls wait until the pools are replaced; a call in the name of bob does not."""
    monkeypatch.setenv("LOGNAME", "ann")
    log = tmp_path / "log.jsonl"
    pools = [Pool("p", jobs_max_per_user={"ann": 0})]
    with (
        Session(2, "fair", pools=pools, log=log) as session,
        session.executor(pool="p") as mine,
        session.executor(pool="p", user="bob") as his,
    ):
        waits = mine.submit(len, "abc")
        assert his.submit(len, "abcd").result(60) == 4
        assert "pool 'p' is closed for user ann" in session.explain(waits).status
        session.set_pools([Pool("p")])
        assert waits.result(60) == 3
    assert read_log(log).header.user == "ann"


def test_parts_and_durations_in_a_session(tmp_path: Path) -> None:
    """Parts are of the slots that are there; a deadline is that long from the first call."""
    log = tmp_path / "log.jsonl"
    with Session(4, "fair", pools={"p": {"slots_max": "50%"}}, log=log) as session:
        session.set_pools({"p": {"slots_max": "25%"}})
        future = session.executor(deadline="5m").submit(len, "abc")
        assert future.result(60) == 3
        with pytest.raises(
            InputError, match="deadline is 'soon'; expected seconds, or a durat"
        ):
            session.change(future, deadline="soon")
        with pytest.raises(InputError, match="'2020-01-01T08:00'; it is past; it is now"):
            session.command("true", deadline="2020-01-01T08:00")
    read = read_log(log)
    assert [pool.slots_max for pool in read.header.pools] == [{"task": 2}]
    events = [event for turn in read.turns for event in turn.events]
    changed = [one.pools for one in events if isinstance(one, PoolsChanged)]
    assert [[pool.slots_max for pool in pools] for pools in changed] == [[{"task": 1}]]
    (job,) = [one.job for one in events if isinstance(one, JobArrived)]
    assert job.deadline == job.arrival + 300


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


def test_a_scheduler_is_replaced_while_jobs_run(tmp_path: Path) -> None:
    """Of two slots fifo gives both to the first job. Then fair gives one to the second; flex
    follows. The log repeats all of it, and explanations name the scheduler of their instant.
    """
    log = tmp_path / "log.jsonl"
    with (
        Session(2, "fifo", log=log) as session,
        session.executor(name="first") as first,
        session.executor(name="second") as second,
        released(tmp_path / "go") as go,
        released(tmp_path / "end") as end,
    ):
        for number, until in enumerate((go, go, end, end)):
            first.submit(touch_and_wait, str(tmp_path / str(number)), until)
        late = second.submit(touch_and_wait, str(tmp_path / "late"), end)
        for number in (0, 1):
            await_(tmp_path / str(number))
        assert (session.explain(late).scheduler, session.jobs().scheduler) == ("fifo", "fifo")
        session.set_scheduler("fair")
        assert (session.explain(late).scheduler, session.jobs().scheduler) == ("fair", "fair")
        Path(go).touch()
        await_(tmp_path / "late")
        for wrong, match in (
            ("dmrs", "needs the work of all tasks"),
            ("fare", "fair"),
            ("easy", "fair cannot be replaced by easy"),
        ):
            with pytest.raises(InputError, match=match):
                session.set_scheduler(wrong)
        session.set_scheduler("flex")
        assert session.explain(late).scheduler == "flex"
        assert "(flex, " in str(session.jobs())
    read = read_log(log)
    events = [event for turn in read.turns for event in turn.events]
    changes = [
        (turn.now, event.name)
        for turn in read.turns
        for event in turn.events
        if isinstance(event, SchedulerChanged)
    ]
    assert [name for _, name in changes] == ["fair", "flex"]
    assert replay_log(read).is_identical
    arrival = next(one.job.arrival for one in events if isinstance(one, JobArrived))
    assert explain(read, "first", arrival).scheduler == "fifo"
    for now, name in changes:
        assert explain(read, "first", now).scheduler == name
    assert explain_job(read, "first").scheduler == "flex"
