"""Commands that run on while the server is killed or stopped, and what a new server does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forked import Forker
from service.servers import (
    WAITS,
    header,
    job,
    killed,
    processes_of,
    serve,
)
from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.events import (
    Event,
    TaskAdopted,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    launches,
)
from slotwise.core.job import PhaseId
from slotwise.core.log import read_log
from slotwise.core.loop import initial_state, turn
from slotwise.insight.replay import replay_log
from slotwise.jobs.commands import PHASE
from slotwise.service.supervision.supervised import ADOPTED_MAX
from slotwise.service.supervision.supervisor_records import records
from waiting import until

COMMAND = PhaseId("j", PHASE)


def events_of(log: Path, *kinds: type) -> list[Any]:
    """The events of these kinds in a log."""
    return [
        one for turn in read_log(log).turns for one in turn.events if isinstance(one, kinds)
    ]


def has_begun(folder: Path) -> bool:
    """Whether the command `WAITS` has noted its process."""
    return (folder / "pid").exists() and (folder / "pid").read_text().endswith("\n")


def test_a_command_outlives_two_servers(folder: Path, forker: Forker) -> None:
    """It begins once. The third server gets its end and its output, and replays its log."""
    killed(forker, folder, 1, WAITS, lambda: has_begun(folder))
    killed(forker, folder, 2, WAITS, lambda: '"TaskAdopted"' in _text(folder / "2.jsonl"))
    (found,) = records(folder, "j")
    assert found.state == "alive"
    assert Path(f"/proc/{int((folder / 'pid').read_text())}").exists()
    (folder / "go").touch()
    log, state = serve(str(folder), 3, WAITS)
    assert (folder / "begun").read_text() == "begun\n"
    assert (folder / "commands/j/0/1-1.out").read_text() == "done\n"
    (adopted,) = events_of(log, TaskAdopted)
    assert adopted.launch == Launch(COMMAND, 0, 1, HOST, Locality.NODE)
    (end,) = events_of(log, TaskFinished, TaskFailed)
    assert isinstance(end, TaskFinished)
    assert state.is_done
    assert replay_log(read_log(log)).is_identical


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_command_that_fails_after_its_adoption_is_tried_again(
    folder: Path, forker: Forker
) -> None:
    """Its exit code is known; the next attempt is a new one."""
    command = f"{WAITS}; [ $(wc -l < begun) -gt 1 ] || exit 3"
    killed(forker, folder, 1, command, lambda: has_begun(folder))
    (folder / "go").touch()
    log, _ = serve(str(folder), 2, command, attempts=2)
    failed, done = events_of(log, TaskFinished, TaskFailed)
    assert "exited with code 3" in failed.reason
    assert not failed.lost
    assert isinstance(done, TaskFinished)
    assert (folder / "begun").read_text() == "begun\n" * 2


def test_a_command_that_kills_its_servers_does_not_begin_without_end(
    folder: Path, forker: Forker
) -> None:
    """Attempts are counted across servers: after the last one that may fail none begins."""
    begun, record = folder / "begun", folder / "commands" / "j" / "0" / "record"
    each = "until [ -e go$(wc -l < begun) ]; do sleep 0.02; done; exit 3"
    command = f"echo begun >> begun; {each}"
    killed(forker, folder, 1, command, lambda: _text(begun).count("\n") == 1)
    (folder / "go1").touch()
    killed(forker, folder, 2, command, lambda: _text(begun).count("\n") == 2)
    text = record.read_text()
    assert '"adopted": 1' in text
    record.write_text(text.replace('"adopted": 1', f'"adopted": {ADOPTED_MAX - 1}'))
    (folder / "go2").touch()
    log, _ = serve(str(folder), 3, command)
    first, last = events_of(log, TaskFinished, TaskFailed)
    assert "exited with code 3" in first.reason
    assert f"{ADOPTED_MAX} attempts of it have failed after the end of their" in last.reason
    assert begun.read_text() == "begun\n" * 2


def test_a_command_that_ends_without_a_server_does_not_run_again(
    folder: Path, forker: Forker
) -> None:
    """Its supervisor has recorded the end. An output of the job gets what it printed."""
    killed(forker, folder, 1, WAITS, lambda: has_begun(folder), output="out")
    (folder / "go").touch()
    until(lambda: records(folder, "j")[0].state == "ended")
    log, _ = serve(str(folder), 2, WAITS, output="out")
    assert len(events_of(log, TaskAdopted)) == len(events_of(log, TaskFinished)) == 1
    assert (folder / "begun").read_text() == "begun\n"
    assert (folder / "out" / "task-00000.out").read_text() == "done\n"


def test_a_task_without_a_free_slot_is_attached_to_later(folder: Path, forker: Forker) -> None:
    """Two commands run; the new server has one slot. None of them begins again."""
    command = "echo $SLOTWISE_TASK >> begun; until [ -e go ]; do sleep 0.02; done; echo done"
    begun = folder / "begun"
    killed(forker, folder, 1, command, lambda: _text(begun).count("\n") == 2, tasks=2, slots=2)
    (folder / "go").touch()
    log, _ = serve(str(folder), 2, command, tasks=2, slots=1)
    assert [one.task for one in events_of(log, TaskAdopted)] == [0]
    begins = [one.task for t in read_log(log).turns for one in launches(t.events, t.decisions)]
    assert begins == [0, 1]
    assert len(events_of(log, TaskFinished)) == 2
    assert sorted(begun.read_text().split()) == ["0", "1"]


def test_the_time_before_the_adoption_counts_for_the_limit(
    folder: Path, forker: Forker
) -> None:
    """The command has had its time when the new server comes. It is asked to stop."""
    command = f"trap 'echo asked > asked; exit 1' TERM; {WAITS}"
    killed(forker, folder, 1, command, lambda: has_begun(folder))
    log, _ = serve(str(folder), 2, command, time_limit=0.01, attempts=1)
    (failed,) = events_of(log, TaskFailed)
    assert "exceeded its time limit of 0.01 s" in failed.reason
    assert (folder / "asked").exists()


def test_a_lost_supervisor_is_a_lost_attempt(folder: Path, forker: Forker) -> None:
    """The command runs again, after what was left of it has been killed."""
    killed(forker, folder, 1, WAITS, lambda: has_begun(folder))
    (found,) = records(folder, "j")
    assert found.record is not None
    os.kill(found.record.pid, signal.SIGKILL)
    first = int((folder / "pid").read_text())
    until(lambda: records(folder, "j")[0].state == "lost")
    (folder / "begun").unlink()
    has_ended = f"[ -z \"$(tr -d '\\0' < /proc/{first}/cmdline)\" ]"
    command = f"{WAITS.partition(';')[0]}; {has_ended} && echo alone"
    log, _ = serve(str(folder), 2, command)
    lost, done = events_of(log, TaskFinished, TaskFailed)
    assert lost.lost
    assert "has ended without recording how that ended" in lost.reason
    assert isinstance(done, TaskFinished)
    assert (folder / "commands/j/0/2-2.out").read_text() == "alone\n"


def test_a_command_that_kills_its_supervisor_has_failed(folder: Path) -> None:
    """It is tried again as often as a command that fails in another way."""
    log, _ = serve(str(folder), 1, "kill -9 ${SLOTWISE_SUPERVISOR%% *}; sleep 60", attempts=2)
    ends = events_of(log, TaskFinished, TaskFailed)
    assert [(one.attempt, one.lost) for one in ends] == [(1, False), (2, False)]


# What the manager does to an attempt under a supervisor.


@pytest.fixture
def backend(folder: Path) -> Iterator[LocalBackend]:
    """A backend in whose slot the command `WAITS` runs."""
    with job(folder, 1, WAITS) as execution, LocalBackend([execution], 1) as backend:
        backend.wait(0.0)
        backend.perform(Launch(COMMAND, 0, 1, HOST, Locality.NODE))
        until(lambda: not backend.wait(0.0) and has_begun(folder))
        yield backend


def next_end(backend: LocalBackend) -> Event:
    """The next end of an attempt."""
    found: list[Event] = []

    def is_there() -> bool:
        ends = TaskFinished | TaskFailed | TaskKilled
        found.extend(one for one in backend.wait(backend.now + 0.1) if isinstance(one, ends))
        return bool(found)

    until(is_there)
    return found[0]


def commands_of(folder: Path) -> list[int]:
    """The processes of commands of a test."""
    pid = int((folder / "pid").read_text())
    return [one for one in processes_of(folder) if one == pid]


def test_a_killed_attempt_has_ended_when_its_slot_is_free(
    folder: Path, backend: LocalBackend
) -> None:
    """The worker is killed, and the supervisor with the command as well."""
    backend.perform(Preempt(COMMAND, 0, 1, HOST, backend.now + 1e-9))
    backend.perform(Preempt(COMMAND, 0, 1, HOST))
    assert isinstance(next_end(backend), TaskKilled)
    assert commands_of(folder) == []
    assert records(folder, "j") == []


def test_an_attempt_is_asked_to_stop(folder: Path, backend: LocalBackend) -> None:
    """All of its processes get SIGTERM, and the attempt counts as stopped."""
    backend.perform(Preempt(COMMAND, 0, 1, HOST, backend.now + 60.0))
    assert isinstance(next_end(backend), TaskKilled)
    assert commands_of(folder) == []


def test_a_command_ends_with_the_worker_that_waits_for_it(
    folder: Path, backend: LocalBackend
) -> None:
    """Its attempt is lost, and the next one begins alone."""
    (worker,) = (one for one in _children() if b"worker.py" in _words(one))
    os.kill(worker, signal.SIGKILL)
    failed = next_end(backend)
    assert isinstance(failed, TaskFailed)
    assert failed.lost
    assert commands_of(folder) == []
    backend.perform(Launch(COMMAND, 0, 2, HOST, Locality.NODE))
    (folder / "go").touch()
    assert isinstance(next_end(backend), TaskFinished)


def _children() -> list[int]:
    place = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    return [int(pid) for pid in Path(place).read_text().split()]


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("leaves", [True, False])
def test_a_server_that_closes_ends_its_commands_unless_it_leaves_them(
    folder: Path, leaves: bool
) -> None:
    """What was left is adopted; the other one has ended, and begins again."""
    with job(folder, 1, WAITS) as execution:
        with LocalBackend([execution], 1) as backend:
            backend.wait(0.0)
            backend.perform(Launch(COMMAND, 0, 1, HOST, Locality.NODE))
            until(lambda: not backend.wait(0.0) and has_begun(folder))
            if leaves:
                execution.leave()
        assert len(commands_of(folder)) == leaves
    assert len(records(folder, "j")) == leaves
    (folder / "go").touch()
    serve(str(folder), 2, WAITS)
    assert (folder / "begun").read_text() == "begun\n" * (1 if leaves else 2)


def test_a_cancelled_job_ends_what_it_would_have_adopted(folder: Path, forker: Forker) -> None:
    """Its attempt was not attached to yet: there was no turn since the start."""
    killed(forker, folder, 1, WAITS, lambda: has_begun(folder))
    with job(folder, 2, WAITS) as execution:
        execution.open()
        assert [*execution.adopted[PHASE]] == [0]
        execution.close(succeeded=False)
        assert commands_of(folder) == []
    assert records(folder, "j") == []


def test_adopted_tasks_begin_before_the_first_decision(folder: Path, forker: Forker) -> None:
    """The scheduler sees a slot that is taken."""
    killed(forker, folder, 1, WAITS, lambda: has_begun(folder))

    class Idle:
        """Decides nothing; notes the free slots that it has seen."""

        def __init__(self) -> None:
            self.free: list[int] = []

        def decide(self, snapshot: Any) -> list[Any]:
            self.free.append(sum(snapshot.free("task").values()))
            return []

    with job(folder, 2, WAITS) as execution, LocalBackend([execution], 3) as backend:
        state, decider = initial_state(header(backend, 3)), Idle()
        turn(decider, backend, state, lambda *_: None, backend.wait(0.0))
        assert decider.free == [2]
        (folder / "go").touch()
        assert isinstance(next_end(backend), TaskFinished)
