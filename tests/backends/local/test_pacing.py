"""Slow slots, paused for a part of the time: the part is right, no worker stays paused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from slotwise import task as running
from slotwise.backends.local import pacing
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Reply
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs.calls import Sleep

TIMEOUT = 120.0
"""A time-out in seconds: a test that waits for this long has failed."""

SPEEDS = (1.0, 0.5, 0.25)


@pytest.fixture
def workers() -> Iterator[Processes]:
    """A slot for each speed; all processes are gone afterwards."""
    pool = Processes(len(SPEEDS), speeds=SPEEDS)
    try:
        yield pool
        pids = pool.pids()
    finally:
        pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def state(pid: int) -> str:
    """The state of a process: "T" if it is stopped, "Z" if it has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def watch(pid: int, seconds: float) -> set[str]:
    """All states in which a process was seen."""
    until, seen = time.monotonic() + seconds, set()
    while time.monotonic() < until:
        seen.add(state(pid))
        time.sleep(0.002)
    return seen


def wait_for(what: Callable[[], object]) -> None:
    """Block until a condition holds."""
    until = time.monotonic() + TIMEOUT
    while not what():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.001)


def wait_for_stop(workers: Processes, slot: int) -> None:
    """Block until the worker of a slot is stopped; it runs a task that does not end."""

    def is_stopped() -> bool:
        assert workers.wait(0.001) == []
        return state(workers.pids()[slot]) == "T"

    wait_for(is_stopped)


def call(
    workers: Processes, function: Callable[..., object], *arguments: object, slot: int
) -> Reply:
    """Run one task to its end."""
    workers.start(slot, f"call {time.monotonic_ns()}", function, arguments)
    outcome = workers.wait(TIMEOUT)[0].opened()
    assert outcome.status == "done", outcome.value
    return outcome


Looped = tuple[float, float]


def looping(loops: int, stopped_least: float = 0.0) -> Callable[[], Looped]:
    """A loop in Python, repeated until it has been stopped for `stopped_least` seconds.

    It returns its seconds, and those in which it could run: it ran, or it waited for a
    processor. In the rest it was stopped.
    """

    def work() -> Looped:
        import time

        def runnable() -> float:
            with open("/proc/self/schedstat") as schedule:
                return sum(map(int, schedule.read().split()[:2])) / 1e9

        begun, could = time.monotonic(), runnable()
        while True:
            total = 0
            for number in range(loops):
                total += number * number
            seconds, ran = time.monotonic() - begun, runnable() - could
            if seconds - ran >= stopped_least:
                return seconds, ran

    return work


def loop(workers: Processes, slot: int, loops: int, stopped_least: float = 0.0) -> Looped:
    """Run a loop to its end; its seconds, and those for which it was not stopped."""
    seconds, ran = call(workers, looping(loops, stopped_least), slot=slot).value  # type: ignore[misc]
    return seconds, ran


def test_a_slow_slot_runs_a_part_of_the_time(workers: Processes) -> None:
    """The same loop on slots of speed 1, 1/2 and 1/4, in one run.

    The time for which a task is stopped is measured: how much a processor does in the rest
    depends on other load. On an idle machine both are the same (see benchmarks/pacing.py). A
    period missed on a busy machine is made up for later, so the loop is repeated until the
    part is right.
    """
    for slot, speed in enumerate(SPEEDS):
        seconds = ran = 0.0

        def is_right(slot: int = slot, speed: float = speed) -> bool:
            nonlocal seconds, ran
            more, more_ran = loop(workers, slot, 1_000_000)
            seconds, ran = seconds + more, ran + more_ran
            return abs(ran / seconds / speed - 1) < 0.15

        wait_for(is_right)


def test_the_seconds_of_a_task_include_its_stops(workers: Processes) -> None:
    """The stops are in them, so that seconds times speed is the work."""
    before = time.monotonic()
    outcome = call(workers, looping(100_000, stopped_least=0.1), slot=2)
    seconds, ran = outcome.value  # type: ignore[misc]
    assert ran + 0.1 <= seconds <= outcome.seconds
    assert before <= outcome.started
    assert outcome.started + outcome.seconds <= time.monotonic()


def test_short_tasks_are_slowed_too(workers: Processes) -> None:
    """Many tasks, each shorter than a run between two stops, are stopped for twice as long."""
    pids = workers.pids()
    seconds = ran = 0.0

    def are_slowed() -> bool:
        nonlocal seconds, ran
        for _ in range(25):
            more, more_ran = loop(workers, 2, 50_000)
            seconds, ran = seconds + more, ran + more_ran
        return seconds > 2.5 * ran

    wait_for(are_slowed)
    assert workers.pids() == pids


def test_an_idle_worker_is_not_slowed(workers: Processes) -> None:
    """Before its first task, between tasks; while it has one, it is."""
    assert "T" not in watch(workers.pids()[2], 0.15)
    loop(workers, 2, 300_000)
    assert "T" not in watch(workers.pids()[2], 0.15)
    workers.start(2, "sleep", time.sleep, (600,))
    wait_for_stop(workers, 2)


def test_children_of_a_task_are_slowed_with_it(workers: Processes, tmp_path: Path) -> None:
    """Children of a task are slowed with it; a worker of full speed is never stopped."""

    def work(path: str) -> None:
        import os
        import subprocess
        import time

        child = subprocess.Popen(["sleep", "600"])
        with open(path + ".new", "w") as file:
            file.write(str(child.pid))
        os.rename(path + ".new", path)
        while not os.path.exists(path + ".seen"):
            time.sleep(0.001)
        child.kill()
        child.wait()

    for slot, stops in ((2, True), (0, False)):
        path = tmp_path / str(slot)
        workers.start(slot, "work", work, (str(path),))
        while not path.exists():
            assert workers.wait(0.01) == []
        child = int(path.read_text())
        if stops:
            wait_for(lambda child=child: state(child) == "T")
        else:
            assert "T" not in watch(child, 0.2)
        (tmp_path / f"{slot}.seen").touch()
        assert workers.wait(TIMEOUT)[0].status == "done"


def test_a_task_that_starts_many_children_makes_progress(workers: Processes) -> None:
    """One that is stopped while it starts a child cannot take the stop; it is continued."""

    def work(count: int) -> int:
        import subprocess

        return sum(subprocess.run(["true"]).returncode == 0 for _ in range(count))

    assert call(workers, work, 40, slot=2).value == 40


def test_a_paused_worker_gets_a_stop_request(workers: Processes) -> None:
    """A task on a slow host ends by itself and keeps its work."""

    def work() -> None:
        from slotwise import task as running

        while not running.stop_requested():
            sum(range(1000))
        running.stop(keep="this far")

    for _ in range(3):
        workers.start(2, "work", work, ())
        wait_for_stop(workers, 2)
        workers.request_stop(2, time.monotonic() + TIMEOUT)
        (outcome,) = workers.wait(TIMEOUT)
        assert outcome.status == "stopped"


def test_a_paused_worker_with_a_message_is_continued_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is within a stop of ten minutes, whose rest is made up for later."""
    sent: list[signal.Signals] = []
    monkeypatch.setattr(pacing, "PERIOD_SECONDS", 600.0)
    monkeypatch.setattr(pacing, "_signal", lambda pace, number: sent.append(number))
    monkeypatch.setattr(
        pacing,
        "is_stopped",
        lambda pid, by_us: not by_us and sent[-1:] == [signal.SIGSTOP],
    )
    pacer = pacing.CpuThrottle()
    try:
        pacer.begin(0, 1, speed=0.001)
        wait_for(lambda: sent == [signal.SIGSTOP])
        pacer.nudge(0)
        wait_for(lambda: sent == [signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP])
    finally:
        pacer.close()
    assert sent == [signal.SIGSTOP, signal.SIGCONT] * 2


def test_a_slow_worker_can_be_killed_at_any_moment(workers: Processes) -> None:
    """Stopped or not, it is dead and replaced, and the next task is slowed as well."""
    for wait in (0.0, 0.05, 0.1, 0.13):
        old = workers.pids()[2]
        workers.start(2, "sleep", time.sleep, (600,))
        workers.wait(wait)
        workers.kill(2)
        assert workers.pids()[2] != old
    workers.start(2, "sleep", time.sleep, (600,))
    wait_for_stop(workers, 2)
    old = workers.pids()[2]
    workers.kill(2)
    assert workers.pids()[2] != old
    loop(workers, 2, 100_000, stopped_least=0.1)


def test_a_slow_worker_killed_from_outside_is_replaced(workers: Processes) -> None:
    """Even while the pacer has it stopped."""
    workers.start(2, "sleep", time.sleep, (600,))
    pid = workers.pids()[2]
    wait_for_stop(workers, 2)
    os.kill(pid, signal.SIGKILL)
    (outcome,) = workers.wait(TIMEOUT)
    assert (outcome.status, outcome.value) == (
        "lost", f"worker process {pid} was killed by signal 9 (SIGKILL)",
    )  # fmt: skip
    assert call(workers, looping(1000), slot=2).status == "done"


MANAGER = """
import sys, time
from slotwise.backends.local.processes import Processes
workers = Processes(4, speeds=[0.001, 0.02, 0.5, 1.0])
for slot in range(4):
    workers.start(slot, "sleep", time.sleep, (600,))
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    workers.wait(0.02)
print(*workers.pids(), flush=True)
while True:
    workers.wait(None)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_nothing_is_left_when_the_manager_is_killed(seconds: float) -> None:
    """SIGKILL to it ends its workers, though most are stopped; just begun ones, too."""
    manager = subprocess.Popen(
        [sys.executable, "-c", MANAGER, str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert manager.stdout is not None
    pids = [int(pid) for pid in manager.stdout.readline().split()]
    assert len(pids) == 4
    if seconds:
        wait_for(lambda: state(pids[0]) == "T")
    manager.kill()
    manager.wait()
    wait_for(lambda: all(is_gone(pid) for pid in pids))


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return state(pid) == "Z"
    except OSError:
        return True


def test_only_slow_slots_need_a_thread() -> None:
    """One for all of them, which ends with them; without any there is none."""
    before = {*threading.enumerate()}  # Some may be ending, of tests before this one.
    for speeds, more in (((1.0, 1.0), 0), ((0.5, 0.5), 1)):
        with Processes(2, speeds=speeds):
            assert len({*threading.enumerate()} - before) == more
        assert {*threading.enumerate()} <= before


def test_sleeping_tasks_take_as_long_as_their_host_needs(
    watched: Callable[..., object],
) -> None:
    """A task of 0.1 s takes 0.2 s on a host of speed 1/2, and is not stopped for it."""
    job = Job("j", (Phase("p", Tasks(2, 0.1)),))
    cluster = Cluster((Host("fast", {"task": 1}), Host("slow", {"task": 1}, speed=0.5)))
    with LocalBackend([Sleep(job)], cluster) as backend:
        watch_ = watched(backend, [job], cluster, backend_name="live")
    hosts, took = {}, {}
    for turn in watch_.log.turns:
        hosts |= {d.task: d.host for d in turn.decisions if hasattr(d, "host")}
        took |= {e.task: e.seconds for e in turn.events if hasattr(e, "seconds")}
    by_host = {hosts[task]: seconds for task, seconds in took.items()}
    assert by_host["fast"] >= 0.1
    assert by_host["slow"] >= 0.2


@pytest.mark.parametrize(("speed", "seconds"), [("1.0", 0.1), ("0.5", 0.2)])
def test_a_sleeping_task_sleeps_exactly_as_long_as_needed(
    speed: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for no more."""
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setenv(running.SPEED_VARIABLE, speed)
    monkeypatch.setattr(running, "time", clock)
    running.sleep(0.1)
    assert slept == [seconds]
