"""Jobs of earlier servers, which are restored while the next one serves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.servers import opened, submit
from slotwise.core.errors import InputError
from slotwise.service.engine import restore
from slotwise.service.engine.engine import Engine
from slotwise.service.engine.restore import Restoration
from slotwise.service.engine.retention import end_left_over
from slotwise.service.supervision import supervisor_records
from waiting import until


@pytest.fixture(autouse=True)
def _nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`begin` restores only what cannot wait, and one more."""
    monkeypatch.setattr(restore, "TOGETHER_SECONDS", 0.0)


@contextmanager
def _with_jobs(
    folder: Path, *jobs: dict[str, Any], scheduler: str = "fair"
) -> Iterator[tuple[Engine, Restoration]]:
    """A second server, which finds these jobs, held, of a first one."""
    with opened(folder, 1, slots=1) as first:
        submit(first, folder, *jobs, hold=True)
    with opened(folder, 2, scheduler, slots=1) as second:
        yield second, Restoration(second)


def _noop(id: str, pool: str = "default", **more: Any) -> dict[str, Any]:
    return {"id": id, "pool": pool, "command": ["true"], **more}


def _entries(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs in the order in which they enter the session, from now on."""
    entered, enter = list[str](), engine.enter

    def noted(record: Any, execution: Any) -> None:
        entered.append(record.id)
        enter(record, execution)

    monkeypatch.setattr(engine, "enter", noted)
    return entered


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [("fair", ["b1", "a2", "a3"]), ("fifo", ["a2", "a3", "b1"])],
)
def test_no_pool_waits_for_the_jobs_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str, expected: list[str]
) -> None:
    """Unless the order of arrivals decides who is served."""
    jobs = [_noop("a1", "a"), _noop("a2", "a"), _noop("a3", "a"), _noop("b1", "b")]
    with opened(tmp_path, 1, slots=1) as first:
        submit(first, tmp_path, {"command": "sleep 60"})
        until(lambda: supervisor_records.records(first.folder, "1"))
        submit(first, tmp_path, *jobs)
    with opened(tmp_path, 2, scheduler, slots=1) as second:
        entered, restoration = _entries(second, monkeypatch), Restoration(second)
        found = str(restoration.begin())
        assert found == "1 waiting, 1 continued, 3 still to restore"
        assert str(restoration.finish()) == "4 waiting, 1 continued"
        assert entered == ["1", "a1", *expected]
        second.cancel("1")
        until(lambda: not second.open_jobs())


def test_what_unknown_jobs_have_left_is_removed_before_jobs_are_planned(tmp_path: Path) -> None:
    """A job has its folder before it is stored: nothing that follows `begin` removes it."""
    with opened(tmp_path, 1, slots=1) as engine:
        old, new = (Path(supervisor_records.job_folder(engine.folder, id)) for id in "12")
        old.mkdir(parents=True)
        restoration = Restoration(engine)
        restoration.begin()
        assert not old.exists()
        new.mkdir()
        restoration.finish()
        assert end_left_over(engine) == 0
        assert new.exists()


def test_what_a_request_needs_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the jobs that it waits for; the request waits until it is there."""
    jobs = [*(_noop(f"a{n}") for n in range(5)), _noop("b"), _noop("c", after=["b"])]
    with _with_jobs(tmp_path, *jobs) as (engine, restoration):
        entered = _entries(engine, monkeypatch)
        assert restoration.begin().left == len(jobs) - 1
        asking = _in_thread(lambda: engine.change("c", {"priority": "high"}))
        until(lambda: restoration._wanted)
        assert restoration.finish().left == 0
        asking.join()
        assert entered == ["a0", "b", "c", "a1", "a2", "a3", "a4"]
        assert engine.found("c").priority == "high"


def test_new_jobs_wait_for_those_that_are_left(tmp_path: Path) -> None:
    """As for any other job."""
    with _with_jobs(tmp_path, _noop("a"), _noop("b")) as (engine, restoration):
        restoration.begin()
        adding = _in_thread(lambda: submit(engine, tmp_path, _noop("c", after=["b"])))
        until(lambda: restoration._wanted)
        restoration.finish()
        adding.join()
        assert engine.found("c").after == ("b",)
        for job in "ab":
            engine.release(job)
        until(lambda: not engine.open_jobs())
        assert engine.found("c").state == "done"


def test_a_server_that_stops_leaves_them_to_the_next_one(tmp_path: Path) -> None:
    """Requests that wait for one of them end, too."""
    with _with_jobs(tmp_path, _noop("a"), _noop("b")) as (engine, restoration):
        restoration.begin()
        asking = _in_thread(lambda: engine.bring("b"))
        until(lambda: restoration._wanted)
        restoration.stop()
        asking.join()
        assert restoration.finish().left == 1
        engine.leave(0)
    with opened(tmp_path, 3, slots=1) as third:
        restoration = Restoration(third)
        restoration.begin()
        assert str(restoration.finish()) == "2 waiting"


def test_a_job_that_cannot_be_restored_fails_alone(tmp_path: Path) -> None:
    """Its folder has gone, so that it cannot run."""
    gone = tmp_path / "gone"
    gone.mkdir()
    with _with_jobs(tmp_path, _noop("a", cwd=str(gone)), _noop("b")) as (engine, restoration):
        gone.rmdir()
        restoration.begin()
        assert restoration.finish().queued == 1
        until(lambda: engine.found("a").state == "failed")
        assert "after a restart" in engine.found("a").reason
        assert engine.is_open("b")


def test_a_change_waits_until_a_job_has_entered(tmp_path: Path) -> None:
    """A cancellation that came before its job would have no effect."""
    with opened(tmp_path, 1, slots=1) as engine:
        (job,) = submit(engine, tmp_path, _noop("a"), hold=True)
        with engine.entering([job]):
            cancelling = _in_thread(lambda: engine.cancel(job))
            cancelling.join(0.05)
            assert cancelling.is_alive()
        cancelling.join()
        until(lambda: engine.found(job).state == "cancelled")
        with pytest.raises(InputError):
            engine.change(job, {"priority": "low"})


def _in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread
