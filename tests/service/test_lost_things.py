"""What must not be lost when the session fails, the server leaves, or two things meet."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.servers import opened, submit
from slotwise.backends.local.call_stream import CallFiles, pickled_call
from slotwise.core.errors import InputError
from slotwise.core.pools import Pool
from slotwise.service.engine import calls as engine_calls
from slotwise.service.engine import reloading
from slotwise.service.engine.calls import CallFrames, Frame
from slotwise.service.engine.counts import ServiceCounts
from slotwise.service.engine.engine import Engine
from slotwise.service.engine.restore import Restoration
from slotwise.service.store.writer import StoreWriter
from waiting import until

WAITS = "echo printed; echo begun >> begun; until [ -e go ]; do sleep 0.02; done; touch done"
"""A command that notes each of its beginnings and ends when there is a file."""


def _fail(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop of the session end by a defect."""
    with monkeypatch.context() as patched:
        patched.setattr(ServiceCounts, "turn", lambda *_: 1 / 0)
        engine.session.set_scheduler("fifo")
        until(lambda: engine.core.is_ended)


def _is_over(engine: Engine, job: str) -> Callable[[], bool]:
    return lambda: engine.found(job).state != "open"


def test_a_defect_of_the_loop_ends_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server has those that ran, those that waited, and those that came meanwhile."""
    with opened(tmp_path) as first:
        (runs,) = submit(first, tmp_path, {"command": WAITS})
        until((tmp_path / "begun").exists)
        (waits,) = submit(first, tmp_path, {"command": "true"}, hold=True)
        _fail(first, monkeypatch)
        with pytest.raises(ZeroDivisionError):
            raise first.core._error or AssertionError
        assert [one.state for one in first.store.jobs()] == ["open", "open"]
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists)
    with opened(tmp_path, 2) as second:
        assert str(Restoration(second).begin()) == "1 waiting, 1 continued"
        until(_is_over(second, runs))
        assert second.found(runs).state == "done"
        assert second.found(waits).held
        assert (tmp_path / "begun").read_text() == "begun\n"


def test_a_job_that_enters_while_the_server_leaves_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its session has just been closed."""
    with opened(tmp_path) as engine:
        run, leaving = engine.core.run, threading.Thread(target=engine.leave, args=[0])

        def late(*given: Any, **more: Any) -> object:
            leaving.start()
            until(lambda: engine.core.is_closed)
            return run(*given, **more)

        monkeypatch.setattr(engine.core, "run", late)
        (job,) = submit(engine, tmp_path, {"command": "true"})
        leaving.join()
        assert engine.found(job).state == "open"


def test_a_word_is_known_before_the_end_of_its_job_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job begins at once."""
    commit = StoreWriter._transaction

    def slow(*given: Any) -> Any:
        time.sleep(0.2)
        return commit(*given)

    with opened(tmp_path) as engine:
        monkeypatch.setattr(StoreWriter, "_transaction", slow)
        first = {"id": "a", "command": "true", "output": "o"}
        second = {"command": ["test", "-d", {"result_of": "a"}], "attempts": 1}
        _, job = submit(engine, tmp_path, first, second)
        until(_is_over(engine, job))
        assert engine.found(job).reason == ""


def test_a_word_of_a_job_without_output_fails_its_job_only(tmp_path: Path) -> None:
    """No further attempt begins: none can succeed."""
    with opened(tmp_path) as engine:
        second = {"command": ["echo", {"result_of": "a"}]}
        _, job = submit(engine, tmp_path, {"id": "a", "command": "true"}, second)
        until(_is_over(engine, job))
        assert "job 'a' has no output; give it one" in engine.found(job).reason
        (after,) = submit(engine, tmp_path, {"command": "true"})
        until(_is_over(engine, after))
        assert engine.found(after).state == "done"


def test_a_job_that_cannot_be_released_stays_held(tmp_path: Path) -> None:
    """Its pool has got pools below it; in another one it runs."""
    with opened(tmp_path) as engine:
        (job,) = submit(engine, tmp_path, {"command": "true", "pool": "a"}, hold=True)
        until(lambda: engine.core.ask(lambda: bool(engine.core.state.phases_of(job))))
        pools = Pool("a"), Pool("c", parent="a")
        reloading.changed(engine, replace(engine.settings, pools=pools))
        with pytest.raises(InputError, match="pools below it"):
            engine.release(job)
        assert engine.found(job).held
        engine.change(job, {"pool": "c"})
        engine.release(job)
        until(_is_over(engine, job))
        assert engine.found(job).state == "done"


def test_a_key_gives_all_jobs_of_its_submission_again(tmp_path: Path) -> None:
    """However many there are."""
    jobs = [{"command": "true"}] * 101
    with opened(tmp_path) as engine:
        ids, again = (submit(engine, tmp_path, *jobs, key="k", hold=True) for _ in range(2))
        assert len(ids) == len(jobs)
        assert again == ids


OPENING: Frame = {"op": "open", "stream": "s", "binding": {}, "grows": True, "client": "c"}, []
CLOSING: Frame = {"op": "close", "stream": "s"}, []


def _call(number: int, path: Path | None = None) -> Frame:
    """A frame with a call, which waits for a file if there is a path."""
    code = f"until [ -e {path} ]; do sleep 0.02; done" if path else ""
    body, _ = pickled_call(os.system, (code,), {}, CallFiles(is_local=False))
    assert isinstance(body, bytes)
    return {"op": "call", "stream": "s", "number": number, "inputs": [None]}, [body]


def _refused(answer: dict[str, Any]) -> bool:
    return "accepts no more calls" in answer["refused"].get("s", "")


def test_a_call_for_a_job_that_accepts_none_is_refused(tmp_path: Path) -> None:
    """While it runs, and when it is over; what was sent before changes nothing."""
    with opened(tmp_path) as engine:
        calls, first = CallFrames(engine), _call(0, tmp_path / "go")
        job = calls.handle([OPENING, first], engine.own)["jobs"]["s"]
        assert _refused(calls.handle([CLOSING, _call(1)], engine.own))
        assert _refused(calls.handle([_call(1)], engine.own))
        assert not _refused(calls.handle([OPENING, first, CLOSING], engine.own))
        (tmp_path / "go").touch()
        until(_is_over(engine, job))
        assert engine.found(job).state == "done"
        assert _refused(calls.handle([_call(1)], engine.own))
        assert not _refused(calls.handle([OPENING, first, CLOSING], engine.own))
        assert not engine.core.is_ended


@pytest.mark.parametrize("runs", [True, False])
def test_a_call_that_meets_the_cancellation_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    """It is refused, or cancelled; the server continues."""
    with opened(tmp_path) as engine:
        calls = CallFrames(engine)
        before = [_call(0, tmp_path / "go")] if runs else []
        job = calls.handle([OPENING, *before], engine.own)["jobs"]["s"]
        get = engine.streams.get

        def cancelled(key: str) -> object:
            stream = get(key)
            if engine.store.call(job, 1) is not None:  # It is stored.
                engine.cancel(job)
            return stream

        monkeypatch.setattr(engine.streams, "get", cancelled)
        calls.handle([_call(1)], engine.own)
        until(_is_over(engine, job))
        assert engine.found(job).state == ("cancelled" if runs else "done")
        until(lambda: engine.store.call_states(job)[-1].state == "cancelled")
        assert not engine.core.is_ended


def test_jobs_of_a_client_that_has_left_stay_open_while_calls_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back for their results, and add more calls."""
    monkeypatch.setattr(engine_calls, "LEFT_SECONDS", 0.0)
    with opened(tmp_path) as engine:
        calls = CallFrames(engine)
        job = calls.handle([OPENING, _call(0, tmp_path / "go")], engine.own)["jobs"]["s"]
        for _ in range(2):
            calls.close_left([])
        assert not _refused(calls.handle([_call(1)], engine.own))
        (tmp_path / "go").touch()
        until(lambda: all(one.state == "done" for one in engine.store.call_states(job)))
        assert not _is_over(engine, job)()

        def is_closed() -> bool:
            calls.close_left([])  # It may have been stored only that the call is over.
            return _is_over(engine, job)()

        until(is_closed)


def test_a_command_waits_for_space_for_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails no attempt, and what it prints is kept all the same."""
    with opened(tmp_path) as engine:

        def full(path: str, *_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        with monkeypatch.context() as patched:
            patched.setattr(os, "makedirs", full)
            (job,) = submit(engine, tmp_path, {"command": WAITS})
            until((tmp_path / "begun").exists)
        (tmp_path / "go").touch()
        until(_is_over(engine, job))
        assert engine.found(job).state == "done"
        (command,) = engine.store.tasks(job)
        assert command.attempt == 1
        (log,) = (engine.folder / "runs").glob(f"*/logs/{job}/*.out")
        assert log.read_text() == "printed\n"


def test_times_are_those_of_a_clock_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the sleep of a machine, which the clock of the session does not count."""
    with opened(tmp_path) as engine:
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 3600.0)
        (job,) = submit(engine, tmp_path, {"command": "true"})
        until(_is_over(engine, job))
        found = engine.found(job)
        assert found.submitted <= (found.begun or 0.0) <= (found.ended or 0.0) <= time.time()


def test_output_of_jobs_that_were_forgotten_is_removed_by_the_next_server(
    tmp_path: Path,
) -> None:
    """Also that of calls, which is among the logs only: the first one was killed meanwhile."""
    with opened(tmp_path) as first:
        log = first.folder / "runs" / "000001" / "logs" / "call" / "0.1.out"
        kept = [OPENING, _call(0, tmp_path / "go"), CLOSING]
        job = CallFrames(first).handle(kept, first.own)["jobs"]["s"]
        (tmp_path / "go").touch()
        until(_is_over(first, job))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("printed\n")
        first.store.prune(time.time() + 1.0, 1)
    with opened(tmp_path, 2) as second:
        Restoration(second).begin()
        assert not log.parent.exists()
