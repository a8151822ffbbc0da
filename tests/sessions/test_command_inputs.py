"""Commands of a session that wait for other jobs and calls, and use their results as words."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path

import pytest

from slotwise.core.errors import InputError, SlotwiseError
from slotwise.sessions.session import Session


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session of two slots."""
    with Session(2) as opened:
        yield opened


def printed(folder: str, task: int = 0) -> str:
    """What a task of a command has printed."""
    return Path(folder, f"task-{task:05}.out").read_text()


def test_futures_as_words_are_results(session: Session) -> None:
    """The folder of another command, the result of a call, and the number of the task."""
    first = session.command("echo from $SLOTWISE_TASK", id="first", tasks=2)
    seven = session.submit(operator.add, 3, 4)
    words = ["sh", "-c", "cat $0/*.out; echo $1 $2 $3", first, seven, "{task}", "{{task}}"]
    second = session.command(words, id="second", tasks=2)
    assert printed(second.result(), 1) == "from 0\nfrom 1\n7 1 {task}\n"


def test_a_command_waits_for_jobs_and_calls(session: Session, tmp_path: Path) -> None:
    """By id or future; both have written a file when it begins."""
    one, two = tmp_path / "one", tmp_path / "two"
    job = session.command(f"sleep 0.1; touch {one}", id="job")
    call = session.submit(two.write_text, "2")
    for after in (["job", call], [job, call]):
        listed = session.command(["ls", str(tmp_path)], id="ls", after=after)
        assert printed(listed.result()) == "one\ntwo\n"


def test_a_command_after_a_failed_one_is_cancelled_or_runs(session: Session) -> None:
    """Also if that failed before it was submitted, and if it is a word."""
    bad = session.command("exit 3", id="bad")
    never = session.command("echo no", id="never", after=bad)
    always = session.command("echo yes", id="always", after=bad, after_failed="run")
    assert printed(always.result()) == "yes\n"
    late = session.command("echo no", id="late", after=bad)
    for future in (never, late, session.command(["echo", bad], id="word")):
        with pytest.raises(SlotwiseError, match="job 'bad', for which it waits, has failed"):
            future.result()


def test_a_command_after_a_failed_call_fails_or_runs(session: Session) -> None:
    """With the error of the call."""
    bad = session.submit(operator.truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        session.command("echo no", after=bad).result()
    ran = session.command("echo yes", after=bad, after_failed="run")
    assert printed(ran.result()) == "yes\n"


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (["nobody"], "waits for job 'nobody', which does not exist"),
        ([3], "after has 3; give ids of jobs, or futures"),
    ],
)
def test_unknown_jobs_are_refused(session: Session, after: list[str], message: str) -> None:
    """At once, with the name."""
    with pytest.raises(InputError, match=message):
        session.command("true", after=after)


def test_a_future_of_another_session_is_refused(session: Session) -> None:
    """Its result can be passed."""
    with Session(1) as other, pytest.raises(InputError, match="future of another session"):
        session.command(["echo", other.submit(operator.add, 1, 2)])
