"""What a task does wrong: errors, broken values, writes to the channel, ends of its process."""

from __future__ import annotations

import copyreg
import ctypes
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from backends.local.calling import TIMEOUT, await_end, call, one
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.worker import DONE, FORGET, REPLY
from slotwise.backends.local.workers import Reply
from slotwise.jobs.execution import LostInputError
from slotwise.jobs.hosts.files import MissingFilesError


def test_an_error_comes_as_the_traceback_of_user_code(workers: Processes) -> None:
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


def test_a_base_exception_is_an_error_of_the_task(workers: Processes) -> None:
    """A cancelled coroutine raises no Exception; its worker survives."""

    def cancelled() -> None:
        import asyncio

        raise asyncio.CancelledError("by me")

    outcome = call(workers, cancelled)
    assert (outcome.status, str(outcome.value).splitlines()[-1]) == (
        "error",
        "asyncio.exceptions.CancelledError: by me",
    )


def test_an_exception_that_cannot_be_pickled_crosses_as_text(workers: Processes) -> None:
    """Whatever an exception holds, its message arrives."""

    def fail() -> None:
        raise ValueError("held up", threading.Lock())

    outcome = call(workers, fail)
    assert outcome.status == "error"
    assert "ValueError: ('held up', <unlocked _thread.lock" in str(outcome.value)


def test_lost_input_arrives_whatever_its_cause(workers: Processes) -> None:
    """With distributed, exceptions are pickled with their causes; one here cannot be read."""

    def fail() -> None:
        pytest.importorskip("tblib.pickling_support").install()
        copyreg.dispatch_table.pop(MissingFilesError, None)  # As if it was imported later.
        raise LostInputError("maps", ((1, 2),), "a file") from MissingFilesError([0], "a:1")

    outcome = call(workers, fail)
    assert isinstance(outcome.value, LostInputError), outcome
    assert outcome.value.outputs == ((1, 2),)


def test_values_that_cannot_be_pickled_are_errors_of_the_task(workers: Processes) -> None:
    """Runner, arguments and result: the text says which, and the worker lives on."""
    pids = workers.pids()
    lock, generator = threading.Lock(), (x for x in "ab")
    for function, arguments, begin in [
        (
            lambda: generator,
            (),
            "the task cannot be sent to a worker process: _pickle.PicklingError: ",
        ),
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


def test_values_that_cannot_be_unpickled_are_errors_of_the_task(workers: Processes) -> None:
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
def test_an_exit_during_unpickling_is_an_error_of_the_task(
    workers: Processes, kind: str
) -> None:
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
    workers: Processes, monkeypatch: pytest.MonkeyPatch
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
def test_writing_to_the_channel_is_an_error_of_the_task(
    workers: Processes, text: bytes
) -> None:
    """It is not taken for a reply, and later tasks are not affected: the worker is replaced."""
    dead, other = workers.pids()
    outcome = call(workers, lambda: os.write(int(sys.argv[1]), text))
    assert outcome.status == "error"
    assert "wrote to the channel between its worker process and slotwise" in str(outcome.value)
    assert workers.pids()[0] != dead
    assert workers.pids()[1] == other
    assert call(workers, lambda: 1).value == 1


def test_writing_to_the_channel_between_tasks_fails_no_task(
    workers: Processes, fifo: str
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


def test_reading_from_the_channel_replaces_the_worker(workers: Processes, fifo: str) -> None:
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
    return REPLY.pack(bytes.fromhex(sys.argv[4]), DONE, 0.0, 0.0, 0, length)


def test_a_result_without_bound_is_an_error_of_the_task(workers: Processes) -> None:
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
        (lambda: ctypes.string_at(0), "was killed by signal 11 (SIGSEGV)"),
        (lambda: os.kill(os.getpid(), 9), "was killed by signal 9 (SIGKILL)"),
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
    workers: Processes, end: Callable[[], object], words: str
) -> None:
    """Exit, crash, kill, even in mid-message: replaced, and the other slot goes on.

    A task that ends its process itself has failed. A kill may come from outside: it is lost.
    """
    dead, other = workers.pids()
    workers.start(1, "other", lambda: 1, ())
    assert one(workers).value == 1
    outcome = call(workers, end)
    status = "lost" if words == "was killed by signal 9 (SIGKILL)" else "exited"
    assert outcome == Reply(0, status, f"worker process {dead} {words}")
    assert workers.pids()[1] == other
    assert call(workers, lambda: os.getpid()).value == workers.pids()[0] != dead


def test_a_child_left_behind_by_a_crash_is_killed(workers: Processes, fifo: str) -> None:
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
