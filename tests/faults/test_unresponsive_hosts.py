"""Emulated hosts that are slow or unresponsive: outputs are right, nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import slotwise
from faults.programs import STUCK
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.local.unresponsive import SOON_SECONDS
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, GiveUp, Launch, Locality
from slotwise.core.events import (
    Event,
    HostJoined,
    HostLost,
    JobArrived,
    JobsClosed,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import PhaseId
from slotwise.core.log import read_log
from slotwise.insight.replay import replay_log
from slotwise.jobs import plan_mapreduce
from slotwise.workload.workload import Workload

HOSTS = (Host("fast", {"task": 1}), Host("slow", {"task": 1}, speed=0.8))

SLOW_COUNT = """\
import time
from pathlib import Path
from slotwise import MapReduce, task

class Count(MapReduce):
    def __init__(self, folder):
        self.held, self.go = Path(folder) / "held", Path(folder) / "go"
        self.records = 0
    def map(self, offset, line):
        self.records += 1
        if task.host_speed() < 1 and self.records == 150:
            self.held.touch()
            wait_for(self.go)
        elif task.host_speed() == 1 and offset == 0:
            wait_for(self.held)
            time.sleep(0.03)
        for word in line.split(): yield word, 1
    def reduce(self, word, counts):
        yield word, sum(counts)

def wait_for(path):
    until = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)
"""
"""The slow host, in the middle of a split, waits for a file."""

JOBS = """\
slotwise: 1
cluster:
  grace: GRACE
  hosts: [{name: fast, slots: 1}, {name: slow, slots: 1, speed: 0.8}]
jobs:
  - {id: stuck, program: "stuck.py:Stuck", parameters: {folder: pids}, inputs: "in/*.txt",
     split_bytes: 3000, output: out/a/b/stuck}
"""


LOOK_OFTEN = """\
from slotwise.backends.local import unresponsive
unresponsive.CHECK_SECONDS = unresponsive.SOON_SECONDS
"""
"""Lets the command notice unresponsive hosts sooner."""


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Lets runs of this process notice unresponsive hosts sooner, except with --slow."""
    if not request.config.getoption("--slow"):
        module = "slotwise.backends.local.unresponsive"
        monkeypatch.setattr(f"{module}.CHECK_SECONDS", SOON_SECONDS)


def workers() -> list[int]:
    """The worker processes of this process."""
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children") as listed:
        pids = [int(pid) for pid in listed.read().split()]
    return [
        pid for pid in pids if b"local/worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def send(number: signal.Signals, pids: Sequence[int]) -> None:
    """A signal to processes and all of their groups."""
    for pid in pids:
        os.killpg(pid, number)


class Interrupter:
    """Stops the worker of the slow host during a task, until the host is unresponsive or lost.

    A stop that coincides with one by which the host is slowed is lost, so it is sent again.
    """

    def __init__(self, within_grace: bool, folder: Path) -> None:
        self.within_grace = within_grace
        self.folder = folder
        self.launched: list[str] = []
        self.stopped: list[int] = []
        self.is_unresponsive = False

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """As a `progress` of a run."""
        self.launched += [d.host for d in decisions if isinstance(d, Launch)]
        if not self.stopped and (self.folder / "held").exists():
            self.stopped = [pid for pid in workers() if speed_of(pid) == "0.8"]
        self.is_unresponsive |= any(isinstance(event, HostLost) for event in events)
        if self.stopped and not self.is_unresponsive:
            send(signal.SIGSTOP, self.stopped)
        waited_for = HostLost if self.within_grace else TaskFailed
        if any(isinstance(event, waited_for) for event in events):
            (self.folder / "go").touch()
            send(signal.SIGCONT, self.stopped)


def speed_of(pid: int) -> str:
    """The speed of the host of a worker."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(v.split("=", 1) for v in variables if v)["SLOTWISE_HOST_SPEED"]


@pytest.mark.local_only("it stops the worker processes of this process")
@pytest.mark.parametrize("within_grace", [True, False])
def test_a_word_count_survives_an_unresponsive_host(
    tmp_path: Path, few_books: Counter[str], processes: Any, within_grace: bool
) -> None:
    """The slow host is unresponsive within its grace, or beyond it: each word counts once.

    Within the grace nothing runs twice; beyond it what ran there runs again as a new attempt.
    The log replays identically, and no process and no file is left.
    """
    (tmp_path / "slow.py").write_text(SLOW_COUNT)
    job = slotwise.mapreduce(
        f"{tmp_path}/slow.py:Count", f"{tmp_path}/in/*.txt", tmp_path / "out", reducers=3,
        split_bytes=3000, work_dir=str(tmp_path / "work"), parameters={"folder": str(tmp_path)},
    )  # fmt: skip
    workload = Workload((job,), cluster=Cluster(HOSTS, grace=600.0 if within_grace else 0.2))
    interrupter = Interrupter(within_grace, tmp_path)
    result = slotwise.run(
        workload, "fair", emulate_hosts=True, progress=interrupter, log=tmp_path / "run.jsonl"
    )
    assert not result.failed
    assert not workers()
    assert processes.counted(tmp_path / "out") == few_books
    assert not (tmp_path / "out" / "_temporary").exists()
    assert list((tmp_path / "work").iterdir()) == []

    log = read_log(tmp_path / "run.jsonl")
    assert replay_log(log).is_identical
    assert [host.name for host in log.header.cluster.hosts] == ["fast", "slow"]
    events = [event for turn in log.turns for event in turn.events]
    done = Counter((e.phase, e.task) for e in events if isinstance(e, TaskFinished))
    assert set(done.values()) == {1}
    failed = [event for event in events if isinstance(event, TaskFailed)]
    hosts = [event for event in events if isinstance(event, HostLost | HostJoined)]
    assert [(type(e), e.host) for e in hosts[:2]] == [(HostLost, "slow"), (HostJoined, "slow")]
    if within_grace:
        assert not failed
        assert len(interrupter.launched) == len(done)
    else:
        assert len(failed) == 1
        assert failed[0].lost
        assert "host slow has not responded for" in failed[0].reason
        assert len(interrupter.launched) == len(done) + 1


@pytest.fixture
def stuck(
    command: Any, few_books: object, processes: Any
) -> Callable[..., tuple[Any, list[int]]]:
    """Starts a run that hangs on a fast and a slow host. The process, and all below it."""

    def start(grace: float) -> tuple[Any, list[int]]:
        command.write(STUCK, "stuck.py")
        command.write(JOBS.replace("GRACE", str(grace)))
        (command.folder / "pids").mkdir()
        how = ["--emulate-hosts", "--log", "log.jsonl"]
        process = command.start("run", "jobs.yaml", *how, before=LOOK_OFTEN)
        processes.wait_for(lambda: len(pids_of(command.folder)) == 2)
        running = [*processes.children(process.pid), *pids_of(command.folder)]
        assert len(running) == 4
        return process, running

    return start


def pids_of(folder: Path) -> list[int]:
    """The processes that user code has started."""
    return [int(path.name.removeprefix("pid-")) for path in (folder / "pids").iterdir()]


def stop_workers(process: Any, running: Sequence[int], command: Any, processes: Any) -> None:
    """Make all hosts of a run unresponsive; a stop at the instant of a pacing stop is lost."""
    children = set(processes.children(process.pid))

    def are_unresponsive() -> bool:
        if command.stderr.count(": unresponsive") == 2:
            return True
        send(signal.SIGSTOP, [pid for pid in running if pid in children])
        return False

    processes.wait_for(are_unresponsive)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_task_that_continues_after_its_job_has_ended_leaves_nothing(
    tmp_path: Path, is_done: bool
) -> None:
    """An unresponsive host begins a task after the job was done elsewhere, or was given up.

    By then the folders of the job are gone, and it makes none.
    """
    (tmp_path / "in").write_text("a b a\n")
    job = plan_mapreduce(
        "j", "wordcount", [str(tmp_path / "in")], str(tmp_path / "x/y/out"), reducers=0,
        work_dir=str(tmp_path / "work"),
    )  # fmt: skip
    phase = PhaseId("j", "map")
    with LocalBackend([job], Cluster(HOSTS, grace=0.1)) as backend:
        assert [type(event) for event in backend.wait(1.0)] == [JobArrived, JobsClosed]
        slow = backend._processes.pids()[1:]
        send(signal.SIGSTOP, slow)
        backend.perform(Launch(phase, 0, 1, "slow", Locality.ANY))
        await_event(backend, TaskFailed)
        if is_done:
            backend.perform(Launch(phase, 0, 2, "fast", Locality.ANY))
            await_event(backend, TaskFinished)
        else:
            backend.perform(GiveUp("j", "enough"))
        send(signal.SIGCONT, slow)
        await_event(backend, HostJoined)
    assert list(tmp_path.glob("work/*")) == []
    assert {path.name for path in (tmp_path / "x").rglob("*")} == (
        {"y", "out", "part-m-00000", "_SUCCESS"} if is_done else set()
    )
    assert (tmp_path / "x").exists() == is_done


def await_event(backend: LocalBackend, kind: type) -> None:
    """Wait for an event of a kind."""
    until = time.monotonic() + 120
    while not any(isinstance(event, kind) for event in backend.wait(backend.now + 1)):
        assert time.monotonic() < until


@pytest.mark.slow
def test_hosts_are_named_in_log_and_report(
    command: Any, books: Counter[str], processes: Any
) -> None:
    """The command runs a real program on two emulated hosts; log and report name them."""
    command.write(
        "slotwise: 1\n"
        "cluster: {hosts: [{name: quick, slots: 1}, {name: lame, slots: 1, speed: 0.3}]}\n"
        "jobs: [{id: wc, program: wordcount, inputs: 'in/*.txt', output: out/wc, reducers: 2,"
        " split_bytes: 30000}]\n"
    )
    code = command.run(
        "run", "jobs.yaml", "--emulate-hosts", "--log", "log.jsonl", "--report", "page.html"
    )
    assert code == 0, command.stderr
    assert processes.counted(command.folder / "out/wc") == books
    log = read_log(command.folder / "log.jsonl")
    launches = [d for turn in log.turns for d in turn.decisions if isinstance(d, Launch)]
    assert {launch.host for launch in launches} == {"quick", "lame"}
    page = (command.folder / "page.html").read_text()
    assert "quick" in page
    assert "lame" in page
    assert replay_log(log).is_identical


@pytest.mark.parametrize(
    ("number", "grace"),
    [(signal.SIGINT, None), (signal.SIGTERM, 600.0), (signal.SIGINT, 0.1)],
)
def test_a_stopped_run_leaves_nothing(
    number: signal.Signals, grace: float | None, stuck: Any, command: Any, processes: Any
) -> None:
    """While all hosts run (None), are unresponsive, or have been so beyond the grace."""
    process, running = stuck(grace or 600.0)
    if grace is not None:
        stop_workers(process, running, command, processes)
        lost = 0 if grace > 1 else 2
        processes.wait_for(lambda: command.stderr.count(", attempt 1 lost: ") == lost)
    os.kill(process.pid, number)
    assert process.wait(processes.TIMEOUT) == 130
    processes.wait_for(lambda: not any(map(processes.lives, running)))
    assert command.left() == []
    assert not (command.folder / "out").exists()
    assert "Traceback" not in command.stderr
    assert replay_log(read_log(command.folder / "log.jsonl")).is_identical


def test_workers_die_with_their_manager(stuck: Any, command: Any, processes: Any) -> None:
    """After SIGKILL to the manager no worker is left, even if it is stopped and lost."""
    process, running = stuck(0.1)
    stop_workers(process, running, command, processes)
    processes.wait_for(lambda: command.stderr.count(", attempt 1 lost: ") == 2)
    process.kill()
    process.wait()
    processes.wait_for(lambda: not any(map(processes.lives, running)))
