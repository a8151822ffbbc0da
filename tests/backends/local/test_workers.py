"""Worker processes: results, the effects of a dying one, and cleanup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.local.calling import TIMEOUT, await_end, call, exists, one
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Reply
from slotwise.core.errors import SlotwiseError
from tiers import examples


def busy() -> Callable[[str], None]:
    """A task that never ends in Python code; it sends the pid of a sleeping child."""

    def run(fifo: str) -> None:
        child = subprocess.Popen(["sleep", "600"])
        Path(fifo).write_text(str(child.pid))
        while True:
            pass

    return run  # Nested functions go by value: a worker cannot import this file.


# What comes back


def test_each_slot_runs_its_own_task(workers: Processes) -> None:
    """A result comes with its slot, and from the process that belongs to the slot."""
    for slot in (0, 1):
        workers.start(slot, "pid", lambda: os.getpid(), ())
    outcomes: list[Reply] = []
    while len(outcomes) < 2:
        outcomes += [reply.opened() for reply in workers.wait(TIMEOUT)]
    assert {(o.slot, o.status, o.value) for o in outcomes} == {
        (slot, "done", pid) for slot, pid in enumerate(workers.pids())
    }


def test_times_are_on_the_clock_of_the_manager(workers: Processes) -> None:
    """Start and run time, taken in the worker, lie within what the manager saw."""
    before = time.monotonic()
    outcome = call(workers, lambda: time.sleep(0.05))
    assert before <= outcome.started
    assert 0.05 <= outcome.seconds <= time.monotonic() - outcome.started


def test_wait_ends_at_its_timeout(workers: Processes) -> None:
    """Without a reply the list is empty, and not before the time-out."""
    before = time.monotonic()
    assert workers.wait(0.05) == []
    assert time.monotonic() - before >= 0.05
    assert workers.wait(0) == []
    assert workers.wait(-1) == []


def test_a_runner_is_kept_until_it_is_forgotten(workers: Processes) -> None:
    """The first runner of a key serves all its tasks; after `forget` a new one is taken."""
    workers.start(0, "key", lambda x: x + 1, (1,))
    assert one(workers).value == 2
    workers.start(0, "key", lambda x: x + 100, (1,))
    assert one(workers).value == 2
    workers.forget("key")
    workers.start(0, "key", lambda x: x + 100, (1,))
    assert one(workers).value == 101


def test_more_is_forgotten_than_fits_into_the_channel(workers: Processes, fifo: str) -> None:
    """A busy worker reads no requests; those that pile up reach it later and in order."""
    keys = [
        f"{number} of a long name {'x' * 200}" for number in range(examples(800, slow=1500))
    ]
    for key in keys:
        workers.start(0, key, len, ((),))
        assert one(workers).value == 0
    workers.start(0, "busy", lambda: Path(fifo).read_text(), ())
    for key in keys:
        workers.forget(key)
    Path(fifo).write_text("go")
    assert one(workers).value == "go"
    assert call(workers, lambda: "next").value == "next"


def test_large_data_go_both_ways(workers: Processes) -> None:
    """Data larger than a pipe goes to a worker and back while the other slot keeps working."""
    large = bytes(range(256)) * examples(80_000, slow=400_000)
    workers.start(0, "large", lambda data: data[::-1], (large,))
    assert call(workers, lambda: "small", slot=1).value == "small"
    assert one(workers).value == large[::-1]


def test_the_main_module_is_not_imported_again(tmp_path: Path) -> None:
    """A script without guard may use its own classes, which keep their identity."""
    script = tmp_path / "script.py"
    script.write_text(
        "import helper_beside_the_script\n"
        "from slotwise.backends.local.processes import Processes\n"
        "class Point:\n"
        "    def __init__(self, x): self.x = x\n"
        "def double(point): return Point(helper_beside_the_script.double(point.x))\n"
        "with Processes(1) as workers:\n"
        "    workers.start(0, 'key', double, (Point(21),))\n"
        "    (outcome,) = workers.wait(120)\n"
        "point = outcome.opened().value\n"
        "print(type(point) is Point, point.x)\n"
    )
    (tmp_path / "helper_beside_the_script.py").write_text("def double(x): return 2 * x\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("True 42\n", "")


# What others do to a worker


def test_an_idle_worker_killed_from_outside_is_replaced(workers: Processes) -> None:
    """No task is lost, whether the manager sees its end first or sends it a task."""
    for see_first in (True, False):
        dead = workers.pids()[0]
        assert call(workers, lambda: os.getpid()).value == dead
        os.kill(dead, signal.SIGKILL)
        os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
        if see_first:
            assert workers.wait(0) == []
            assert workers.pids()[0] != dead
        outcome = call(workers, lambda: os.getpid())
        assert (outcome.status, outcome.value) == ("done", workers.pids()[0])
        assert outcome.value != dead


def test_a_task_sent_to_a_worker_that_dies_before_reading_it_is_lost(
    workers: Processes,
) -> None:
    """Its progress is unknown, so it is reported as lost."""
    dead = workers.pids()[0]
    os.kill(dead, signal.SIGSTOP)
    workers.start(0, "key", lambda data: None, (bytes(10_000_000),))
    os.kill(dead, signal.SIGKILL)
    sentence = f"worker process {dead} was killed by signal 9 (SIGKILL)"
    assert one(workers) == Reply(0, "lost", sentence)


def test_kill_ends_a_task_with_its_children_and_reports_nothing(
    workers: Processes, fifo: str
) -> None:
    """The slot is free at once; worker and child are gone, and waited for."""
    stopped = workers.pids()[0]
    workers.start(0, "busy", busy(), (fifo,))
    child = int(Path(fifo).read_text())
    workers.kill(0)
    assert call(workers, lambda: "free").value == "free"
    await_end(stopped, child)
    assert workers.wait(0) == []
    assert not exists(stopped)


def test_workers_that_cannot_start_stop_the_run_with_a_message() -> None:
    """Without a Python that starts, replacing would go on forever."""
    with Processes(1, environment={"PYTHONHOME": "/nowhere"}) as workers:
        with pytest.raises(SlotwiseError, match="3 in a row ended before they were ready"):
            workers.wait(TIMEOUT)
        pids = workers.pids()
    assert not any(exists(pid) for pid in pids)


# What is around a worker


def test_a_waiting_worker_has_imported_little(workers: Processes) -> None:
    """Little of our package is imported, and numpy only when needed."""
    ours = {
        "slotwise",
        *("slotwise.core", "slotwise.core.tracebacks", "slotwise.earlier_paths"),
        *("slotwise.jobs", "slotwise.jobs.pickling", "slotwise.task"),
    }
    loaded = call(workers, lambda: [m for m in sys.modules if m.split(".")[0] == "slotwise"])
    assert set(loaded.value) == ours
    heavy = [
        "numpy",
        "pydantic",
        "typer",
        "asyncio",
        "multiprocessing",
    ]
    assert call(workers, lambda: [m for m in heavy if m in sys.modules]).value == []
    here = str(Path(__file__).parent)
    assert call(workers, lambda: here in sys.path).value == (here in sys.path)
    assert call(workers, Reply, 0, "done", 1).value == Reply(0, "done", 1)


def test_a_worker_inherits_no_other_files(workers: Processes) -> None:
    """Open are its channel, its lifeline, the shared word and the three standard streams."""

    def others() -> list[str]:
        own = ["0", "1", "2", *sys.argv[1:]]
        return [f for f in os.listdir("/proc/self/fd") if f not in own and is_anothers(f)]

    def is_anothers(number: str) -> bool:
        path = f"/proc/self/fd/{number}"
        return os.path.lexists(path) and "memfd:slotwise" not in os.readlink(path)

    assert [call(workers, others, slot=slot).value for slot in (0, 1)] == [[], []]


def test_environment_of_a_worker() -> None:
    """One thread for numerics and one hash seed, unless the caller says otherwise."""
    with Processes(2, environment={"MKL_NUM_THREADS": "2", "COLOUR": "blue"}) as workers:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "COLOUR")
        got = call(workers, lambda: [os.environ.get(name) for name in names]).value
        assert got == [os.environ.get("OMP_NUM_THREADS", "1"), "2", "blue"]
        hashes = [call(workers, lambda: hash("word"), slot=slot).value for slot in (0, 1)]
        assert hashes[0] == hashes[1]


def test_output_of_user_code_goes_to_stderr() -> None:
    """What tasks print goes to stderr, whole lines at once, even if the worker is killed."""
    ran = subprocess.run(
        [sys.executable, "-c", MANAGER.format(function="lambda: print('hi') or os._exit(1)")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert "hi" not in ran.stdout
    assert ran.stderr == "hi\n"


MANAGER = """
import os, subprocess, time
from slotwise.backends.local.processes import Processes

def busy():
    child = subprocess.Popen(["sleep", "600"])
    print(os.getpid(), child.pid)
    while True: pass

with Processes(2) as workers:
    print(*workers.pids(), flush=True)
    workers.start(0, "key", {function}, ())
    workers.wait()
"""


def test_workers_die_with_their_manager() -> None:
    """Kill -9 of the manager ends a worker in user code, its child, and an idle worker."""
    manager = subprocess.Popen(
        [sys.executable, "-c", MANAGER.format(function="busy")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert manager.stdout
    assert manager.stderr
    with manager.stdout, manager.stderr:
        pids = [*manager.stdout.readline().split(), *manager.stderr.readline().split()]
        manager.kill()
        manager.wait()
    assert len(set(pids)) == 3
    await_end(*map(int, pids))


def test_an_interrupt_leaves_all_closable(workers: Processes) -> None:
    """Ctrl-C during `wait` is raised there; `close` then ends the busy worker at once."""

    def interrupt() -> None:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)

    workers.start(0, "key", interrupt, ())
    with pytest.raises(KeyboardInterrupt):
        workers.wait(TIMEOUT)
    pids, before = workers.pids(), time.monotonic()
    workers.close()
    assert time.monotonic() - before < TIMEOUT, "it does not wait for the task"
    assert not any(exists(pid) for pid in pids)
    workers.close()
    assert workers.pids() == ()
