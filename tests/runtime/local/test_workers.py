"""Worker processes: results, the effects of a dying one, and cleanup."""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from slotwise.model.errors import SlotwiseError
from slotwise.runtime.local.worker import DONE, FORGET, REPLY
from slotwise.runtime.local.workers import Reply, Workers
from tiers import examples

TIMEOUT = 120.0
"""A time-out in seconds: a test that waits for this long has failed."""


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Two slots, whose processes are all gone afterwards."""
    pool = Workers(2)
    try:
        yield pool
        pids = pool.pids()
    finally:
        pool.close()
    assert not any(exists(pid) for pid in pids)


def one(workers: Workers) -> Reply:
    """The only outcome of the next wait."""
    (outcome,) = workers.wait(TIMEOUT)
    return outcome


def call(
    workers: Workers, function: Callable[..., object], *arguments: object, slot: int = 0
) -> Reply:
    """Runs one task to its end."""
    workers.start(slot, f"call {time.monotonic_ns()}", function, arguments)
    return one(workers)


def exists(pid: int) -> bool:
    """Whether there is such a process, be it dead and not yet waited for."""
    return Path(f"/proc/{pid}").exists()


def await_end(*pids: int) -> None:
    """Blocks until these processes, of whatever parent, have ended."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([watched], [], [], TIMEOUT)
        os.close(watched)
        assert ended, f"process {pid} still runs"


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    """A pipe through which a running task can send messages to the test."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


def busy() -> Callable[[str], None]:
    """A task that never ends in Python code; it sends the pid of a sleeping child."""

    def run(fifo: str) -> None:
        child = subprocess.Popen(["sleep", "600"])
        Path(fifo).write_text(str(child.pid))
        while True:
            pass

    return run  # Nested functions go by value: a worker cannot import this file.


# What comes back


def test_each_slot_runs_its_own_task(workers: Workers) -> None:
    """A result comes with its slot, and from the process that belongs to the slot."""
    for slot in (0, 1):
        workers.start(slot, "pid", lambda: os.getpid(), ())
    outcomes: list[Reply] = []
    while len(outcomes) < 2:
        outcomes += workers.wait(TIMEOUT)
    assert {(o.slot, o.status, o.value) for o in outcomes} == {
        (slot, "done", pid) for slot, pid in enumerate(workers.pids())
    }


def test_times_are_on_the_clock_of_the_manager(workers: Workers) -> None:
    """Start and run time, taken in the worker, lie within what the manager saw."""
    before = time.monotonic()
    outcome = call(workers, lambda: time.sleep(0.05))
    assert before <= outcome.started
    assert 0.05 <= outcome.seconds <= time.monotonic() - outcome.started


def test_wait_ends_at_its_timeout(workers: Workers) -> None:
    """Without a reply the list is empty, and not before the time-out."""
    before = time.monotonic()
    assert workers.wait(0.05) == []
    assert time.monotonic() - before >= 0.05
    assert workers.wait(0) == []
    assert workers.wait(-1) == []


def test_a_runner_is_kept_until_it_is_forgotten(workers: Workers) -> None:
    """The first runner of a key serves all its tasks; after `forget` a new one is taken."""
    workers.start(0, "key", lambda x: x + 1, (1,))
    assert one(workers).value == 2
    workers.start(0, "key", lambda x: x + 100, (1,))
    assert one(workers).value == 2
    workers.forget("key")
    workers.start(0, "key", lambda x: x + 100, (1,))
    assert one(workers).value == 101


def test_more_is_forgotten_than_fits_into_the_channel(workers: Workers, fifo: str) -> None:
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


def test_large_data_go_both_ways(workers: Workers) -> None:
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
        "from slotwise.runtime.local.workers import Workers\n"
        "class Point:\n"
        "    def __init__(self, x): self.x = x\n"
        "def double(point): return Point(helper_beside_the_script.double(point.x))\n"
        "with Workers(1) as workers:\n"
        "    workers.start(0, 'key', double, (Point(21),))\n"
        "    (outcome,) = workers.wait(120)\n"
        "print(type(outcome.value) is Point, outcome.value.x)\n"
    )
    (tmp_path / "helper_beside_the_script.py").write_text("def double(x): return 2 * x\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("True 42\n", "")


# What a task does wrong


def test_an_error_comes_as_the_traceback_of_user_code(workers: Workers) -> None:
    """The text begins with the user's frames; the worker lives on."""
    pids = workers.pids()

    def divide(x: int) -> float:
        return 1 / x

    outcome = call(workers, divide, 0)
    assert outcome.status == "error"
    first, *frames, last = str(outcome.value).splitlines()
    assert first == "Traceback (most recent call last):"
    assert frames[0].endswith("in divide")
    assert last == "ZeroDivisionError: division by zero"
    assert call(workers, divide, 1).value == 1.0
    assert workers.pids() == pids


def test_a_base_exception_is_an_error_of_the_task(workers: Workers) -> None:
    """A cancelled coroutine raises no Exception; its worker survives."""

    def cancelled() -> None:
        import asyncio

        raise asyncio.CancelledError("by me")

    outcome = call(workers, cancelled)
    assert (outcome.status, str(outcome.value).splitlines()[-1]) == (
        "error",
        "asyncio.exceptions.CancelledError: by me",
    )


def test_an_exception_that_cannot_be_pickled_crosses_as_text(workers: Workers) -> None:
    """Whatever an exception holds, its message arrives."""

    def fail() -> None:
        raise ValueError("held up", threading.Lock())

    outcome = call(workers, fail)
    assert outcome.status == "error"
    assert "ValueError: ('held up', <unlocked _thread.lock" in str(outcome.value)


def test_values_that_cannot_be_pickled_are_errors_of_the_task(workers: Workers) -> None:
    """Runner, arguments and result: the text says which, and the worker lives on."""
    pids = workers.pids()
    lock = threading.Lock()
    for function, arguments, begin in [
        (lambda: lock, (), "the task cannot be sent to a worker process: TypeError: "),
        (lambda x: x, (lock,), "the task cannot be sent to a worker process: TypeError: "),
        (
            lambda: (x for x in "ab"),
            (),
            "a result, of type generator, cannot be sent between processes: TypeError: ",
        ),
    ]:
        outcome = call(workers, function, *arguments)
        assert outcome.status == "error"
        assert str(outcome.value).startswith(begin)
    assert workers.pids() == pids


class Unreadable:
    """Pickles well and cannot be read again."""

    def __reduce__(self) -> tuple[object, ...]:
        return (eval, ("1 / 0",))


def test_values_that_cannot_be_unpickled_are_errors_of_the_task(workers: Workers) -> None:
    """Arguments fail in the worker, results in the manager; both live on."""
    pids = workers.pids()
    arguments = call(workers, lambda x: x, Unreadable())
    assert str(arguments.value) == (
        "the arguments of the task cannot be read in a worker process:"
        " ZeroDivisionError: division by zero"
    )

    def unreadable() -> object:
        class Local:
            def __reduce__(self) -> tuple[object, ...]:
                return (eval, ("1 / 0",))

        return Local()

    result = call(workers, unreadable)
    assert (result.status, str(result.value)) == (
        "error",
        "the result of the task cannot be read: ZeroDivisionError: division by zero",
    )
    assert workers.pids() == pids


class Leaving:
    """Raises what is no Exception, or pickling it does, wherever it is unpickled."""

    def __init__(self, how: str, pickling: str = "None") -> None:
        self.how, self.pickling = how, pickling

    def __reduce__(self) -> tuple[object, ...]:
        exec(self.pickling)
        return (exec, (self.how,))


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_an_exit_during_unpickling_is_an_error_of_the_task(workers: Workers, kind: str) -> None:
    """A result cannot end the manager; nor can an argument, or a function, that is pickled."""
    pids = workers.pids()
    result = call(workers, lambda: Leaving(f"raise {kind}('bye')"))
    assert result.status == "error"
    assert result.value == f"the result of the task cannot be read: {kind}: bye"
    for function, arguments in (
        (lambda x: x, (Leaving("None", f"raise {kind}('bye')"),)),
        (partial(print, Leaving("None", f"raise {kind}('bye')")), ()),
    ):
        sent = call(workers, function, *arguments)
        assert sent.value == f"the task cannot be sent to a worker process: {kind}: bye"
    assert workers.pids() == pids
    assert call(workers, lambda: 1).value == 1


def test_an_interrupt_while_a_result_is_read_goes_through(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal at that moment interrupts the manager, whatever the result is."""
    loads, left = pickle.loads, [1]

    def interrupted(body: bytes) -> object:
        if left:
            left.pop()
            raise KeyboardInterrupt
        return loads(body)

    monkeypatch.setattr(pickle, "loads", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(workers, lambda: 1)


@pytest.mark.parametrize("text", [b"\0", b"hello", b"\xff" * 100, b"x" * 1_000_000])
def test_writing_to_the_channel_is_an_error_of_the_task(workers: Workers, text: bytes) -> None:
    """It is not taken for a reply, and later tasks are not affected: the worker is replaced."""
    dead, other = workers.pids()
    outcome = call(workers, lambda: os.write(int(sys.argv[1]), text))
    assert outcome.status == "error"
    assert "wrote to the channel between its worker process and slotwise" in str(outcome.value)
    assert workers.pids()[0] != dead
    assert workers.pids()[1] == other
    assert call(workers, lambda: 1).value == 1


def test_writing_to_the_channel_between_tasks_fails_no_task(
    workers: Workers, fifo: str
) -> None:
    """A thread that a task left writes to the channel: only the worker is replaced."""
    dead, _ = workers.pids()

    def leave() -> None:
        def write() -> None:
            with open(fifo) as file:
                file.read()
            os.write(int(sys.argv[1]), b"late")

        threading.Thread(target=write).start()

    assert call(workers, leave).status == "done"
    with open(fifo, "w") as file:
        file.write("go")
    until = time.monotonic() + TIMEOUT
    while workers.pids()[0] == dead:
        assert workers.wait(0.05) == []
        assert time.monotonic() < until
    assert call(workers, lambda: 1).value == 1


def test_reading_from_the_channel_replaces_the_worker(workers: Workers, fifo: str) -> None:
    """The start of the next request is unknown: the worker ends and is replaced."""
    dead, _ = workers.pids()

    def read() -> None:
        with open(fifo, "w"):
            os.read(int(sys.argv[1]), 5)

    workers.start(0, "reads", read, ())
    with open(fifo):
        # What is left of this request is no whole frame.
        workers._workers[0].send(FORGET, pickle.dumps("nothing" * 10))
    assert one(workers).status == "done"
    until = time.monotonic() + TIMEOUT
    while workers.pids()[0] == dead:
        assert workers.wait(0.05) == []
        assert time.monotonic() < until
    assert call(workers, lambda: 1).value == 1


def reply(length: int) -> bytes:
    """The head of a reply of the given length, as the worker sends it."""
    return REPLY.pack(bytes.fromhex(sys.argv[4]), DONE, 0.0, 0.0, length)


def test_a_result_without_bound_is_an_error_of_the_task(workers: Workers) -> None:
    """It does not fit into memory; the manager continues."""
    outcome = call(workers, lambda: os.write(int(sys.argv[1]), reply(2**60)))
    assert (outcome.status, outcome.value) == (
        "error", "the result of the task does not fit into memory",
    )  # fmt: skip
    assert call(workers, lambda: 1).value == 1


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os._exit(3), "exited with code 3"),
        (lambda: sys.exit(4), "exited with code 4"),
        (lambda: sys.exit(), "exited with code 0"),
        (lambda: sys.exit("because"), "exited with code 1"),
        (lambda: ctypes.string_at(0), "was killed by signal 11"),
        (lambda: os.kill(os.getpid(), 9), "was killed by signal 9"),
        (
            lambda: os.write(int(sys.argv[1]), reply(9)[:9]) and os._exit(5),
            "exited with code 5",
        ),
        (lambda: os.write(int(sys.argv[1]), reply(99)) and os._exit(6), "exited with code 6"),
        (
            lambda: os.closerange(3, 100) or time.sleep(600),
            "closed its channel to the manager",
        ),
    ],
)
def test_a_task_that_ends_its_process_is_lost(
    workers: Workers, end: Callable[[], object], words: str
) -> None:
    """Exit, crash, kill, even in mid-message: lost, replaced, and the other slot goes on."""
    dead, other = workers.pids()
    workers.start(1, "other", lambda: 1, ())
    assert one(workers).value == 1
    outcome = call(workers, end)
    assert outcome == Reply(0, "lost", f"worker process {dead} {words}")
    assert workers.pids()[1] == other
    assert call(workers, lambda: os.getpid()).value == workers.pids()[0] != dead


def test_a_child_left_behind_by_a_crash_is_killed(workers: Workers, fifo: str) -> None:
    """A forked child holds no channel open, and does not outlive its worker."""

    def fork() -> None:
        if child := os.fork():
            Path(fifo).write_text(str(child))
            os._exit(7)
        time.sleep(600)

    workers.start(0, "fork", fork, ())
    child = int(Path(fifo).read_text())
    assert str(one(workers).value).endswith("exited with code 7")
    await_end(child)


# What others do to a worker


def test_an_idle_worker_killed_from_outside_is_replaced(workers: Workers) -> None:
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


def test_a_task_sent_to_a_worker_that_dies_before_reading_it_is_lost(workers: Workers) -> None:
    """Its progress is unknown, so it is reported as lost."""
    dead = workers.pids()[0]
    os.kill(dead, signal.SIGSTOP)
    workers.start(0, "key", lambda data: None, (bytes(10_000_000),))
    os.kill(dead, signal.SIGKILL)
    sentence = f"worker process {dead} was killed by signal 9"
    assert one(workers) == Reply(0, "lost", sentence)


def test_kill_ends_a_task_with_its_children_and_reports_nothing(
    workers: Workers, fifo: str
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


def test_kill_drops_an_outcome_that_was_not_reported(workers: Workers) -> None:
    """A task that could not be sent and was then killed is not reported."""
    workers.start(0, "key", print, (threading.Lock(),))
    workers.kill(0)
    assert workers.wait(0) == []


def test_workers_that_cannot_start_stop_the_run_with_a_message() -> None:
    """Without a Python that starts, replacing would go on forever."""
    with Workers(1, environment={"PYTHONHOME": "/nowhere"}) as workers:
        with pytest.raises(SlotwiseError, match="3 in a row ended before they were ready"):
            workers.wait(TIMEOUT)
        pids = workers.pids()
    assert not any(exists(pid) for pid in pids)


# What is around a worker


def test_a_waiting_worker_has_imported_little(workers: Workers) -> None:
    """Of our package only slotwise.task is imported, and numpy only when needed."""
    heavy = [
        "slotwise.programs",
        "slotwise.model",
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


def test_a_worker_inherits_no_other_files(workers: Workers) -> None:
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
    with Workers(2, environment={"MKL_NUM_THREADS": "2", "COLOUR": "blue"}) as workers:
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
from slotwise.runtime.local.workers import Workers

def busy():
    child = subprocess.Popen(["sleep", "600"])
    print(os.getpid(), child.pid)
    while True: pass

with Workers(2) as workers:
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


def test_an_interrupt_leaves_all_closable(workers: Workers) -> None:
    """Ctrl-C during `wait` is raised there; `close` then ends the busy worker at once."""

    def interrupt() -> None:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)

    workers.start(0, "key", interrupt, ())
    # A shell that starts tests in the background may have set it to be ignored.
    before_it = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            workers.wait(TIMEOUT)
    finally:
        signal.signal(signal.SIGINT, before_it)
    pids, before = workers.pids(), time.monotonic()
    workers.close()
    assert time.monotonic() - before < TIMEOUT, "it does not wait for the task"
    assert not any(exists(pid) for pid in pids)
    workers.close()
    assert workers.pids() == ()
