"""Attempts, delays and time limits of the calls, commands and jobs of a session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slotwise import Calls, InputError, Job, Phase, Session, SlotwiseError, Tasks
from slotwise.core.events import TaskFailed
from slotwise.core.log import read_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of the session."""
    return tmp_path / "log.jsonl"


@pytest.fixture
def session(log: Path) -> Iterator[Session]:
    """A session of one slot, so that a call gets the slot of the one before it."""
    with Session(1, "fair", log=log, keep=False) as opened:
        yield opened


def fails_until(count: int, file: Path) -> int:
    """Raise an error until it was called `count` times."""
    with file.open("a") as calls:
        calls.write("x")
    if file.stat().st_size < count:
        raise ValueError("not yet")
    return file.stat().st_size


def endless() -> None:
    """A call that does not end by itself."""
    time.sleep(3600)


def failures(log: Path) -> list[tuple[int, bool, bool]]:
    """The attempts that failed: their numbers, and whether they were lost or final."""
    ends = (end for turn in read_log(log).turns for end in turn.events)
    return [(one.attempt, one.lost, one.final) for one in ends if isinstance(one, TaskFailed)]


def test_a_call_with_attempts_is_called_again(session: Session, tmp_path: Path) -> None:
    """Its result is that of the first attempt that raises nothing."""
    executor = session.executor(attempts=3, retry_delay=0.01)
    assert executor.submit(fails_until, 3, tmp_path / "file").result() == 3


def test_a_call_without_attempts_left_raises_its_own_exception(
    session: Session, tmp_path: Path
) -> None:
    """The exception of the last attempt is the result, and the other calls continue."""
    executor = session.executor(attempts=2)
    one = executor.submit(fails_until, 3, tmp_path / "file")
    assert repr(one.exception()) == "ValueError('not yet')"
    assert executor.submit(abs, -1).result() == 1


def test_a_call_that_exceeds_its_limit_frees_its_slot(session: Session) -> None:
    """Its future says so, and a call of another executor gets the slot."""
    one = session.executor(time_limit=0.5).submit(endless)
    assert str(one.exception()).endswith("exceeded its time limit of 0.5 s")
    assert session.submit(abs, -1).result() == 1


def test_limits_of_the_session_are_those_of_its_jobs() -> None:
    """They hold for calls and for jobs that state none of their own."""
    with Session(1, time_limit=0.5, attempts_max=1, keep=False) as session:
        assert "time limit of 0.5 s" in str(session.submit(endless).exception())
        sleeping = session.run(Job("a", (Phase("p", Tasks(1, 3600.0)),)))
        assert "time limit of 0.5 s" in str(sleeping.exception())


def test_a_command_gets_sigterm_at_its_limit(session: Session, tmp_path: Path) -> None:
    """It may clean up, and has failed even if it exits with 0."""
    assert session.command("true").result()  # Now the worker has begun, which takes time.
    command = "trap 'touch cleaned; exit 0' TERM; while :; do sleep 0.05; done"
    done = session.command(command, id="c", cwd=tmp_path, time_limit=1.0, attempts=1)
    assert "exceeded its time limit of 1 s" in str(done.exception())
    assert (tmp_path / "cleaned").exists()


def test_an_exit_code_that_is_not_retried_ends_the_job(log: Path) -> None:
    """The first attempt is the last one, and the message has the end of stderr."""
    with Session(1, log=log, keep=False) as session:
        done = session.command("echo bad >&2; exit 7", id="c", attempts=5, no_retry=[2, 7])
        assert str(done.exception()).endswith(
            "the last lines of its stderr:\nbad\nthe command exited with code 7"
        )
    assert failures(log) == [(1, False, True)]


def test_other_exit_codes_are_retried(log: Path) -> None:
    """A command has the attempts that it states."""
    with Session(1, log=log, keep=False) as session:
        done = session.command("exit 7", id="c", attempts=2, retry_delay=0.01, no_retry=[2])
        assert isinstance(done.exception(), SlotwiseError)
    assert failures(log) == [(1, False, False), (2, False, False)]


def test_an_exit_code_of_a_shell_has_the_name_of_the_signal(session: Session) -> None:
    """128 and the number of a signal is what a shell exits with after it."""
    done = session.command("exit 143", id="c", attempts=1)
    assert str(done.exception()).endswith("exited with code 143, as a shell does after SIGTERM")


def die(task: int) -> None:
    """End the worker process as a signal for a fault does."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_killed_worker_is_reported_with_attempt_and_signal(session: Session) -> None:
    """The message has job, task, attempt and the name of the signal."""
    one = Calls(Job("crash", (Phase("p", Tasks(1)),), attempts=2, retry_delay=0.01), die)
    text = str(session.run(one).exception())
    assert text.startswith("job 'crash' failed: p task 0 of job crash: ")
    assert text.endswith(" was killed by signal 11 (SIGSEGV), in attempt 2")


@pytest.mark.parametrize("stated", [{"attempts": 0}, {"retry_delay": -1.0}, {"time_limit": 0}])
def test_wrong_limits_are_refused(session: Session, stated: dict[str, float]) -> None:
    """An executor and a command refuse the same values."""
    (name,) = stated
    with pytest.raises(InputError, match=f"{name} is "):
        session.executor(**stated)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"{name} is "):
        session.command("true", **stated)


@pytest.mark.parametrize("codes", [[256], [-1], [1.5], 7, "7"])
def test_wrong_exit_codes_are_refused(session: Session, codes: object) -> None:
    """Exit codes are whole numbers from 0 to 255, in a list."""
    with pytest.raises(InputError, match="no_retry is "):
        session.command("true", no_retry=codes)
