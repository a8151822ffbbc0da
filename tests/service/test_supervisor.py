"""Supervisors of commands: what they record, and that they end all that they have started."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from service.servers import WAITS, job, processes_of
from slotwise import task as running
from slotwise.core.errors import NotRetriedError, OutputError, SlotwiseError
from slotwise.jobs.commands import PHASE
from slotwise.jobs.execution import LostAttemptError
from slotwise.service.supervision.supervised import Spawner, SupervisedCommands
from slotwise.service.supervision.supervisor import RECORD, start_of, uptime
from slotwise.service.supervision.supervisor_records import (
    job_folder,
    left_over,
    records,
    remove,
)
from waiting import until


def attempt(execution: SupervisedCommands, number: int = 1, task: int = 0) -> None:
    """Run an attempt in this process, as a worker does."""
    arguments = execution.arguments(PHASE, task, number)
    running.begin(lambda: None)
    try:
        execution.runner(*arguments)
    finally:
        running.end()
    execution.finished(PHASE, task, number, None)


def begin(execution: SupervisedCommands, number: int = 1) -> tuple[threading.Thread, list[Any]]:
    """Run an attempt in a thread; its error is the only element of the list."""
    arguments, errors = execution.arguments(PHASE, 0, number), list[Any]()

    def call() -> None:
        try:
            execution.runner(*arguments)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, errors


def test_a_command_runs_with_its_output_and_variables(folder: Path) -> None:
    """It leads no session of the server, has default signals and only its own files."""
    command = (
        "echo $SLOTWISE_JOB $SLOTWISE_TASK $SLOTWISE_TASKS $SLOTWISE_ATTEMPT; echo err >&2;"
        " pwd; grep -E 'Sig(Blk|Ign)' /proc/self/status; cd /proc/self/fd; echo *"
    )
    with job(folder, 7, command) as execution:
        attempt(execution)
        out, err = execution.output_files(PHASE, 0, 1)
        assert (out, err) == tuple(
            f"{folder}/commands/j/0/7-1.{name}" for name in ("out", "err")
        )
        lines = Path(out).read_text().splitlines()
        assert lines[:2] == ["j 0 1 1", str(folder)]
        assert [line.split()[1] for line in lines[2:4]] == ["0" * 16, "0" * 16]
        assert lines[4] in ("0 1 2", "0 1 2 3")
        assert Path(err).read_text() == "err\n"
        (found,) = records(folder, "j")
        assert (found.task, found.state) == (0, "ended")
        assert found.ended is not None
        assert found.ended.code == 0
        assert found.ended.memory > 0
        assert stat.S_IMODE(os.stat(folder / "spawner").st_mode) == 0o600


@pytest.mark.parametrize(
    ("command", "about", "kind", "text"),
    [
        ("exit 3", {}, SlotwiseError, "the command exited with code 3"),
        (
            "echo words >&2; false",
            {},
            SlotwiseError,
            "the last lines of its stderr:\nwords\nthe",
        ),
        ("kill -9 $$", {}, SlotwiseError, r"the command was killed by signal 9 \(SIGKILL\)"),
        ("exit 4", {"no_retry": [4]}, NotRetriedError, "exited with code 4"),
        (
            ["./missing"],
            {},
            NotRetriedError,
            r"cannot be started: No such file .*\(./missing\)",
        ),
        (["/etc/passwd"], {}, NotRetriedError, "cannot be started: Permission denied"),
        ("true", {"cwd": "missing"}, SlotwiseError, "cannot be started: No such file"),
    ],
)
def test_a_command_fails_as_without_a_supervisor(
    folder: Path, command: Any, about: dict[str, Any], kind: type[Exception], text: str
) -> None:
    """The record of an attempt that failed is gone: it is not attached to again."""
    with job(folder, 1, command, **about) as execution:
        with pytest.raises(SlotwiseError, match=text) as raised:
            attempt(execution)
        assert type(raised.value) is kind
        execution.discard(PHASE, 0, 1)
    assert records(folder, "j") == []


def test_output_that_cannot_be_written_is_named(folder: Path) -> None:
    """The attempt fails, and the command does not begin."""
    with job(folder, 1, "echo begun > begun") as execution:
        (folder / "commands" / "j" / "0" / "1-1.out").mkdir(parents=True)
        with pytest.raises(OutputError, match=r"1-1\.out"):
            attempt(execution)
    assert not (folder / "begun").exists()


def test_output_beyond_its_limit_is_dropped(folder: Path) -> None:
    """Also while the command runs, and a line says so."""
    command = "yes | head -c 100000; touch printed; until [ -e go ]; do sleep 0.02; done"
    with job(folder, 1, command, output_max=1000) as execution:
        thread, errors = begin(execution)
        out, err = map(Path, execution.output_files(PHASE, 0, 1))
        until((folder / "printed").exists)
        until(lambda: out.stat().st_size == 1000)
        (folder / "go").touch()
        thread.join()
        assert not errors
        first, line = out.read_text()[:1000], out.read_text()[1000:]
        assert first == "y\n" * 500
        assert "more than 1000 bytes; the rest was dropped" in line
        assert err.read_text() == ""


def test_a_supervisor_serves_one_command_after_another(folder: Path) -> None:
    """A fork for each would cost several spawns. It may be killed in between."""
    with job(folder, 1, "true", tasks=4) as execution:
        for task in range(2):
            attempt(execution, task=task)
        first, second = (found.record for found in records(folder, "j"))
        assert first is not None
        assert second is not None
        assert first.pid == second.pid
        os.kill(first.pid, signal.SIGKILL)
        attempt(execution, task=2)
    assert [found.state for found in records(folder, "j")] == ["ended"] * 3


def test_processes_that_outlive_a_command_are_killed(folder: Path) -> None:
    """Also one in a session of its own that has lost its parent."""
    with job(folder, 1, "(setsid sleep 1000 &) ; echo done") as execution:
        attempt(execution)
        (found,) = records(folder, "j")
        assert found.record is not None
        assert processes_of(folder, commands_only=True) == []


def test_a_stop_request_reaches_all_processes(folder: Path) -> None:
    """The command may end by itself; then the attempt is stopped, not failed."""
    command = "trap 'echo asked; exit 1' TERM; sleep 1000 & wait"
    with job(folder, 1, command) as execution:
        arguments, ends = execution.arguments(PHASE, 0, 1), time.monotonic() + 60.0
        out, _ = execution.output_files(PHASE, 0, 1)
        running.begin(lambda: ends)
        with pytest.raises(running.Stopped):
            execution.runner(*arguments)
        running.end()
        execution.discard(PHASE, 0, 1)
        assert Path(out).read_text() in ("asked\n", "")  # It may come before the trap is set.


def test_discarding_an_attempt_ends_all_of_its_processes(folder: Path) -> None:
    """They have ended when it returns: the slot is then given to another attempt."""
    command = "(setsid sh -c 'sleep 1000 & wait' &); (sleep 1000 &); echo 1 > ready; sleep 1000"
    with job(folder, 1, command) as execution:
        thread, errors = begin(execution)
        until((folder / "ready").exists)
        execution.discard(PHASE, 0, 1)
        assert processes_of(folder, commands_only=True) == []
        thread.join()
        assert isinstance(errors[0], SlotwiseError | LostAttemptError)
        assert records(folder, "j") == []


@pytest.mark.parametrize("stops", [False, True])
def test_an_attempt_fails_with_its_supervisor(folder: Path, stops: bool) -> None:
    """Its command may have killed it. What is left of that is killed before another attempt."""
    command = "(setsid sleep 1000 &); echo 1 > ready; sleep 1000"
    with job(folder, 1, command) as execution:
        thread, errors = begin(execution)
        until((folder / "ready").exists)
        (found,) = records(folder, "j")
        assert found.record is not None
        if stops:  # It does not answer, and is killed by `discard`.
            os.kill(found.record.pid, signal.SIGSTOP)
        else:
            os.kill(found.record.pid, signal.SIGKILL)
            thread.join()
            assert isinstance(errors[0], SlotwiseError)
            assert "has ended without recording how that ended" in str(errors[0])
        execution.discard(PHASE, 0, 1)
        thread.join()
        until(lambda: not processes_of(folder, commands_only=True))
        assert records(folder, "j") == []


def test_the_spawner_is_started_again(folder: Path) -> None:
    """Nobody loses a command with it; attempts that begin meanwhile are lost."""
    with job(folder, 1, "true", tasks=2) as execution:
        arguments = execution.arguments(PHASE, 0, 1)
        (spawner,) = processes_of(folder)
        os.kill(spawner, signal.SIGKILL)
        with pytest.raises(LostAttemptError, match="its supervisor did not start"):
            execution.runner(*arguments)
        until(lambda: _is_over(spawner))
        attempt(execution, 2)


def _is_over(pid: int) -> bool:
    """Whether the kernel has ended a process, so that its parent can know."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_spawner_that_cannot_start_is_a_clear_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is missing; or it ends at once, and its own message is on stderr."""
    with pytest.raises(SlotwiseError, match=r"missing/spawner: No such file"):
        Spawner(folder / "missing")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SlotwiseError, match="has exited with code 1 before it was ready"):
        Spawner(folder)


def test_the_spawner_of_a_killed_server_leaves_the_socket_of_the_next(folder: Path) -> None:
    """It may notice the kill at any time: before it is ready, and after the next has begun."""
    begin = (
        "import os, sys; from slotwise.service.supervision.supervised import Spawner;"
        f" print(Spawner({str(folder)!r}).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        old = int(server.stdout.readline())
        os.kill(old, signal.SIGSTOP)
        server.kill()
    with job(folder, 2, "echo 1") as execution:
        own = os.stat(folder / "spawner").st_ino
        os.kill(old, signal.SIGCONT)
        until(lambda: _is_over(old))
        assert os.stat(folder / "spawner").st_ino == own
        attempt(execution)
    assert not (folder / "spawner").exists()


@pytest.mark.parametrize("sent", [b"", b"{", b"\n"])
def test_a_worker_that_is_killed_meanwhile_starts_nothing(folder: Path, sent: bytes) -> None:
    """Whether it has not asked, has asked for a part, or may not have read the answer."""
    task = folder / "commands" / "j" / "0"
    task.mkdir(parents=True)
    request = {"folder": str(task), "command": "echo 1 > begun", "cwd": str(folder)}
    request |= {"job": "j", "task": 0, "run": 1, "attempt": 1, "devices": [], "adopted": 0}  # type: ignore[dict-item]
    request |= {"out": f"{task}/out", "err": f"{task}/err", "environment": {}}  # type: ignore[dict-item]
    request |= {"account": None}  # type: ignore[dict-item]
    spawner = Spawner(folder)
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(f"{folder}/spawner")
        if sent == b"\n":
            opened = [(task / name).open("wb+") for name in (RECORD, "out", "err")]
            files = [file.fileno() for file in opened]
            socket.send_fds(channel, [json.dumps(request).encode() + sent], files)
            assert json.loads(channel.makefile().readline())["job"] == "j"
            assert (task / RECORD).read_text()
        else:
            channel.sendall(sent)
    until(lambda: processes_of(folder) == [spawner.pid])
    assert records(folder, "j") == []
    assert not (folder / "begun").exists()
    spawner.close()


NAMED: dict[str, Any] = {"pid": os.getpid(), "start": "x", "begun": 1.0, "job": "j", "task": 0}
NAMED |= {"run": 1, "attempt": 1, "out": "out", "err": "err", "devices": []}
MINE = json.dumps({**NAMED, "start": start_of(os.getpid())})
REUSED = json.dumps(NAMED)


@pytest.mark.parametrize(
    ("text", "state", "trouble"),
    [
        ("", None, ""),
        (MINE, "alive", ""),
        (f"{REUSED}\n", "lost", "has ended without recording how that ended"),
        (f'{REUSED}\n{{"code": 0, "memory": 1, "seconds": 2.5}}\n', "ended", ""),
        (f'{REUSED}\n{{"code": 0,', "lost", "is damaged"),
        (f'{REUSED}\n{{"code": "0"}}', "lost", "is not the end of a command"),
        (REUSED[:-9], "lost", "is damaged"),
        ("[]", "lost", "is damaged: it is not an object"),
        ('{"pid": 1}', "lost", "is damaged"),
        (json.dumps({**NAMED, "pid": "1"}), "lost", "is damaged: a value has another type"),
        (json.dumps({**NAMED, "devices": [None]}), "lost", "a value has another type"),
        (json.dumps({**NAMED, "begun": float("nan")}), "lost", "a value has another type"),
        (json.dumps({**NAMED, "uptime": "1"}), "lost", "a value has another type"),
        (json.dumps({**NAMED, "job": "other"}), "lost", "is of task 0 of job 'other'"),
        (f'{REUSED}\n{{"code": 0, "memory": -1, "seconds": 2.5}}\n', "lost", "not the end"),
    ],
)
def test_records_say_what_became_of_an_attempt(
    folder: Path, text: str, state: str | None, trouble: str
) -> None:
    """A number that another process has now is not that of the supervisor."""
    place = Path(job_folder(folder, "j"), "0", RECORD)
    place.parent.mkdir(parents=True)
    place.write_text(text)
    found = records(folder, "j")
    assert [one.state for one in found] == ([] if state is None else [state])
    if state == "lost":
        assert trouble in found[0].trouble
        with job(folder, 2, "echo 1 >> begun") as execution:
            assert not execution.adopted
            with pytest.raises(LostAttemptError, match=trouble):
                attempt(execution)
            assert not (folder / "begun").exists()
            execution.discard(PHASE, 0, 1)
            attempt(execution, 2)
        assert (folder / "begun").read_text() == "1\n"


def test_the_time_of_an_attempt_does_not_follow_the_clock(folder: Path) -> None:
    """Unless the machine was started again, or the record is of an earlier version."""
    place = Path(job_folder(folder, "j"), "0", RECORD)
    place.parent.mkdir(parents=True)
    an_hour_ago = {**NAMED, "begun": time.time() - 3600}  # So the clock was set forward.
    mine, ten = {"start": start_of(os.getpid())}, {"uptime": uptime() - 10}
    for plain, least in (
        ({**an_hour_ago, **mine, **ten}, 10),
        ({**an_hour_ago, **mine}, 3600),
        ({**an_hour_ago, **ten}, 3600),
    ):
        place.write_text(json.dumps(plain))
        (found,) = records(folder, "j")
        assert least <= found.seconds < least + 60


def test_a_record_names_files_of_its_task_only(folder: Path) -> None:
    """The server reads and copies them; a record that was forged must not choose others."""
    task = folder / "commands" / "j" / "0"
    task.mkdir(parents=True)
    (task / RECORD).write_text(json.dumps({**NAMED, "out": "/etc/shadow", "err": "../../x"}))
    (found,) = records(folder, "j")
    assert found.record is not None
    assert (found.record.out, found.record.err) == (f"{task}/shadow", f"{task}/x")


def test_what_jobs_leave_is_listed_and_removed(folder: Path) -> None:
    """Names of jobs may be any text. A command that still runs ends with its folder."""
    with job(folder, 1, WAITS) as execution:
        thread, errors = begin(execution)
        until((folder / "pid").exists)
        strange = Path(job_folder(folder, "a/b"), "3")
        strange.mkdir(parents=True)
        (strange / RECORD).write_text("damaged")
        assert [(one.job, one.task, one.state) for one in left_over(folder, ["other"])] == [
            ("a/b", 3, "lost"),
            ("j", 0, "alive"),
        ]
        assert [one.job for one in left_over(folder, ["j", "a/b"])] == []
        remove(folder, "a/b")
        remove(folder, "j")
        assert list((folder / "commands").iterdir()) == []
        thread.join()
        assert len(errors) == 1
