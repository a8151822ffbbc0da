"""Jobs of commands, and jobs of every kind of the workload file, in a session."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise import Calls, InputError, Job, Phase, Session, SlotwiseError, Tasks
from slotwise.jobs.commands import ONE_CORE
from slotwise.sessions.intake import arriving

PATIENCE = 120.0


def printed(folder: str) -> list[str]:
    """What the tasks of a job of commands have printed."""
    return [path.read_text() for path in sorted(Path(folder).glob("*.out"))]


def total(task: int, results: Any) -> int:
    """A call that gets the results of the phase before it."""
    return sum(results["numbers"])


def number(task: int) -> int:
    """The number of its task."""
    return task


def test_a_command_prints_to_a_folder(session: Session, tmp_path: Path) -> None:
    """Its result is the folder; the tasks know their numbers and run in `cwd`."""
    command = 'echo "$SLOTWISE_TASK of $SLOTWISE_TASKS in $(basename $PWD): $WORD"'
    job = session.command(
        command, tasks=2, env={"WORD": "hello"}, cwd=tmp_path, output=tmp_path / "out"
    )
    assert job.result(PATIENCE) == str(tmp_path / "out")
    name = tmp_path.name
    assert printed(job.result()) == [f"{task} of 2 in {name}: hello\n" for task in (0, 1)]


def change_this_process() -> None:
    """A call that leaves its worker process other than it was."""
    os.environ["LEFT"] = "by a call"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGUSR1})


@pytest.mark.local_only("on a host, commands get the environment of its agent")
def test_a_command_gets_the_environment_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is when it is submitted, whatever workers and the calls in them have set."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with Session(1) as session:
        session.submit(change_this_process).result(PATIENCE)
        monkeypatch.setenv("NEW", "since then")
        found = session.command(["env", "-0"], tmp_path / "out").result(PATIENCE)
    variables = dict(item.split("=", 1) for item in printed(found)[0].split("\0") if item)
    for name in [name for name in variables if name.startswith("SLOTWISE_")]:
        del variables[name]
    assert variables == {**ONE_CORE, **os.environ}
    assert variables["NEW"] == "since then"


def test_the_exit_code_of_a_command_decides_after_any_call() -> None:
    """Also if a call has let the worker process ignore the ends of its children."""
    with Session(1) as session:
        session.submit(change_this_process).result(PATIENCE)
        with pytest.raises(SlotwiseError, match="exited with code 3"):
            session.command("exit 3").result(PATIENCE)


def test_the_output_of_a_command_may_be_its_second_argument(
    session: Session, tmp_path: Path
) -> None:
    """As that of `slotwise.command`."""
    job = session.command("echo hello", tmp_path / "out")
    assert job.result(PATIENCE) == str(tmp_path / "out")


def test_without_an_output_the_session_keeps_it_until_it_closes() -> None:
    """Two jobs have a folder each; both are removed."""
    with Session(1) as session:
        jobs = [session.command(["echo", text]) for text in ("one", "two")]
        folders = [job.result(PATIENCE) for job in jobs]
        assert [printed(folder) for folder in folders] == [["one\n"], ["two\n"]]
        assert [job.job for job in jobs] == ["command", "command-2"]
    assert not any(map(os.path.exists, folders))


def test_a_command_that_fails_shows_its_stderr(session: Session) -> None:
    """Its future has the reason; a program that is not there is refused at once."""
    job = session.command("echo broken >&2; exit 7")
    with pytest.raises(SlotwiseError, match=r"(?s)broken\nthe command exited with code 7"):
        job.result(PATIENCE)
    with pytest.raises(InputError, match="program 'no-such-program' not found"):
        session.command(["no-such-program"])


def test_a_cancelled_command_is_stopped(session: Session, tmp_path: Path) -> None:
    """All its processes end; what it printed is not kept."""
    job = session.command(
        ["sh", "-c", 'sleep 1000 & echo $$ > "$0"; wait', str(tmp_path / "pid")],
        output=tmp_path / "out",
    )
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()):
        assert not job.done()
        time.sleep(0.005)
    assert job.cancel()
    until = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{pid.read_text().strip()}") or (tmp_path / "out").exists():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_entries_of_a_workload_file_run(session: Session, tmp_path: Path) -> None:
    """As mappings: phases with work, a program and a command, in any pool."""
    (tmp_path / "in.txt").write_text("a b a\n")
    entries: list[dict[str, Any]] = [
        {"id": "asleep", "pool": "urgent", "phases": [{"name": "p", "work": 0.01}]},
        {"id": "count", "program": "wordcount", "inputs": "in.txt", "output": "out/count"},
        {"id": "echo", "command": "echo hi", "output": "out/echo", "pool": "any"},
    ]
    asleep, count, echo = (session.run(entry, folder=tmp_path) for entry in entries)
    assert asleep.result(PATIENCE) is None
    assert count.result(PATIENCE) == str(tmp_path / "out/count")
    assert printed(echo.result(PATIENCE)) == ["hi\n"]
    with pytest.raises(InputError, match=r"jobs\[0\].tasks"):
        session.run({"id": "none", "command": "echo", "output": "o", "tasks": 0})


def test_calls_of_several_phases_pass_results_on(session: Session) -> None:
    """A phase gets what the phase before it has returned."""
    phases = (
        Phase("numbers", Tasks(4)),
        Phase("total", Tasks(1), after=frozenset({"numbers"})),
    )
    job = session.run(Calls(Job("sums", phases), {"numbers": number, "total": total}))
    assert job.result(PATIENCE)["total"][0] == 6


def test_a_deadline_moves_with_the_arrival() -> None:
    """A job that states 5 s after its arrival has 5 s from now on."""
    job = Job("j", (Phase("p", Tasks(1, 1.0)),), 2.0, deadline=7.0, steps=((3.0, 1.0),))
    moved = arriving(job, 100.0, str.upper)
    assert isinstance(moved, Job)
    assert (moved.id, moved.arrival, moved.deadline) == ("J", 100.0, 105.0)
    assert moved.steps == ((101.0, 1.0),)


def test_output_in_the_memory_of_a_process_is_refused(session: Session, tmp_path: Path) -> None:
    """Its tasks would write to the memory of their processes."""
    (tmp_path / "in.txt").write_text("a b a\n")
    job = slotwise.mapreduce("wordcount", tmp_path / "in.txt", "memory://x/out")
    with pytest.raises(InputError, match="'memory://x/out' is in the memory of one process"):
        session.run(job)
