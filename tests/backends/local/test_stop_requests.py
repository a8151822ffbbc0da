"""Tasks that are asked to stop: which ones get the request, and what they can do."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from backends.local.calling import TIMEOUT, one
from slotwise import task as running
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Conditions, Reply
from tiers import examples

SLOTS = 1


def begun(workers: Processes, function: Callable[..., object], fifo: str) -> None:
    """Starts a task with the path of a pipe; returns when it has written into it."""
    workers.start(0, f"begun {time.monotonic_ns()}", function, (fifo,))
    Path(fifo).read_text()


def ask_to_stop(workers: Processes, seconds: float = 600.0) -> None:
    """Asks the task to stop within the given seconds."""
    workers.request_stop(0, time.monotonic() + seconds)


def call(workers: Processes, function: Callable[..., object], kept: bytes = b"") -> Reply:
    """Runs a task to its end."""
    workers.start(0, f"call {time.monotonic_ns()}", function, (), Conditions(kept))
    return one(workers)


# How a task learns of a request


def test_a_task_can_ask_whether_it_should_stop(workers: Processes, fifo: str) -> None:
    """It sees the request and its time; if it continues and succeeds, it is done."""

    def ask(fifo: str) -> tuple[bool, float, float]:
        before = running.stop_requested(), running.seconds_left()
        Path(fifo).write_text("")
        while not running.stop_requested():
            time.sleep(0.001)
        return *before, running.seconds_left()

    begun(workers, ask, fifo)
    ask_to_stop(workers, 600.0)
    outcome = one(workers)
    assert outcome.status == "done"
    assert outcome.value[:2] == (False, float("inf"))  # type: ignore[index]
    assert 600 - TIMEOUT < outcome.value[2] <= 600  # type: ignore[index]
    assert call(workers, running.stop_requested).value is False


def test_a_hook_is_called_once_for_several_requests(workers: Processes, fifo: str) -> None:
    """The hook gets the seconds left; the task continues; a new instant is seen at once."""

    def work(fifo: str) -> list[float]:
        seen: list[float] = []
        running.on_stop_request(seen.append)
        Path(fifo).write_text("")
        while not seen:
            time.sleep(0.001)
        Path(fifo).write_text("")
        while running.seconds_left() > 300:
            time.sleep(0.001)
        return seen

    begun(workers, work, fifo)
    ask_to_stop(workers, 600)
    Path(fifo).read_text()
    ask_to_stop(workers, 200)
    (seconds,) = one(workers).value  # type: ignore[misc]
    assert 600 - TIMEOUT < seconds <= 600


def test_an_error_in_a_hook_is_shown_and_the_task_continues(
    workers: Processes, fifo: str
) -> None:
    """Even an exit: an error in a hook does not fail the task."""

    def work(fifo: str) -> str:
        called: list[float] = []
        os.dup2(os.open(f"{fifo}-shown", os.O_CREAT | os.O_WRONLY), 2)

        def fail(seconds_left: float) -> None:
            called.append(seconds_left)
            raise SystemExit("no luck")

        running.on_stop_request(fail)
        Path(fifo).write_text("")
        while not called:
            time.sleep(0.001)
        return "done all the same"

    begun(workers, work, fifo)
    ask_to_stop(workers)
    assert one(workers).value == "done all the same"
    shown = Path(f"{fifo}-shown").read_text()
    assert "the stop hook of a task failed" in shown
    assert "SystemExit: no luck" in shown


def test_a_request_before_the_start_of_a_task_reaches_it(workers: Processes) -> None:
    """Even if its process does not run Python yet: the hook is called when it is set."""

    def work() -> tuple[bool, int]:
        seen: list[float] = []
        running.on_stop_request(seen.append)
        return running.stop_requested(), len(seen)

    (pid,) = workers.pids()
    os.kill(pid, signal.SIGSTOP)
    workers.start(0, "key", work, ())
    ask_to_stop(workers)
    os.kill(pid, signal.SIGCONT)
    assert one(workers).value == (True, 1)


def test_a_task_that_blocks_is_woken_up(workers: Processes, fifo: str) -> None:
    """In a sleep, in a read that never ends, in a lock that nobody releases."""

    def asleep(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="woken"))
        Path(fifo).write_text("")
        while True:  # A signal just before a long sleep does not end it.
            time.sleep(0.01)

    def reading(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="woken"))
        Path(fifo).write_text("")
        os.read(os.pipe()[0], 1)

    def locked(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="woken"))
        lock = threading.Lock()
        with lock:
            Path(fifo).write_text("")
            lock.acquire()

    for function in (asleep, reading, locked):
        begun(workers, function, fifo)
        ask_to_stop(workers)
        assert one(workers).status == "stopped"


# What a task keeps


def test_a_kept_value_goes_to_the_next_attempt_only(workers: Processes, fifo: str) -> None:
    """A value of a class of the task; an attempt that gets nothing finds nothing."""

    def work(fifo: str) -> None:
        class Own:
            pages = 7

        Path(fifo).write_text("")
        while not running.stop_requested():
            time.sleep(0.001)
        try:
            running.stop(keep=Own())
        except Exception:
            raise AssertionError("stop passes user code by") from None

    begun(workers, work, fifo)
    ask_to_stop(workers)
    outcome = one(workers)
    assert outcome.status == "stopped"
    assert outcome.seconds > 0
    again = call(workers, lambda: running.kept().pages, outcome.value)  # type: ignore[arg-type]
    assert again.value == 7
    assert call(workers, lambda: running.kept("nothing")).value == "nothing"


def test_large_values_are_kept(workers: Processes, fifo: str) -> None:
    """Large values are passed to the manager and to the next attempt without unpickling."""
    times = examples(40_000, slow=400_000)

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep=bytes(range(256)) * times))
        Path(fifo).write_text("")
        while True:  # A signal just before a long sleep does not end it.
            time.sleep(0.01)

    begun(workers, work, fifo)
    ask_to_stop(workers)
    kept = one(workers).value
    assert isinstance(kept, bytes | bytearray)
    assert len(kept) > 256 * times
    again = call(workers, lambda: running.kept() == bytes(range(256)) * times, kept)
    assert again.value is True


def test_values_that_cannot_be_pickled_cannot_be_kept(workers: Processes, fifo: str) -> None:
    """It is an error of the task, and so is a stop without a request; the text says so."""

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep=threading.Lock()))
        Path(fifo).write_text("")
        while True:  # A signal just before a long sleep does not end it.
            time.sleep(0.01)

    begun(workers, work, fifo)
    ask_to_stop(workers)
    outcome = one(workers)
    assert outcome.status == "error"
    assert str(outcome.value).startswith("what is kept, of type lock, cannot be sent between")
    outcome = call(workers, lambda: running.stop(keep=1))
    assert outcome.status == "error"
    assert "RuntimeError: this task was not asked to stop" in str(outcome.value)


def test_a_task_that_stops_without_a_value_keeps_nothing(workers: Processes, fifo: str) -> None:
    """It keeps nothing; its cleanup has run."""

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop())
        try:
            Path(fifo).write_text("")
            while True:  # A signal just before a long sleep does not end it.
                time.sleep(0.01)
        finally:
            Path(fifo + "-cleaned").touch()

    begun(workers, work, fifo)
    ask_to_stop(workers)
    outcome = one(workers)
    assert (outcome.status, bytes(outcome.value)) == ("stopped", b"")  # type: ignore[call-overload]
    assert Path(fifo + "-cleaned").exists()
