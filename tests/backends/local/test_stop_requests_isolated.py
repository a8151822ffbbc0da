"""Requests to stop and signals do not affect other tasks, workers and large values."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from backends.local.calling import TIMEOUT, one
from backends.local.test_stop_requests import SLOTS, ask_to_stop, begun, call
from slotwise import task as running
from slotwise.backends.local.processes import Processes
from slotwise.backends.local.workers import Conditions
from tiers import examples

__all__ = ["SLOTS"]


def test_sigterm_from_elsewhere_has_no_effect(workers: Processes, fifo: str) -> None:
    """A stray signal affects neither an idle worker nor a task."""
    assert call(workers, lambda: 1).value == 1
    os.kill(workers.pids()[0], signal.SIGTERM)

    def work(fifo: str) -> bool:
        running.on_stop_request(lambda seconds: running.stop())
        Path(fifo).write_text("")
        Path(fifo).read_text()
        return running.stop_requested()

    begun(workers, work, fifo)
    os.kill(workers.pids()[0], signal.SIGTERM)
    Path(fifo).write_text("")
    assert one(workers).value is False


def test_a_starting_worker_survives_sigterm() -> None:
    """A signal does no harm from the first instant of a worker."""
    with Processes(1) as workers:
        (pid,) = workers.pids()
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            os.kill(pid, signal.SIGTERM)
        assert call(workers, os.getpid).value == pid


@pytest.mark.parametrize(
    ("hook", "times"), [(True, examples(5, slow=40)), (False, examples(100, slow=400))]
)
def test_a_request_at_the_end_of_a_task_affects_no_other_task(
    hook: bool, times: int, workers: Processes
) -> None:
    """Requests at the start and end of tasks: each task is whole; the next is not affected."""

    def work(number: int) -> int:
        if hook:
            running.on_stop_request(lambda seconds: running.stop(keep=number))
        elif running.stop_requested():
            running.stop(keep=number)
        return number

    def innocent() -> tuple[bool, object]:
        running.on_stop_request(lambda seconds: running.stop(keep="wrong"))
        return running.stop_requested(), running.kept()

    seen: list[str] = []
    delay = 100e-6  # Seconds; it comes ever nearer to the instant of the end.
    guard = time.monotonic() + TIMEOUT
    while len(seen) < times or len(set(seen)) < 2:
        assert time.monotonic() < guard
        number = len(seen)
        workers.start(0, "work", work, (number,))
        assert one(workers).value == number  # The worker that runs it is ready.
        pids = workers.pids()
        workers.start(0, "work", work, (number,))
        until = time.monotonic() + delay
        while time.monotonic() < until:
            pass
        ask_to_stop(workers)
        outcome = one(workers)
        seen.append(outcome.status)
        delay *= 1.2 if outcome.status == "stopped" else 0.8
        assert outcome.value == number or outcome.status == "stopped"
        assert (workers.pids() == pids) == (not hook or outcome.status == "done")
        workers.start(0, "innocent", innocent, ())
        assert one(workers).value == (False, None)
    assert set(seen) == {"done", "stopped"}


def test_a_task_that_stops_during_an_import_leaves_no_broken_process(
    workers: Processes, fifo: str
) -> None:
    """A half-imported module does not affect the next attempt."""
    folder = str(Path(fifo).parent)
    Path(folder, "half.py").write_text(
        "import sys, time\n"
        "assert not hasattr(sys, 'half'), 'cannot be loaded twice in a process'\n"
        "sys.half = True\n"
        "if sys.fifo:\n"
        "    open(sys.fifo, 'w').close()\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
    )

    def work(fifo: str) -> str:
        sys.path.append(folder)
        sys.fifo = fifo  # type: ignore[attr-defined]
        running.on_stop_request(lambda seconds: running.stop(keep="half"))
        import half  # type: ignore[import-not-found]

        return str(half.__name__)

    begun(workers, work, fifo)
    ask_to_stop(workers)
    assert one(workers).status == "stopped"
    assert call(workers, lambda: work("")).value == "half"


def test_a_task_that_fails_while_it_stops_has_stopped(workers: Processes, fifo: str) -> None:
    """An error while a stopped task unwinds does not make it fail."""

    def work(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep="place"))
        try:
            Path(fifo).write_text("")
            while True:  # A signal just before a long sleep does not end it.
                time.sleep(0.01)
        finally:
            raise ValueError("the file is not complete")

    begun(workers, work, fifo)
    ask_to_stop(workers)
    stopped = one(workers)
    assert stopped.status == "stopped"
    assert call(workers, running.kept, bytes(stopped.value)).value == "place"  # type: ignore[call-overload]


def test_signals_do_not_corrupt_large_results_and_arguments(workers: Processes) -> None:
    """Signals arrive constantly while frames of megabytes go both ways."""
    large = bytes(range(256)) * 80_000
    over = threading.Event()

    def disturb() -> None:
        while not over.wait(1e-4):  # Without a pause, Python would nest handlers without end.
            os.kill(pid, signal.SIGTERM)
            ask_to_stop(workers)

    assert call(workers, lambda: 1).value == 1
    (pid,) = workers.pids()
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(examples(2, slow=5)):
            workers.start(0, "reverse", lambda data: data[::-1], (large,))
            assert one(workers).value == large[::-1]
    finally:
        over.set()
        thread.join()


def test_a_signal_handler_of_user_code_is_limited_to_its_task(
    workers: Processes, fifo: str
) -> None:
    """It is called instead of the hook; the next task has its hook again."""

    def own(fifo: str) -> list[str]:
        seen: list[str] = []
        running.on_stop_request(lambda seconds: seen.append("hook"))
        signal.signal(signal.SIGTERM, lambda number, frame: seen.append("own"))
        Path(fifo).write_text("")
        while not seen:
            time.sleep(0.001)
        assert running.stop_requested()
        return seen

    def after(fifo: str) -> None:
        running.on_stop_request(lambda seconds: running.stop())
        Path(fifo).write_text("")
        while True:  # A signal just before a long sleep does not end it.
            time.sleep(0.01)

    begun(workers, own, fifo)
    ask_to_stop(workers)
    assert one(workers).value == ["own"]
    begun(workers, after, fifo)
    ask_to_stop(workers)
    assert one(workers).status == "stopped"


def test_a_forked_child_ends_by_sigterm(workers: Processes) -> None:
    """Processes that user code forks can be terminated normally."""

    def fork() -> int:
        child = os.fork()
        if not child:
            while True:  # A signal just before a long sleep does not end it.
                time.sleep(0.01)
        os.kill(child, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert call(workers, fork).value == -signal.SIGTERM


def test_outside_of_a_task_requests_have_defaults() -> None:
    """Code that runs without a worker gets the defaults."""
    assert running.stop_requested() is False
    assert running.seconds_left() == float("inf")
    assert running.kept(3) == 3
    running.on_stop_request(lambda seconds: pytest.fail("nobody was asked"))
    with pytest.raises(RuntimeError, match="this task was not asked to stop"):
        running.stop()


def test_a_stopped_sleep_continues_where_it_was(workers: Processes) -> None:
    """Of ten minutes most are kept; the next attempt adds what it sleeps; the last one ends."""
    kept = pickle.dumps(500.0)
    for _ in range(2):
        workers.start(0, "sleep", running.sleep, (600.0,), Conditions(kept))
        assert workers.wait(0.1) == []
        ask_to_stop(workers)
        stopped = one(workers)
        assert stopped.status == "stopped"
        before, now = pickle.loads(kept), pickle.loads(bytes(stopped.value))  # type: ignore[call-overload]
        assert before < now <= before + stopped.seconds
        kept = stopped.value  # type: ignore[assignment]
    workers.start(0, "sleep", running.sleep, (600.0,), Conditions(pickle.dumps(599.9)))
    last = one(workers)
    assert last.status == "done"
    assert last.seconds >= 0.09
