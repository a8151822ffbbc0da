"""Hosts of a session are added, drained and removed while calls run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slotwise import (
    Cluster,
    Host,
    InputError,
    Job,
    Phase,
    Pool,
    Session,
    Tasks,
    read_log,
    replay,
)
from slotwise.core.events import HostAdded, HostDrained, HostRemoved, TaskFailed, TaskFinished
from slotwise.task import host_speed

PATIENCE = 120.0


def mark_and_wait(folder: str, go: str) -> int:
    """A call that leaves a mark named by its process, and lasts until a file exists."""
    Path(folder, str(os.getpid())).touch()
    while not os.path.exists(go):
        time.sleep(0.005)
    return os.getpid()


def await_marks(folder: Path, count: int) -> None:
    """Wait until so many processes have left marks."""
    until = time.monotonic() + PATIENCE
    while len(list(folder.iterdir())) < count:
        assert time.monotonic() < until
        time.sleep(0.005)


def await_hosts(session: Session, names: list[str]) -> None:
    """Wait until exactly these hosts are present."""
    until = time.monotonic() + PATIENCE
    while [host.name for host in session.hosts()] != names:
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """A folder for marks only."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


def test_calls_begin_on_an_added_host(tmp_path: Path, marks: Path) -> None:
    """The second call waits until a second host is there."""
    go = tmp_path / "go"
    with Session(1, log=tmp_path / "log") as session, session.executor() as executor:
        calls = [executor.submit(mark_and_wait, str(marks), str(go)) for _ in range(2)]
        await_marks(marks, 1)
        session.add_host("more", 1)
        await_marks(marks, 2)
        go.touch()
        assert len({call.result(PATIENCE) for call in calls}) == 2
        assert (session.slots, [h.name for h in session.hosts()]) == (2, ["localhost", "more"])
    assert replay(tmp_path / "log").is_identical


def test_a_drained_host_leaves_after_its_last_call(tmp_path: Path, marks: Path) -> None:
    """The call ends there; the next ones wait for another host."""
    go = tmp_path / "go"
    with Session(1, log=tmp_path / "log") as session:
        call = session.submit(mark_and_wait, str(marks), str(go))
        await_marks(marks, 1)
        session.remove_host("localhost")
        session.remove_host("localhost")
        later = session.submit(os.getpid)
        with pytest.raises(InputError, match="'localhost' leaves when its last task has ended"):
            session.add_host("localhost", 1)
        go.touch()
        assert call.result(PATIENCE) == int(next(marks.iterdir()).name)
        await_hosts(session, [])
        assert not later.done()
        session.add_host("localhost", 1)
        assert later.result(PATIENCE) != call.result()
    events = [event for turn in read_log(tmp_path / "log").turns for event in turn.events]
    kinds = [type(e) for e in events if isinstance(e, HostDrained | HostAdded | TaskFinished)]
    assert kinds == [HostDrained, TaskFinished, HostAdded, TaskFinished]
    assert replay(tmp_path / "log").is_identical


def test_calls_on_a_removed_host_begin_again(tmp_path: Path, marks: Path) -> None:
    """Its process is killed at once, and the loss is reported before the host is gone."""
    go = tmp_path / "go"
    with Session(1, log=tmp_path / "log") as session:
        call = session.submit(mark_and_wait, str(marks), str(go))
        await_marks(marks, 1)
        session.remove_host("localhost", drain=False)
        assert session.hosts() == []
        session.add_host("other", 1)
        await_marks(marks, 2)
        go.touch()
        call.result(PATIENCE)
    events = [event for turn in read_log(tmp_path / "log").turns for event in turn.events]
    ends = [e for e in events if isinstance(e, TaskFailed | HostRemoved | HostAdded)]
    assert [type(event) for event in ends] == [TaskFailed, HostRemoved, HostAdded]
    assert ends[0].lost
    assert "host localhost was removed" in ends[0].reason
    assert replay(tmp_path / "log").is_identical


def test_a_session_begins_with_emulated_hosts() -> None:
    """Each host has workers of its own speed, also hosts that come later."""
    hosts = (Host("fast", {"task": 1}), Host("slow", {"task": 1}, speed=0.5))
    with Session(Cluster(hosts)) as session:
        session.remove_host("fast")
        assert session.submit(host_speed).result(PATIENCE) == 0.5
        session.add_host("slower", 1, speed=0.25, rack="far")
        session.remove_host("slow")
        assert session.submit(host_speed).result(PATIENCE) == 0.25
        assert [host.rack for host in session.hosts()][-1:] == ["far"]


def test_hosts_that_cannot_be_are_refused() -> None:
    """With the value and a remedy; the session goes on."""
    with Session(1) as session:
        for name, slots, speed, says in (
            ("localhost", 1, 1.0, "'localhost' exists already; give the new host another"),
            ("new", 1, 2.0, "only slower ones can be emulated; give at most 1"),
            ("new", 1, 0.0001, "no host slower than 0.001"),
            ("new", 0, 1.0, "slots is 0; give a whole number >= 1"),
            ("new", -1, 1.0, "slots is -1"),
        ):
            with pytest.raises(InputError, match=says):
                session.add_host(name, slots, speed)
        with pytest.raises(InputError, match="there is no host 'new'; hosts: localhost"):
            session.remove_host("new")
        assert session.submit(len, "ab").result(PATIENCE) == 2


def test_each_call_of_an_executor_may_occupy_two_slots(tmp_path: Path, marks: Path) -> None:
    """On three slots one call of two slots runs at once, and one of one slot beside it."""
    go = tmp_path / "go"
    with Session(3, "fair") as session, session.executor(slots=2) as wide:
        calls = [wide.submit(mark_and_wait, str(marks), str(go)) for _ in range(2)]
        await_marks(marks, 1)
        found = session.submit(len, "ab").result(PATIENCE)
        jobs = session.jobs()
        go.touch()
        assert found == 2
        assert [(phase.running, phase.pending) for phase in jobs[0].phases] == [(2, 1)]
        assert [type(call.result(PATIENCE)) for call in calls] == [int, int]
        for slots, says in (
            (4, "the largest host, 'localhost', has 3"),
            (0, "give a whole number"),
        ):
            with pytest.raises(InputError, match=says):
                session.executor(slots=slots)
        with pytest.raises(InputError, match="raise slots_max to at least 2"):
            session.executor(slots=2, slots_max=1)


def test_jobs_that_the_pools_or_the_objective_do_not_allow_are_refused() -> None:
    """The session goes on, and its pools and objective stay possible for its jobs."""
    pools = [Pool("above"), Pool("below", parent="above")]
    job = Job("sleep", (Phase("p", Tasks(1, 0.01)),), pool="above")
    with Session(1, pools=pools) as session, session.executor() as executor:
        with pytest.raises(InputError, match="name one of: below"):
            session.executor(pool="above")
        with pytest.raises(InputError, match="name one of: below"):
            session.run(job)
        executor.submit(len, "").result(PATIENCE)
        with pytest.raises(InputError, match="deadline"):
            session.set_objective("tardiness")
        executor.shutdown()
        session.set_objective("tardiness")
        for refused in (session.executor, lambda: session.submit(len, "")):
            with pytest.raises(InputError, match="deadline"):
                refused()
        with session.executor(deadline=60.0) as timely:
            assert timely.submit(len, "ab").result(PATIENCE) == 2


def test_schedulers_that_need_known_work_are_refused() -> None:
    """The work of calls is unknown."""
    with pytest.raises(InputError, match="dmrs needs the work of all tasks"):
        Session(1, "dmrs")


def test_a_host_with_memory_runs_what_waits_for_it() -> None:
    """Its resources are in the log, and a phase whose request only it holds runs there."""
    memory = {"memory": "1 GiB"}
    first = Host("small", {"task": 1}, resources={"memory": "1 MiB"})
    with Session(Cluster((first,))) as session:
        with pytest.raises(InputError, match="host 'bad': resources: memory is -1"):
            session.add_host("bad", 1, resources={"memory": -1})
        session.add_host("large", 1, resources=memory)
        job = Job("j", (Phase("p", Tasks(2, 0.001), resources=memory),))
        session.run(job).result(PATIENCE)
        assert {host.name: dict(host.resources) for host in session.hosts()} == {
            "small": {"memory": 1 << 20},
            "large": {"memory": 1 << 30},
        }
