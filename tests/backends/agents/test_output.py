"""What tasks print on the hosts of agents comes to the manager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_processes import Loopback
from slotwise.backends.agents import agent
from slotwise.backends.agents.agent import SentOutput
from slotwise.backends.agents.backend import AgentsBackend, cluster_of
from slotwise.backends.attempt_logs import AttemptLogs
from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import TaskFailed
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs.calls import Calls
from slotwise.jobs.commands import plan_commands

RunJobs = Callable[..., list[TaskFailed]]


@pytest.fixture
def run_jobs(tmp_path: Path, watched: Callable[..., object]) -> Iterator[RunJobs]:
    """Runs jobs on one agent; returns the failures."""
    source = Loopback(Cluster((Host("a", {"task": 1}),)))

    def run(*executions: object, is_kept: bool = True) -> list[TaskFailed]:
        hosts = source.connect()
        logs = AttemptLogs(tmp_path / "logs", 1 << 30, pytest.fail) if is_kept else None
        with AgentsBackend(executions, source, hosts, logs=logs) as backend:  # type: ignore[arg-type]
            jobs = [one.job for one in executions]  # type: ignore[attr-defined]
            done = watched(backend, jobs, cluster_of(hosts), backend_name="live")
        turns = done.log.turns  # type: ignore[attr-defined]
        return [e for turn in turns for e in turn.events if isinstance(e, TaskFailed)]

    yield run
    source.close()


def test_attempts_of_commands_and_calls_are_kept(run_jobs: RunJobs, tmp_path: Path) -> None:
    """And the message of a failure has the end of stderr and the file."""
    command = "echo out; echo why >&2; test $SLOTWISE_ATTEMPT = 2"
    calls = Calls(Job("c", (Phase("p", Tasks(1)),)), lambda task: print("call", task))
    (failed,) = run_jobs(plan_commands("j", command, base_dir=tmp_path), calls)
    kept = {path.name: path.read_text() for path in (tmp_path / "logs/j").iterdir()}
    each = {"out": "out\n", "err": "why\n"}
    assert kept == {f"0.{a}.{stream}": each[stream] for a in (1, 2) for stream in each}
    assert (tmp_path / "logs/c/0.1.out").read_text() == "call 0\n"
    assert failed.reason.splitlines()[-2:] == [
        "why",
        f"on host a: the command exited with code 1; see {tmp_path}/logs/j/0.1.err",
    ]


def test_without_logs_the_message_has_the_end_of_stderr(
    run_jobs: RunJobs, tmp_path: Path
) -> None:
    """Only that is sent."""
    command = "echo why >&2; test $SLOTWISE_ATTEMPT = 2"
    (failed,) = run_jobs(plan_commands("j", command, base_dir=tmp_path), is_kept=False)
    assert failed.reason.endswith(
        "of its stderr:\nwhy\non host a: the command exited with code 1"
    )
    assert list(tmp_path.iterdir()) == []


def test_of_a_long_output_the_begin_and_the_end_of_stderr_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One byte more than is kept, so that the manager cuts it; the end when it is over."""
    monkeypatch.setattr(agent, "ATTEMPT_BYTES_MAX", 5)
    sent: list[tuple[str, bytes]] = []
    output = SentOutput(lambda *one: sent.append(one), is_shown=False, is_kept=True)
    for stream in ("err", "out"):
        for data in (b"abc", b"defgh", b"ij"):
            output.write(stream, data)
    assert sent == [("err", b"abc"), ("err", b"def"), ("out", b"abc"), ("out", b"def")]
    output.close()
    output.close()
    assert sent[4:] == [("err", b"ghij")]
